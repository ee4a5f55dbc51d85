/* The report of `weft estimate` as text. */
#include "tools/compiler/estimate.h"

#include <math.h>
#include <string.h>

enum { HISTOGRAM_WIDTH = 40, NAME_WIDTH = 48 };

static const char *item_of(const weft_module *m, const weft_kernel_cost *k)
{
    const char *item = weft_node_loc(m, k->node).item;
    return item ? item : "";
}

/* Shortens a name to its end, which tells more than its beginning: "..." and as many of its last
 * parts as there is room for, or the last characters of a part that is too long. */
static const char *end_of(const char *item, char buf[NAME_WIDTH + 1])
{
    size_t len = strlen(item), room = NAME_WIDTH - strlen("...");
    if (len <= NAME_WIDTH)
        return item;
    const char *end = item + len - room, *part = strchr(end, '/');
    while (!part && (*end & 0xc0) == 0x80)
        end++; /* do not begin inside a UTF-8 sequence */
    snprintf(buf, NAME_WIDTH + 1, "...%s", part && part[1] ? part : end);
    return buf;
}

static const char *where_of(const weft_slice *slice, char *buf, size_t size)
{
    snprintf(buf, size, "%s%s%s", slice->gpu->name, slice->name[0] ? ":" : "", slice->name);
    return buf;
}

/* "1.23 ms" */
static const char *time_text(double us, char *buf, size_t size)
{
    if (us < 1e3)
        snprintf(buf, size, "%.3g us", us);
    else if (us < 1e6)
        snprintf(buf, size, "%.4g ms", us * 1e-3);
    else
        snprintf(buf, size, "%.4g s", us * 1e-6);
    return buf;
}

/* -- Totals ----------------------------------------------------------------------------------- */

static void print_memory(const weft_tool_finding *f)
{
    char all[32], weights[32], arena[32], workspace[32], io[32], context[32], has[32];
    const weft_estimate *e = &f->e;
    printf("  mreq        %s = weights %s + arena %s + workspace %s + inputs %s + context %s\n",
           weft_tool_bytes(f->cost.mreq_bytes, all), weft_tool_bytes(e->weight_bytes, weights),
           weft_tool_bytes(e->arena_bytes, arena), weft_tool_bytes(e->workspace_bytes, workspace),
           weft_tool_bytes(e->io_bytes, io), weft_tool_bytes(e->context_bytes, context));
    if (f->fits_known)
        printf("              %s in %s%s\n", f->fits ? "fits" : "DOES NOT FIT",
               weft_tool_bytes(f->slice->mem_bytes, has),
               f->procs > 1       ? ", all processes"
               : f->slow_down > 0 ? ", all models"
                                  : "");
}

static void print_creq(const weft_creq *c)
{
    printf("  creq        mean %.1f %%, max %.1f %%, p95 %.1f %% of the device\n", c->mean * 100,
           c->max * 100, c->p95 * 100);
    for (int i = 0; i < WEFT_CREQ_BINS; i++) {
        int width = (int)lround(c->bin[i] * HISTOGRAM_WIDTH);
        if (c->bin[i] < 0.005)
            continue;
        printf("              %3d-%3d %%  %5.1f %%  %.*s\n", i * 100 / WEFT_CREQ_BINS,
               (i + 1) * 100 / WEFT_CREQ_BINS, c->bin[i] * 100, width ? width : 1,
               "########################################");
    }
}

static void print_total(const weft_tool_finding *f)
{
    char where[80], time[32];
    const weft_cost *c = &f->cost;
    printf("%s on %s, batch %lld", f->name, where_of(f->slice, where, sizeof where),
           (long long)f->batch);
    if (f->procs > 1)
        printf(", %u processes", f->procs);
    printf("\n  time        %s +-%.0f %% (%s), %.4g inferences/s\n",
           time_text(c->time_us, time, sizeof time), c->expected_error * 100, c->source,
           f->throughput_per_s);
    if (f->slow_down > 0)
        printf("  beside      x %.2f of its time alone, %s\n", f->slow_down,
               time_text(f->e.total.time_us, time, sizeof time));
    if (!f->m) {
        char size[32];
        printf("  creq        mean %.1f %% of the device\n  mreq        %s\n", c->creq * 100,
               weft_tool_bytes(c->mreq_bytes, size));
    } else {
        print_creq(&f->e.creq);
        print_memory(f);
    }
    printf(
        "  bandwidth   %.4g GB/s of %.4g\n  energy      %.4g J an execution, %.4g J an inference\n",
        c->bandwidth_gbps, f->slice->bandwidth_gbps, c->energy_j, c->energy_j / (double)f->batch);
    if (f->price_per_million > 0)
        printf("  price       $%.4g a million inferences ($%.4g an hour)\n", f->price_per_million,
               f->price_per_hour);
}

/* -- Kernels ---------------------------------------------------------------------------------- */

static void print_kernel(const weft_tool_finding *f, size_t i)
{
    const weft_kernel_cost *k = &f->e.kernel[i];
    const weft_kernel *p = &k->kernel;
    double bytes = p->work.bytes_read + p->work.bytes_written + p->work.weight_bytes;
    char name[NAME_WIDTH + 1];
    printf("  %10.2f %5.1f %%  %-8s %5.1f %%  %9.3g %9.3g  %-12s %-9s %-20s %s\n", k->cost.time_us,
           k->cost.time_us / f->e.device_us * 100, k->bound, k->cost.creq * 100, p->work.flops,
           bytes, weft_kernel_kind_name(p->kind), k->model, k->op, end_of(item_of(f->m, k), name));
}

static void print_kernels(const weft_tool_estimate *o, const weft_tool_finding *f)
{
    double share[3];
    size_t top[WEFT_ESTIMATE_TOP];
    size_t n = weft_tool_slowest(&f->e, top, WEFT_ESTIMATE_TOP);
    weft_tool_shares(&f->e, share);
    printf("  bound by    compute %.0f %%, memory %.0f %%, launch %.0f %% of the time of %zu "
           "kernels\n",
           share[0] * 100, share[1] * 100, share[2] * 100, f->e.n);
    if (f->e.n == 0)
        return;
    printf("  %10s %7s  %-8s %7s  %9s %9s  %-12s %-9s %-20s %s\n", "us", "time", "bound", "creq",
           "flop", "bytes", "kind", "model", "operator",
           o->per_kernel ? "node" : "node (slowest first)");
    if (o->per_kernel)
        for (size_t i = 0; i < f->e.n; i++)
            print_kernel(f, i);
    else
        for (size_t i = 0; i < n; i++)
            print_kernel(f, top[i]);
}

/* -- Why -------------------------------------------------------------------------------------- */

static void explain_kernel(const weft_tool_finding *f, size_t i)
{
    const weft_kernel_cost *k = &f->e.kernel[i];
    const weft_kernel *p = &k->kernel;
    const weft_usage *u = &k->usage;
    double launches = k->launches > 1 ? k->launches : 1, time_us = k->cost.time_us / launches;
    weft_kernel_reason why;
    weft_estimate_explain(p, f->slice, &f->how, time_us, &why);
    printf("  %s %s (%s, %s)\n", k->op, item_of(f->m, k), weft_kernel_kind_name(p->kind),
           weft_dtype_name(p->dtype));
    if (p->m > 0)
        printf("    problem     %g x (%g x %g x %g): batch, m, n, k\n", p->batch, p->m, p->n, p->k);
    else if (p->rows > 0)
        printf("    problem     %g rows of %g\n", p->rows, p->cols);
    printf("    arithmetic  %.4g flop / %.4g GFLOP/s%s = %.4g us\n", p->work.flops, why.peak_gflops,
           why.saving > 1 ? " / algorithm's saving" : "", why.compute_us);
    printf("    traffic     %.4g B, %.4g of them from memory, at %.4g GB/s: %.4g us\n", why.bytes,
           why.memory_bytes, f->slice->bandwidth_gbps, why.traffic_us);
    printf("    roofline    %.4g us = launch %.4g + the longer of the two\n", why.roofline_us,
           why.launch_us);
    printf("    model       %s: %.4g us +-%.0f %%", k->model, time_us,
           k->cost.expected_error * 100);
    if (strcmp(why.family, "none") != 0)
        printf(", trees '%s' say %.3g x %.4g us, not below %.4g us", why.family, why.correction,
               why.base_us, why.floor_us);
    printf("%s\n    bound by    %s\n", launches > 1 ? ", each launch" : "", k->bound);
    printf("    90 %% band   %.4g to %.4g us%s%s\n", k->cost.time_p5_us / launches,
           k->cost.time_p95_us / launches, why.widened ? ", widened: " : "",
           why.widened ? why.widened : "");
    if (u->launch.blocks > 0)
        printf(
            "    units       %g blocks of %u threads, %u registers, %u B shared: need %.1f %% of "
            "the device, occupancy %.0f %% (%.0f %% in theory), SMs active %.0f %%\n",
            u->launch.blocks, u->launch.threads, u->launch.regs, u->launch.shared_bytes,
            u->sm_need * 100, u->occ_active * 100, u->occ_theory * 100, u->sm_active * 100);
}

/* Kernels repeat in layers: one explanation for all kernels of a kind. */
static bool is_alike(const weft_kernel_cost *a, const weft_kernel_cost *b)
{
    return strcmp(a->op, b->op) == 0 && a->cost.time_us == b->cost.time_us &&
           a->kernel.work.flops == b->kernel.work.flops && a->kernel.m == b->kernel.m &&
           a->kernel.n == b->kernel.n && a->kernel.k == b->kernel.k;
}

static void explain(const weft_tool_finding *f)
{
    size_t top[WEFT_ESTIMATE_TOP];
    size_t n = weft_tool_slowest(&f->e, top, WEFT_ESTIMATE_TOP);
    puts("why");
    printf("  time        %zu kernels in sequence take %.4g us", f->e.n, f->e.device_us);
    if (f->procs > 1)
        printf(" alone, in %u processes %.4g us", f->procs, f->cost.time_us);
    else if (f->e.total.time_us > f->e.device_us * 1.0001)
        printf("; with the overhead of a framework %.4g us", f->e.total.time_us);
    printf("; the longest chain %.4g us\n", f->e.creq.span_us);
    if (f->is_exact_memory) {
        char packed[32], file[32], start[32];
        printf(
            "  mreq        counted by the CPU driver for this machine: weights packed %s, used in "
            "the file %s, at most %s while packing; context is the program and generated code\n",
            weft_tool_bytes(f->memory.packed_bytes, packed),
            weft_tool_bytes(f->memory.file_bytes, file),
            weft_tool_bytes(f->memory.start_bytes, start));
    } else {
        puts("  mreq        weights once each; arena as the planner packs intermediate values and "
             "outputs; workspace of the GEMM library; context of a process that loads it");
    }
    for (size_t i = 0; i < n; i++)
        if (i == 0 || !is_alike(&f->e.kernel[top[i - 1]], &f->e.kernel[top[i]]))
            explain_kernel(f, top[i]);
}

/* -- All -------------------------------------------------------------------------------------- */

void weft_tool_print_finding(const weft_tool_estimate *o, const weft_tool_finding *f)
{
    print_total(f);
    if (!f->m)
        return;
    print_kernels(o, f);
    if (o->explain)
        explain(f);
}

/* Widens a column for a text, up to the width that leaves a readable table. */
static int widen(int width, const char *text)
{
    size_t len = strlen(text);
    if (len > NAME_WIDTH)
        len = NAME_WIDTH;
    return (int)len > width ? (int)len : width;
}

void weft_tool_print_comparison(const weft_tool_finding *f, size_t n)
{
    char where[80], time[32], mreq[32];
    const char *name = NULL;
    int names = (int)strlen("model"), devices = (int)strlen("device");
    for (size_t i = 0; i < n; i++) {
        names = widen(names, f[i].name);
        devices = widen(devices, where_of(f[i].slice, where, sizeof where));
    }
    printf("%-*s %-*s %7s %12s %6s %12s %7s %10s %5s %10s %10s\n", names, "model", devices,
           "device", "batch", "time", "+-", "inf/s", "creq", "mreq", "fits", "J/inf", "$/million");
    for (size_t i = 0; i < n; i++, f++) {
        char price[32] = "-";
        if (f->price_per_million > 0)
            snprintf(price, sizeof price, "%.4g", f->price_per_million);
        bool same = name && strcmp(name, f->name) == 0;
        name = f->name;
        printf("%-*s %-*s %7lld %12s %4.0f %% %12.4g %5.1f %% %10s %5s %10.4g %10s\n", names,
               same ? "" : name, devices, where_of(f->slice, where, sizeof where),
               (long long)f->batch, time_text(f->cost.time_us, time, sizeof time),
               f->cost.expected_error * 100, f->throughput_per_s, f->cost.creq * 100,
               weft_tool_bytes(f->cost.mreq_bytes, mreq),
               !f->fits_known ? "?"
               : f->fits      ? "yes"
                              : "no",
               f->cost.energy_j / (double)f->batch, price);
    }
}
