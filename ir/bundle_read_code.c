/* The part of the metadata that describes how launches run on a GPU. Untrusted input: images must
 * be in the writer's order; commands must refer to existing kernels, operands and results; all uses
 * of a kernel must have arguments of the same number and classes. The machine code itself is not
 * checked: running a bundle requires as much trust as running a program. The runtime, which knows
 * the sizes, checks that addresses stay inside their values. */
#include "ir/bundle_read_int.h"

#include "base/num.h"

#include <math.h>
#include <string.h>

static bool is_digits(const char *s)
{
    return *s >= '1' && *s <= '9' && strlen(s) < 8 && s[strspn(s, "0123456789")] == 0;
}

static bool is_identifier(const char *s)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    static const char all[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    return strspn(s, letters) > 0 && s[strspn(s, all)] == 0;
}

/* -- Architectures and images ------------------------------------------------------------------ */

/* The target names the architectures: "sm_80,sm_90". */
static bool is_target(const char *target, const char *const *arch, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        size_t len = strlen(arch[i]);
        if (strncmp(target, arch[i], len) != 0 || target[len] != (i + 1 < n ? ',' : 0))
            return false;
        target += len + 1;
    }
    return true;
}

static weft_err read_archs(weft_bundle__reader *r)
{
    const Weft__Bundle__Bundle *m = r->msg;
    if (m->n_arch > WEFT_BUNDLE_ARCHS_MAX)
        return weft_bundle__refuse(r, "%zu architectures, at most %d", m->n_arch,
                                   WEFT_BUNDLE_ARCHS_MAX);
    const char **arch = weft_arena_array(r->arena, m->n_arch, sizeof *arch);
    for (size_t i = 0; i < m->n_arch; i++) {
        bool ok = strncmp(m->arch[i], "sm_", 3) == 0 && is_digits(m->arch[i] + 3);
        for (size_t k = 0; ok && k < i; k++)
            ok = strcmp(m->arch[k], m->arch[i]) != 0;
        if (!ok)
            return weft_bundle__refuse(r, "architecture \"%s\" is unknown or given twice",
                                       m->arch[i]);
        arch[i] = weft_arena_strdup(r->arena, m->arch[i]);
    }
    r->b->arch = arch;
    r->b->n_arch = (uint32_t)m->n_arch;
    if (m->n_arch > 0 && !is_target(m->target, arch, r->b->n_arch))
        return weft_bundle__refuse(r, "target \"%s\" is not the architectures", m->target);
    return WEFT_ERR_OK;
}

/* Each module has an image for each architecture, then PTX for later architectures. */
static bool is_image_arch(const weft_bundle *b, size_t i, const Weft__Bundle__Image *m)
{
    size_t per = (size_t)b->n_arch + 1, k = i % per;
    if (m->module != i / per)
        return false;
    if (k < b->n_arch)
        return strcmp(m->arch, b->arch[k]) == 0;
    return strncmp(m->arch, "compute_", 8) == 0 &&
           strcmp(m->arch + 8, b->arch[b->n_arch - 1] + 3) == 0;
}

static bool is_zero(const uint8_t *at, uint64_t len)
{
    for (uint64_t i = 0; i < len; i++)
        if (at[i])
            return false;
    return true;
}

static weft_err read_image(weft_bundle__reader *r, size_t i, const weft_file *section, uint64_t *at,
                           weft_bundle_image *image)
{
    const Weft__Bundle__Image *m = r->msg->image[i];
    uint64_t left = section->len - *at;
    if (!is_image_arch(r->b, i, m))
        return weft_bundle__refuse(r, "image %zu is of module %u for \"%s\"", i, m->module,
                                   m->arch);
    if (m->bytes == 0 || m->bytes > left || weft_align_up(m->bytes, WEFT_BUNDLE_ALIGN) > left)
        return weft_bundle__refuse(r, "image %zu has %llu bytes, %llu are left in its section", i,
                                   (unsigned long long)m->bytes, (unsigned long long)left);
    *image = (weft_bundle_image){weft_arena_strdup(r->arena, m->arch), m->module, section->at + *at,
                                 m->bytes, m->checksum};
    uint64_t end = weft_align_up(m->bytes, WEFT_BUNDLE_ALIGN);
    if (weft_hash64(image->data, (size_t)m->bytes, 0) != m->checksum ||
        !is_zero(image->data + m->bytes, end - m->bytes))
        return weft_bundle__refuse(r, "the code of module %u for %s does not have its checksum",
                                   m->module, m->arch);
    *at += end;
    return WEFT_ERR_OK;
}

static weft_err read_images(weft_bundle__reader *r, const weft_file *section)
{
    size_t n = r->msg->n_image;
    uint64_t at = 0;
    weft_bundle_image *image = weft_arena_array(r->arena, n, sizeof *image);
    if (n % ((size_t)r->b->n_arch + 1) != 0)
        return weft_bundle__refuse(r, "%zu images for %u architectures", n, r->b->n_arch);
    for (size_t i = 0; i < n; i++)
        WEFT_TRY(read_image(r, i, section, &at, &image[i]));
    if (at != section->len)
        return weft_bundle__refuse(r, "the images have %llu bytes, their section %llu",
                                   (unsigned long long)at, (unsigned long long)section->len);
    r->b->image = image;
    r->b->n_image = (uint32_t)n;
    return WEFT_ERR_OK;
}

/* -- Kernels ----------------------------------------------------------------------------------- */

static weft_err read_kernel(weft_bundle__reader *r, const Weft__Bundle__Kernel *m,
                            weft_names *names, weft_bundle_kernel *k)
{
    uint32_t n_arch = r->b->n_arch, n_module = r->b->n_image / (n_arch + 1);
    size_t len = strlen(m->name);
    if (!is_identifier(m->name) || weft_names_find(names, m->name, len))
        return weft_bundle__refuse(r, "kernel \"%s\" has no name of its own", m->name);
    weft_names_add(names, m->name, len);
    if (m->module >= n_module || m->threads == 0 || m->threads > WEFT_BUNDLE_THREADS_MAX ||
        m->shared_bytes > WEFT_BUNDLE_SHARED_MAX_BYTES || m->n_resource != 3 * (size_t)n_arch)
        return weft_bundle__refuse(
            r, "kernel %s: module %u of %u, %u threads, %u bytes of shared memory, %zu resources",
            m->name, m->module, n_module, m->threads, m->shared_bytes, m->n_resource);
    weft_bundle_resource *resource = weft_arena_array(r->arena, n_arch, sizeof *resource);
    for (uint32_t i = 0; i < n_arch; i++)
        resource[i] = (weft_bundle_resource){m->resource[3 * i], m->resource[3 * i + 1],
                                             m->resource[3 * i + 2]};
    *k = (weft_bundle_kernel){weft_arena_strdup(r->arena, m->name), m->module, m->threads,
                              m->shared_bytes, resource};
    return WEFT_ERR_OK;
}

/* -- Algorithms -------------------------------------------------------------------------------- */

static bool read_algo(const weft_bundle__reader *r, const Weft__Bundle__Algo *m,
                      weft_bundle_algo *out)
{
    weft_gemm_key *p = &out->gemm;
    if (m->n_dim != sizeof p->dim / sizeof p->dim[0] ||
        m->n_align != sizeof p->align / sizeof p->align[0] || m->algo.len != sizeof out->bytes ||
        m->dtype >= r->msg->n_dtype || m->act >= WEFT_GEMM_ACTS || m->flags >= WEFT_GEMM_FLAGS ||
        !isfinite(m->time_us) || m->time_us < 0)
        return false;
    *out = (weft_bundle_algo){.time_us = m->time_us};
    memcpy(out->bytes, m->algo.data, sizeof out->bytes);
    memcpy(p->dim, m->dim, sizeof p->dim);
    memcpy(p->align, m->align, sizeof p->align);
    p->dtype = r->dtype[m->dtype];
    p->act = m->act;
    p->flags = m->flags;
    return true;
}

static weft_err read_tuning(weft_bundle__reader *r, const Weft__Bundle__Tuning *m,
                            weft_bundle_tuning *out)
{
    weft_bundle_algo *algo = weft_arena_array(r->arena, m->n_algo, sizeof *algo);
    if (!*m->device || m->sms == 0)
        return weft_bundle__refuse(r, "algorithms of GEMMs in a bundle without code for GPUs");
    for (size_t i = 0; i < m->n_algo; i++)
        if (!read_algo(r, m->algo[i], &algo[i]))
            return weft_bundle__refuse(r, "algorithm %zu for %s is wrong", i, m->device);
    *out = (weft_bundle_tuning){weft_arena_strdup(r->arena, m->device), m->sms, m->version, algo,
                                (uint32_t)m->n_algo};
    return WEFT_ERR_OK;
}

static weft_err read_tunings(weft_bundle__reader *r)
{
    const Weft__Bundle__Bundle *m = r->msg;
    if (m->n_tuning > WEFT_BUNDLE_TUNINGS_MAX)
        return weft_bundle__refuse(r, "algorithms for %zu GPUs, at most %d", m->n_tuning,
                                   WEFT_BUNDLE_TUNINGS_MAX);
    weft_bundle_tuning *tuning = weft_arena_array(r->arena, m->n_tuning, sizeof *tuning);
    for (size_t i = 0; i < m->n_tuning; i++) {
        WEFT_TRY(read_tuning(r, m->tuning[i], &tuning[i]));
        for (size_t k = 0; k < i; k++)
            if (weft_tuning_is_for(&tuning[k], tuning[i].device, tuning[i].sms, tuning[i].version))
                return weft_bundle__refuse(r, "algorithms for %s are given twice",
                                           tuning[i].device);
    }
    r->b->tuning = tuning;
    r->b->n_tuning = (uint32_t)m->n_tuning;
    return WEFT_ERR_OK;
}

/* -- Plans of convolutions --------------------------------------------------------------------- */

static bool read_conv_plan(const weft_bundle__reader *r, const Weft__Bundle__ConvPlan *m,
                           weft_bundle_conv_plan *out)
{
    weft_dtype dtype = m->dtype < r->msg->n_dtype ? r->dtype[m->dtype] : WEFT_DTYPE_NONE;
    if (m->n_dim != WEFT_CONV_DIMS || !weft_conv_is_sound(dtype, m->flags) || !*m->json)
        return false;
    out->conv = (weft_conv_key){.dtype = dtype, .flags = m->flags};
    memcpy(out->conv.dim, m->dim, sizeof out->conv.dim);
    out->json = weft_arena_strdup(r->arena, m->json);
    return true;
}

static weft_err read_conv_plans(weft_bundle__reader *r)
{
    const Weft__Bundle__Bundle *m = r->msg;
    weft_bundle_conv_plans *plans = weft_arena_array(r->arena, m->n_conv_plans, sizeof *plans);
    for (size_t i = 0; i < m->n_conv_plans; i++) {
        const Weft__Bundle__ConvPlans *from = m->conv_plans[i];
        weft_bundle_conv_plan *plan = weft_arena_array(r->arena, from->n_plan, sizeof *plan);
        if (from->arch >= m->n_arch || (i > 0 && from->arch <= plans[i - 1].arch) || !*from->device)
            return weft_bundle__refuse(r, "plans of convolutions for architecture %u of %zu",
                                       from->arch, m->n_arch);
        for (size_t k = 0; k < from->n_plan; k++)
            if (!read_conv_plan(r, from->plan[k], &plan[k]))
                return weft_bundle__refuse(r, "plan %zu of convolutions for %s is wrong", k,
                                           from->device);
        plans[i] = (weft_bundle_conv_plans){from->arch,
                                            weft_arena_strdup(r->arena, from->device),
                                            from->version,
                                            plan,
                                            (uint32_t)from->n_plan,
                                            from->none};
    }
    r->b->conv_plans = plans;
    r->b->n_conv_plans = (uint32_t)m->n_conv_plans;
    return WEFT_ERR_OK;
}

weft_err weft_bundle__read_code(weft_bundle__reader *r, const weft_file *section)
{
    const Weft__Bundle__Bundle *m = r->msg;
    weft_names *names = weft_names_create(r->scratch);
    WEFT_TRY(read_archs(r));
    if ((section != NULL) != (m->n_arch > 0) ||
        (!section && (m->n_image || m->n_kernel || m->n_tuning || m->n_conv_plans)))
        return weft_bundle__refuse(r, "code and architectures do not belong together");
    if (!section)
        return WEFT_ERR_OK;
    WEFT_TRY(read_images(r, section));
    weft_bundle_kernel *kernel = weft_arena_array(r->arena, m->n_kernel, sizeof *kernel);
    for (size_t i = 0; i < m->n_kernel; i++)
        WEFT_TRY(read_kernel(r, m->kernel[i], names, &kernel[i]));
    r->b->kernel = kernel;
    r->b->n_kernel = (uint32_t)m->n_kernel;
    r->signature = weft_arena_array(r->scratch, m->n_kernel, sizeof *r->signature);
    WEFT_TRY(read_tunings(r));
    return read_conv_plans(r);
}

/* -- Commands ---------------------------------------------------------------------------------- */

typedef struct command_reader {
    weft_bundle__reader *r;
    const weft_bundle_launch *l;
    size_t i; /* the command */
} command_reader;

static weft_err refuse_command(const command_reader *s, const char *what)
{
    return weft_bundle__refuse(s->r, "%s: command %zu has a wrong %s", weft_op_get(s->l->op)->name,
                               s->i, what);
}

/* The dim must not be a negative constant, nor depend on data. */
static bool read_dim(const command_reader *s, int64_t code, weft_dim *out)
{
    return weft_bundle__get_dim(s->r, code, out) && (!weft_dim_is_const(*out) || *out >= 0) &&
           !weft_dim_is_data(s->r->p->dims, *out);
}

static float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static bool read_arg(const command_reader *s, const Weft__Bundle__Arg *m, weft_bundle_arg *arg)
{
    weft_dim dim;
    if (!read_dim(s, m->dim, &dim))
        return false;
    switch (m->kind) {
    case WEFT_COMMAND_ARG_NONE:
        if (m->index || m->dim || m->f)
            return false;
        break;
    case WEFT_COMMAND_ARG_IN:
        if (m->index >= s->l->n_in || !s->l->in[m->index] || m->f)
            return false;
        break;
    case WEFT_COMMAND_ARG_OUT:
        if (m->index >= s->l->n_out || !s->l->out[m->index] || m->f)
            return false;
        break;
    case WEFT_COMMAND_ARG_SCRATCH:
    case WEFT_COMMAND_ARG_INT:
        if (m->index || m->f)
            return false;
        break;
    case WEFT_COMMAND_ARG_FLOAT:
        if (m->index || m->dim)
            return false;
        break;
    default:
        return false;
    }
    *arg = (weft_bundle_arg){(uint8_t)m->kind, m->index, dim, float_of(m->f)};
    return true;
}

static weft_err read_args(const command_reader *s, const Weft__Bundle__Command *m,
                          weft_bundle_arg **out)
{
    if (m->n_arg > WEFT_BUNDLE_PARAMS_MAX)
        return refuse_command(s, "number of arguments");
    weft_bundle_arg *arg = weft_arena_array(s->r->arena, m->n_arg, sizeof *arg);
    for (size_t i = 0; i < m->n_arg; i++)
        if (!read_arg(s, m->arg[i], &arg[i]))
            return refuse_command(s, "argument");
    *out = arg;
    return WEFT_ERR_OK;
}

static bool is_written(const weft_bundle_arg *a)
{
    return a->kind == WEFT_COMMAND_ARG_OUT || a->kind == WEFT_COMMAND_ARG_SCRATCH;
}

static bool is_address(const weft_bundle_arg *a)
{
    return a->kind == WEFT_COMMAND_ARG_IN || is_written(a);
}

static weft_err read_kernel_command(const command_reader *s, const Weft__Bundle__Command *m,
                                    const weft_bundle_arg *arg, weft_bundle_command *command)
{
    weft_bundle__reader *r = s->r;
    char classes[WEFT_BUNDLE_PARAMS_MAX + 1] = "";
    if (m->kernel >= r->b->n_kernel || m->bytes || m->gemm || m->conv)
        return refuse_command(s, "kernel");
    if (m->n_grid != 3)
        return refuse_command(s, "grid");
    for (uint32_t i = 0; i < 3; i++)
        if (!read_dim(s, m->grid[i], &command->grid[i]))
            return refuse_command(s, "grid");
    for (size_t i = 0; i < m->n_arg; i++) {
        if (arg[i].kind == WEFT_COMMAND_ARG_NONE)
            return refuse_command(s, "argument");
        classes[i] = is_address(&arg[i]) ? 'p' : arg[i].kind == WEFT_COMMAND_ARG_INT ? 'i' : 'f';
    }
    if (!r->signature[m->kernel])
        r->signature[m->kernel] = weft_arena_strdup(r->scratch, classes);
    if (strcmp(r->signature[m->kernel], classes) != 0)
        return weft_bundle__refuse(r, "kernel %s is used with arguments \"%s\" and \"%s\"",
                                   r->b->kernel[m->kernel].name, r->signature[m->kernel], classes);
    command->kernel = m->kernel;
    command->arg = arg;
    command->n_arg = (uint32_t)m->n_arg;
    return WEFT_ERR_OK;
}

static bool read_gemm_dims(const command_reader *s, const Weft__Bundle__Gemm *m,
                           weft_bundle_gemm *g)
{
    weft_dim *const dim[] = {&g->m,        &g->n,        &g->k,        &g->batch,
                             &g->lda,      &g->ldb,      &g->ldc,      &g->ldd,
                             &g->stride_a, &g->stride_b, &g->stride_c, &g->stride_d};
    if (m->n_dim != sizeof dim / sizeof dim[0])
        return false;
    for (size_t i = 0; i < m->n_dim; i++)
        if (!read_dim(s, m->dim[i], dim[i]))
            return false;
    return true;
}

static weft_err read_gemm_command(const command_reader *s, const Weft__Bundle__Command *m,
                                  const weft_bundle_arg *arg, weft_bundle_command *command)
{
    const Weft__Bundle__Gemm *from = m->gemm;
    weft_bundle_gemm *g = weft_arena_alloc(s->r->arena, sizeof *g);
    if (!from || m->kernel || m->bytes || m->n_grid || m->n_arg != 5 || m->conv)
        return refuse_command(s, "GEMM");
    g->dtype = from->dtype < s->r->msg->n_dtype ? s->r->dtype[from->dtype] : WEFT_DTYPE_NONE;
    g->act = (uint8_t)from->act;
    g->trans_a = from->flags & 1;
    g->trans_b = from->flags & 2;
    g->tf32 = from->flags & 4;
    g->alpha = float_of(from->alpha);
    g->beta = float_of(from->beta);
    g->a = arg[0];
    g->b = arg[1];
    g->c = arg[2];
    g->d = arg[3];
    g->bias = arg[4];
    bool is_half = g->dtype == WEFT_DTYPE_F16 || g->dtype == WEFT_DTYPE_BF16;
    bool ok = (is_half || g->dtype == WEFT_DTYPE_F32 || weft_gemm_is_bytes(g)) &&
              from->act < WEFT_GEMM_ACTS && from->flags < 8 && !(is_half && g->tf32) &&
              isfinite(g->alpha) && isfinite(g->beta) && read_gemm_dims(s, from, g);
    ok = ok && is_address(&g->a) && is_address(&g->b) && is_written(&g->d) &&
         (is_address(&g->c) || (g->c.kind == WEFT_COMMAND_ARG_NONE && g->beta == 0)) &&
         (is_address(&g->bias) || g->bias.kind == WEFT_COMMAND_ARG_NONE);
    command->gemm = g;
    return ok ? WEFT_ERR_OK : refuse_command(s, "GEMM");
}

static weft_err read_conv_command(const command_reader *s, const Weft__Bundle__Command *m,
                                  const weft_bundle_arg *arg, weft_bundle_command *command)
{
    const Weft__Bundle__Conv *from = m->conv;
    weft_bundle_conv *c = weft_arena_alloc(s->r->arena, sizeof *c);
    if (!from || m->kernel || m->bytes || m->n_grid || m->n_arg != 5 || m->gemm)
        return refuse_command(s, "convolution");
    c->dtype = from->dtype < s->r->msg->n_dtype ? s->r->dtype[from->dtype] : WEFT_DTYPE_NONE;
    c->flags = from->flags;
    c->x = arg[0];
    c->w = arg[1];
    c->y = arg[2];
    c->z = arg[3];
    c->bias = arg[4];
    bool ok = weft_conv_is_sound(c->dtype, c->flags) && from->n_dim == WEFT_CONV_DIMS &&
              is_address(&c->x) && is_written(&c->y) &&
              is_address(&c->w) == !(c->flags & WEFT_CONV_POOLS) &&
              (is_address(&c->w) || c->w.kind == WEFT_COMMAND_ARG_NONE) &&
              is_address(&c->z) == ((c->flags & WEFT_CONV_Z) != 0) &&
              is_address(&c->bias) == ((c->flags & WEFT_CONV_BIAS) != 0) &&
              (is_address(&c->z) || c->z.kind == WEFT_COMMAND_ARG_NONE) &&
              (is_address(&c->bias) || c->bias.kind == WEFT_COMMAND_ARG_NONE);
    for (size_t i = 0; ok && i < WEFT_CONV_DIMS; i++)
        ok = read_dim(s, from->dim[i], &c->dim[i]);
    command->conv = c;
    return ok ? WEFT_ERR_OK : refuse_command(s, "convolution");
}

static weft_err read_bytes_command(const command_reader *s, const Weft__Bundle__Command *m,
                                   const weft_bundle_arg *arg, weft_bundle_command *command)
{
    bool ok = m->n_arg == (m->kind == WEFT_COMMAND_COPY ? 2 : 1) && is_written(&arg[0]) &&
              (m->n_arg == 1 || is_address(&arg[1])) && !m->gemm && !m->conv && !m->n_grid &&
              !m->kernel && read_dim(s, m->bytes, &command->bytes);
    command->arg = arg;
    command->n_arg = (uint32_t)m->n_arg;
    return ok ? WEFT_ERR_OK : refuse_command(s, m->kind == WEFT_COMMAND_COPY ? "copy" : "fill");
}

weft_err weft_bundle__read_commands(weft_bundle__reader *r, const Weft__Bundle__Launch *m,
                                    weft_bundle_launch *launch)
{
    weft_bundle_command *command = weft_arena_array(r->arena, m->n_command, sizeof *command);
    command_reader s = {r, launch, 0};
    if (!read_dim(&s, m->scratch_bytes, &launch->scratch_bytes) ||
        ((m->n_command || m->scratch_bytes) && r->b->n_arch == 0))
        return weft_bundle__refuse(r, "%s: commands without code", weft_op_get(launch->op)->name);
    for (; s.i < m->n_command; s.i++) {
        const Weft__Bundle__Command *from = m->command[s.i];
        weft_bundle_command *to = &command[s.i];
        weft_bundle_arg *arg = NULL;
        to->kind = (uint8_t)from->kind;
        WEFT_TRY(read_args(&s, from, &arg));
        if (!weft_command_may_follow(from->kind, s.i > 0 ? to[-1].kind : WEFT_COMMAND_KINDS))
            return refuse_command(&s, "kernel that belongs to no GEMM or convolution");
        if (weft_command_is_kernel(from->kind))
            WEFT_TRY(read_kernel_command(&s, from, arg, to));
        else if (from->kind == WEFT_COMMAND_GEMM)
            WEFT_TRY(read_gemm_command(&s, from, arg, to));
        else if (from->kind == WEFT_COMMAND_CONV)
            WEFT_TRY(read_conv_command(&s, from, arg, to));
        else if (from->kind == WEFT_COMMAND_COPY || from->kind == WEFT_COMMAND_FILL)
            WEFT_TRY(read_bytes_command(&s, from, arg, to));
        else
            return refuse_command(&s, "kind");
    }
    launch->command = command;
    launch->n_command = (uint32_t)m->n_command;
    return WEFT_ERR_OK;
}
