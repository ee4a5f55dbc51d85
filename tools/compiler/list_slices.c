/* weft list slices: the CPUs and GPUs of this machine and how they can be divided, then the
 * table of MIG profiles. */
#include "tools/compiler/list_slices.h"

#include "runtime/machine/machine.h"
#include "tools/common/tools.h"

#include <inttypes.h>
#include <jansson.h>

static const double gib = 0x1p30;

/* Number of green contexts of the smallest size that a GPU or MIG instance can be divided into. */
static uint32_t count_parts(const weft_machine_gpu *gpu, uint32_t sms)
{
    return gpu->part_min ? sms / gpu->part_min : 0;
}

static const char *mig_mode(const weft_machine_gpu *gpu)
{
    if (!gpu->mig_capable)
        return "not supported";
    if (gpu->mig_on == gpu->mig_pending)
        return gpu->mig_on ? "on" : "off";
    return gpu->mig_on ? "on, off after the next reset" : "off, on after the next reset";
}

/* -- Text ----------------------------------------------------------------------------------- */

static void print_starts(uint32_t starts)
{
    const char *sep = "starts ";
    for (uint32_t i = 0; i < 32; i++)
        if (starts & 1u << i) {
            printf("%s%" PRIu32, sep, i);
            sep = ",";
        }
    puts(starts ? "" : "starts not told (needs root)");
}

static void print_mig(const weft_machine_gpu *gpu)
{
    printf("  MIG: %s%s\n", mig_mode(gpu), gpu->mig_on && !gpu->n_mig ? ", no instances" : "");
    for (uint32_t i = 0; i < gpu->n_mig; i++) {
        const weft_machine_mig *m = &gpu->mig[i];
        printf("    has   %-12s %s  %3u SMs  %6.2f GiB, %.2f in use", m->profile, m->uuid, m->sms,
               (double)m->mem_bytes / gib, (double)m->mem_used_bytes / gib);
        if (m->start >= 0)
            printf(", at slot %d", m->start);
        putchar('\n');
    }
    for (uint32_t i = 0; i < gpu->n_profile; i++) {
        const weft_machine_profile *p = &gpu->profile[i];
        printf("    could %-12s at most %u  %3u SMs  %6.2f GiB  ", p->name, p->count, p->sms,
               (double)p->mem_bytes / gib);
        print_starts(p->starts);
    }
}

static void print_parts(const weft_machine *machine, const weft_machine_gpu *gpu)
{
    if (gpu->part_min && gpu->sms)
        printf("  green contexts: up to %u partitions of %u SMs (at least %u, in steps of %u)\n",
               count_parts(gpu, gpu->sms), gpu->part_min, gpu->part_min, gpu->part_step);
    else
        puts("  green contexts: none");
    if (gpu->prohibited)
        puts("  MPS shares: none, the compute mode prohibits contexts");
    else if (!machine->mps_control[0])
        puts("  MPS shares: none, there is no nvidia-cuda-mps-control in PATH");
    else
        printf("  MPS shares: 1%% to 100%%%s\n", gpu->mig_on ? " of each instance" : "");
}

static void print_gpu(const weft_machine *machine, const weft_machine_gpu *gpu, weft_arena *arena)
{
    const char *const *line;
    size_t n;
    if (gpu->why_not[0]) {
        printf("GPU %u: cannot be read: %s\n", gpu->index, gpu->why_not);
        return;
    }
    printf("GPU %u: %s (%s)  %s", gpu->index, gpu->name, gpu->type ? gpu->type->name : "unknown",
           gpu->uuid);
    if (gpu->cc_major)
        printf("  sm_%d%d", gpu->cc_major, gpu->cc_minor);
    if (gpu->sms)
        printf("  %u SMs", gpu->sms);
    printf("  %.2f GiB, %.2f in use", (double)gpu->mem_bytes / gib,
           (double)gpu->mem_used_bytes / gib);
    if (gpu->power_limit_w > 0)
        printf("  %.0f of %.0f W", gpu->power_w, gpu->power_limit_w);
    if (gpu->busy >= 0)
        printf("  %.0f%% busy", gpu->busy * 100);
    putchar('\n');
    print_mig(gpu);
    print_parts(machine, gpu);
    weft_machine_differences(gpu, arena, &line, &n);
    for (size_t i = 0; i < n; i++)
        printf("  differs from our table: %s\n", line[i]);
}

static void print_table(void)
{
    const weft_device_type *type;
    puts("\nMIG profiles that plans know:");
    for (size_t i = 0; (type = weft_device_type_at(i)); i++)
        for (size_t k = 0; k < type->n_mig; k++) {
            const weft_mig_profile *p = &type->mig[k];
            char size[32];
            printf("%-12s %-12s %u slots  %5.1f %% of SMs  %s\n", type->name, p->name, p->slots,
                   p->share * 100, weft_tool_bytes(p->mem_bytes, size));
        }
}

static void print_text(const weft_machine *machine, weft_arena *arena)
{
    printf("CPUs: %u\n", machine->n_cpu);
    if (machine->why_no_gpu[0])
        printf("GPUs: none (%s)\n", machine->why_no_gpu);
    else
        printf("GPUs: %u, driver %s, CUDA %d.%d, MPS %s\n", machine->n_gpu, machine->driver,
               machine->cuda_version / 1000, machine->cuda_version % 1000 / 10,
               machine->mps_control[0] ? machine->mps_control : "not installed");
    for (uint32_t i = 0; i < machine->n_gpu; i++)
        print_gpu(machine, &machine->gpu[i], arena);
    print_table();
}

/* -- JSON ----------------------------------------------------------------------------------- */

static json_t *json_told(double x, bool told)
{
    return told ? json_real(x) : json_null();
}

static json_t *json_starts(uint32_t starts)
{
    json_t *out = starts ? json_array() : json_null();
    for (uint32_t i = 0; i < 32; i++)
        if (starts & 1u << i)
            json_array_append_new(out, json_integer(i));
    return out;
}

static json_t *json_instances(const weft_machine_gpu *gpu)
{
    json_t *out = json_array();
    for (uint32_t i = 0; i < gpu->n_mig; i++) {
        const weft_machine_mig *m = &gpu->mig[i];
        json_t *row = json_pack(
            "{s:s, s:s, s:i, s:i, s:i, s:I, s:I}", "uuid", m->uuid, "profile", m->profile,
            "gpu_instance", (int)m->gi, "compute_instance", (int)m->ci, "sms", (int)m->sms,
            "mem_bytes", (json_int_t)m->mem_bytes, "mem_used_bytes", (json_int_t)m->mem_used_bytes);
        json_object_set_new(row, "start", m->start >= 0 ? json_integer(m->start) : json_null());
        json_array_append_new(out, row);
    }
    return out;
}

static json_t *json_profiles(const weft_machine_gpu *gpu)
{
    json_t *out = json_array();
    for (uint32_t i = 0; i < gpu->n_profile; i++) {
        const weft_machine_profile *p = &gpu->profile[i];
        json_t *row =
            json_pack("{s:s, s:i, s:i, s:i, s:i, s:I, s:o}", "name", p->name, "id", (int)p->id,
                      "count", (int)p->count, "gpcs", (int)p->gpcs, "sms", (int)p->sms, "mem_bytes",
                      (json_int_t)p->mem_bytes, "starts", json_starts(p->starts));
        json_object_set_new(row, "slots", p->slots ? json_integer(p->slots) : json_null());
        json_array_append_new(out, row);
    }
    return out;
}

static json_t *json_differences(const weft_machine_gpu *gpu, weft_arena *arena)
{
    const char *const *line;
    size_t n;
    json_t *out = json_array();
    weft_machine_differences(gpu, arena, &line, &n);
    for (size_t i = 0; i < n; i++)
        json_array_append_new(out, json_string(line[i]));
    return out;
}

static json_t *json_gpu(const weft_machine *machine, const weft_machine_gpu *gpu, weft_arena *arena)
{
    json_t *out = json_pack("{s:i}", "index", (int)gpu->index);
    if (gpu->why_not[0]) {
        json_object_set_new(out, "error", json_string(gpu->why_not));
        return out;
    }
    json_object_update_new(
        out, json_pack("{s:s, s:s, s:s?, s:I, s:I, s:b, s:b, s:b}", "name", gpu->name, "uuid",
                       gpu->uuid, "type", gpu->type ? gpu->type->name : NULL, "mem_bytes",
                       (json_int_t)gpu->mem_bytes, "mem_used_bytes",
                       (json_int_t)gpu->mem_used_bytes, "mig_capable", gpu->mig_capable, "mig",
                       gpu->mig_on, "mig_after_reset", gpu->mig_pending));
    json_object_update_new(
        out,
        json_pack("{s:o, s:o, s:o, s:o, s:b}", "cc",
                  gpu->cc_major ? json_integer(gpu->cc_major * 10 + gpu->cc_minor) : json_null(),
                  "sms", gpu->sms ? json_integer(gpu->sms) : json_null(), "power_w",
                  json_told(gpu->power_w, gpu->power_w > 0), "busy",
                  json_told(gpu->busy, gpu->busy >= 0), "activity_counters", gpu->gpm));
    json_object_set_new(out, "instances", json_instances(gpu));
    json_object_set_new(out, "profiles", json_profiles(gpu));
    json_object_set_new(out, "green_contexts",
                        json_pack("{s:i, s:i, s:i}", "min_sms", (int)gpu->part_min, "step_sms",
                                  (int)gpu->part_step, "count", (int)count_parts(gpu, gpu->sms)));
    json_object_set_new(out, "mps", json_boolean(machine->mps_control[0] && !gpu->prohibited));
    json_object_set_new(out, "differences", json_differences(gpu, arena));
    return out;
}

static json_t *json_table(void)
{
    const weft_device_type *type;
    json_t *out = json_array();
    for (size_t i = 0; (type = weft_device_type_at(i)); i++)
        for (size_t k = 0; k < type->n_mig; k++) {
            const weft_mig_profile *p = &type->mig[k];
            json_array_append_new(out, json_pack("{s:s, s:s, s:i, s:f, s:I, s:i, s:o}", "gpu",
                                                 type->name, "name", p->name, "slots",
                                                 (int)p->slots, "share", p->share, "mem_bytes",
                                                 (json_int_t)p->mem_bytes, "sms", (int)p->sms,
                                                 "starts", json_starts(p->starts)));
        }
    return out;
}

static weft_err print_json(const weft_machine *machine, weft_arena *arena)
{
    json_t *cpus = json_array(), *gpus = json_array();
    for (uint32_t i = 0; i < machine->n_cpu; i++)
        json_array_append_new(cpus, json_integer(machine->cpu[i]));
    for (uint32_t i = 0; i < machine->n_gpu; i++)
        json_array_append_new(gpus, json_gpu(machine, &machine->gpu[i], arena));
    json_t *out = json_pack(
        "{s:o, s:o, s:s?, s:s?, s:i, s:s?, s:o}", "cpus", cpus, "gpus", gpus, "no_gpus",
        machine->why_no_gpu[0] ? machine->why_no_gpu : NULL, "driver",
        machine->driver[0] ? machine->driver : NULL, "cuda", machine->cuda_version, "mps_control",
        machine->mps_control[0] ? machine->mps_control : NULL, "profiles", json_table());
    int failed = out ? json_dumpf(out, stdout, JSON_INDENT(1)) : -1;
    json_decref(out);
    putchar('\n');
    return failed ? WEFT_ERR_NOMEM : WEFT_ERR_OK;
}

int weft_list_slices(bool json)
{
    weft_machine machine;
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    weft_err err = diag && arena ? weft_machine_read(arena, diag, &machine) : WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK && json)
        err = print_json(&machine, arena);
    else if (err == WEFT_ERR_OK)
        print_text(&machine, arena);
    int code = weft_tool_report(diag, err);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return code;
}
