/* NVIDIA GPUs. Each node becomes commands (kernels of ours, GEMMs of cuBLASLt, copies) by the
 * emitter that its row in ops/ops.def names; the kernels are compiled to machine code for each
 * architecture of the target, and to PTX of the newest one, for architectures that come later.
 *
 * Launches are recorded into a graph before they run, so a node whose shape depends on data is
 * refused here. Branches and loops have no commands: the host runs their bodies, programs of their
 * own, between two graphs. Views need no commands either. Slices and concatenations get commands
 * that the runtime skips where the result and the operand share memory. */
#include "codegen/cuda/gen_int.h"

#include "base/sm_limits.h"
#include "ops/place.h"

#include <string.h>

/* By column CUDA of ops.def. */
static const weft_cuda_emit_fn emitters[WEFT_CUDA_KIND_COUNT] = {
#define K(kind, name) [WEFT_CUDA_KIND_##kind] = weft_cuda_emit_##name,
#include "ops/cuda_kinds.def"
#undef K
};

static bool supports(const weft_module *m, weft_node n, const char **why)
{
    const weft_op *op = weft_node_opdef(m, n);
    if (op->traits & WEFT_T_GRAPH_ONLY) {
        *why = "the operator should have been lowered before this stage";
        return false;
    }
    if (!(op->traits & (WEFT_T_VIEW | WEFT_T_BODY)) && !emitters[op->cuda]) {
        *why = "no CUDA kernel for the operator; compile with --target cpu";
        return false;
    }
    return true;
}

/* -- Targets ----------------------------------------------------------------------------------- */

static weft_err refuse_target(weft_device_code *code, const char *name, size_t len)
{
    weft_buf list = {0};
    for (size_t i = 0; weft_sm_limits_at(i); i++)
        if (weft_sm_limits_at(i)->compiled)
            weft_buf_printf(&list, " sm_%u", weft_sm_limits_at(i)->capability);
    weft_err err = weft_diag_error(code->diag, WEFT_ERR_INPUT, (weft_where){0},
                                   "no GPU architecture is called \"%.*s\"; there are%s", (int)len,
                                   name, list.at ? list.at : "");
    weft_buf_finish(&list);
    return err;
}

/* Whether a target such as "sm_80,sm_90" names the architecture. */
static bool is_wanted(const char *target, const weft_sm_limits *sm)
{
    for (const char *s = target;; s++) {
        size_t len = strcspn(s, ",");
        if (weft_sm_limits_named(s, len) == sm)
            return true;
        s += len;
        if (!*s)
            return false;
    }
}

/* Splits a target such as "sm_80,sm_90" into distinct names, ordered by compute capability. */
static weft_err read_target(weft_device_code *code, weft_cuda *cu)
{
    const char *target = code->options->target ? code->options->target : "sm_80,sm_90";
    uint32_t n = 0;
    for (const char *s = target;; s++) {
        size_t len = strcspn(s, ",");
        const weft_sm_limits *sm = weft_sm_limits_named(s, len);
        if (!sm || !sm->compiled)
            return refuse_target(code, s, len);
        n++;
        s += len;
        if (!*s)
            break;
    }
    const char **arch = weft_arena_array(code->arena, n, sizeof *arch);
    for (size_t i = 0; weft_sm_limits_at(i); i++)
        if (is_wanted(target, weft_sm_limits_at(i)))
            arch[cu->n_arch++] =
                weft_arena_printf(code->arena, "sm_%u", weft_sm_limits_at(i)->capability);
    cu->arch = arch;
    return WEFT_ERR_OK;
}

static weft_err start(weft_device_code *code)
{
    weft_cuda *cu = weft_cuda__start(code);
    code->state = cu;
    return read_target(code, cu);
}

/* -- Launches ---------------------------------------------------------------------------------- */

static bool has_data_dim(weft_module *m, const weft_ttype *t)
{
    for (uint32_t k = 0; k < t->rank; k++)
        if (weft_dim_is_data(weft_module_dims(m), t->dim[k]))
            return true;
    return false;
}

/* Refuses types that no emitter supports. */
static weft_err check_value(weft_cuda *cu, const char *what, uint32_t i, const weft_ttype *t)
{
    if (has_data_dim(cu->code->m, t))
        return weft_cuda__unsup(cu,
                                "only running tells the shape of %s %u; launches on a GPU are "
                                "planned before: fix sizes by `dims:` or `values:` of a set file, "
                                "or compile with --target cpu",
                                what, i);
    if (weft_dtype_is_narrow((weft_dtype)t->dtype))
        return weft_cuda__unsup(cu,
                                "%s %u is of type %s, which GPUs do not run; cast it on the CPU",
                                what, i, weft_dtype_name((weft_dtype)t->dtype));
    if (t->layout != WEFT_LAYOUT_PLAIN && t->layout != WEFT_LAYOUT_NHWC)
        return weft_cuda__unsup(cu, "%s %u has layout %s, kernels take plain ones and nhwc", what,
                                i, weft_layout_name((weft_layout)t->layout));
    return WEFT_ERR_OK;
}

/* An operand that is broadcast to channels innermost is one of them, or the same memory. */
static weft_err check_spread(weft_cuda *cu, weft_node n, uint32_t i, const weft_ttype *t)
{
    weft_module *m = cu->code->m;
    const weft_op *op = weft_node_opdef(m, n);
    const weft_ttype *y = weft_val_ttype(m, weft_node_out(m, n, 0));
    bool is_broadcast =
        op->id == WEFT_OP_EW ||
        (op->traits & WEFT_T_EPILOGUE && i >= weft_epilogue_first(op->id, weft_node_attrs(m, n)));
    if (!is_broadcast || y->layout != WEFT_LAYOUT_NHWC || t->layout == WEFT_LAYOUT_NHWC ||
        weft_place_is_one(t->dim, t->rank, y->rank))
        return WEFT_ERR_OK;
    return weft_cuda__unsup(cu, "operand %u is plain, and the result has layout nhwc", i);
}

static weft_err check_node(weft_cuda *cu, weft_node n)
{
    weft_module *m = cu->code->m;
    cu->node = n;
    for (uint32_t i = 0; i < weft_node_in_count(m, n); i++) {
        weft_val v = weft_node_in(m, n, i);
        if (!v.i)
            continue;
        WEFT_TRY(check_value(cu, "operand", i, weft_val_ttype(m, v)));
        WEFT_TRY(check_spread(cu, n, i, weft_val_ttype(m, v)));
    }
    for (uint32_t i = 0; i < weft_node_out_count(m, n); i++)
        WEFT_TRY(check_value(cu, "result", i, weft_val_ttype(m, weft_node_out(m, n, i))));
    weft_attrs attrs = weft_node_attrs(m, n);
    for (uint32_t i = 0; i < attrs.n; i++)
        for (uint32_t k = 0; attrs.at[i].kind == WEFT_KIND_DIMS && k < attrs.at[i].n; k++)
            if (weft_dim_is_data(weft_module_dims(m), attrs.at[i].u.dims[k]))
                return weft_cuda__unsup(
                    cu,
                    "only running tells `%s`; launches on a GPU are planned before: fix sizes by "
                    "`dims:` or `values:` of a set file, or compile with --target cpu",
                    weft_attr_key_name((weft_attr_key)attrs.at[i].key));
    return WEFT_ERR_OK;
}

static weft_err emit(weft_device_code *code, weft_node n, weft_bundle_launch *launch)
{
    weft_cuda *cu = code->state;
    WEFT_TRY(check_node(cu, n));
    weft_cuda_emit_fn fn = emitters[weft_node_opdef(code->m, n)->cuda];
    return fn ? weft_cuda__emit_node(cu, n, fn, launch) : WEFT_ERR_OK;
}

/* -- The bundle -------------------------------------------------------------------------------- */

static weft_err finish(weft_device_code *code, weft_bundle *bundle)
{
    weft_cuda *cu = code->state;
    weft_bundle_image *image = NULL;
    weft_bundle_resource *resource = NULL;
    uint32_t n_kernel = cu->made.len;
    WEFT_TRY(weft_cuda__compile(weft_cuda__sources(cu), n_kernel, cu->arch, cu->n_arch,
                                code->options, code->arena, code->diag, &image, &bundle->n_image,
                                &resource));
    weft_bundle_kernel *kernel = weft_arena_array(code->arena, n_kernel, sizeof *kernel);
    for (uint32_t i = 0; i < n_kernel; i++)
        kernel[i] = (weft_bundle_kernel){.name = cu->made.at[i].name,
                                         .module = i,
                                         .threads = cu->made.at[i].threads,
                                         .shared_bytes = cu->made.at[i].shared_bytes,
                                         .resource = resource + (size_t)i * cu->n_arch};
    weft_buf target = {0};
    for (uint32_t i = 0; i < cu->n_arch; i++)
        weft_buf_printf(&target, "%s%s", i ? "," : "", cu->arch[i]);
    bundle->target = weft_buf_keep(&target, code->arena);
    bundle->arch = cu->arch;
    bundle->n_arch = cu->n_arch;
    bundle->image = image;
    bundle->kernel = kernel;
    bundle->n_kernel = n_kernel;
    return WEFT_ERR_OK;
}

static void stop(weft_device_code *code)
{
    if (code->state)
        weft_cuda__stop(code->state);
}

const weft_backend weft_backend_cuda = {
    .name = "cuda",
    .brief = "NVIDIA GPUs",
    .supports = supports,
    .start = start,
    .emit = emit,
    .finish = finish,
    .stop = stop,
};
