/* Kernels that call the reference implementation of an operator (weft_op_eval). They support every
 * operator with one, and are slow. Operands in a blocked layout are first copied to plain ones. */
#include "base/num.h"
#include "runtime/kernel/kernel.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

typedef struct ref_kernel {
    weft_eval_ctx cx;
    uint32_t n_in, n_out;
    weft_slot *slot;        /* n_in + n_out */
    uint64_t *plain_at;     /* offset + 1 of the plain copy in scratch memory; 0: none */
    weft_tensor *tensor;    /* n_in + n_out */
    const weft_tensor **in; /* n_in */
    weft_arena *arena;
} ref_kernel;

static void destroy_ref(void *state)
{
    ref_kernel *k = state;
    if (k->arena)
        weft_arena_destroy(k->arena);
    free(k->slot);
    free(k->plain_at);
    free(k->tensor);
    free(k->in);
    free(k);
}

static weft_err eval_guarded(ref_kernel *k)
{
    jmp_buf env;
    if (setjmp(env)) {
        weft_arena_guard(k->arena, NULL);
        return WEFT_ERR_NOMEM;
    }
    weft_arena_guard(k->arena, &env);
    weft_err err = weft_op_eval(&k->cx);
    weft_arena_guard(k->arena, NULL);
    return err;
}

static weft_err run_ref(void *state, void *const *arg)
{
    ref_kernel *k = state;
    uint32_t n = k->n_in + k->n_out;
    char *scratch = arg[n];
    weft_arena_mark mark = weft_arena_get_mark(k->arena);

    for (uint32_t i = 0; i < n; i++) {
        const weft_slot *s = &k->slot[i];
        k->tensor[i].data = k->plain_at[i] ? scratch + k->plain_at[i] - 1 : arg[i];
        if (i < k->n_in && k->plain_at[i])
            weft_relayout__tensor(k->tensor[i].data, WEFT_LAYOUT_PLAIN, arg[i], s->layout,
                                  s->tensor.dim, s->tensor.rank, weft_dtype_size(s->tensor.dtype));
    }
    weft_err err = eval_guarded(k);
    weft_arena_reset(k->arena, mark);
    for (uint32_t i = k->n_in; i < n && err == WEFT_ERR_OK; i++) {
        const weft_slot *s = &k->slot[i];
        if (k->plain_at[i])
            weft_relayout__tensor(arg[i], s->layout, k->tensor[i].data, WEFT_LAYOUT_PLAIN,
                                  s->tensor.dim, s->tensor.rank, weft_dtype_size(s->tensor.dtype));
    }
    return err;
}

/* The kernel may be used after what `prepare` was given is gone. */
static weft_err copy_attrs(ref_kernel *k, weft_attrs attrs)
{
    jmp_buf env;
    weft_arena_guard(k->arena, &env);
    if (setjmp(env)) {
        weft_arena_guard(k->arena, NULL);
        return WEFT_ERR_NOMEM;
    }
    k->cx.attrs = weft_attrs_copy(attrs, k->arena);
    weft_arena_guard(k->arena, NULL);
    return WEFT_ERR_OK;
}

static weft_err init_ref(weft_prep *p, ref_kernel *k)
{
    uint32_t n = p->n_in + p->n_out;
    uint64_t scratch = 0;
    k->n_in = p->n_in;
    k->n_out = p->n_out;
    k->slot = calloc(n + 1, sizeof *k->slot);
    k->plain_at = calloc(n + 1, sizeof *k->plain_at);
    k->tensor = calloc(n + 1, sizeof *k->tensor);
    k->in = calloc(p->n_in + 1, sizeof *k->in);
    k->arena = weft_arena_create(0);
    if (!k->slot || !k->plain_at || !k->tensor || !k->in || !k->arena)
        return WEFT_ERR_NOMEM;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t bytes = 0;
        k->slot[i] = i < p->n_in ? p->in[i] : p->out[i - p->n_in];
        k->tensor[i] = k->slot[i].tensor;
        if (i < p->n_in && k->slot[i].present)
            k->in[i] = &k->tensor[i];
        if (!k->slot[i].present || k->slot[i].layout == WEFT_LAYOUT_PLAIN)
            continue;
        k->plain_at[i] = scratch + 1;
        if (!weft_layout_bytes(k->tensor[i].dtype, WEFT_LAYOUT_PLAIN, k->tensor[i].dim,
                               k->tensor[i].rank, &bytes) ||
            !weft_size_add(scratch, weft_align_up(bytes, 64), &scratch))
            return WEFT_ERR_NOMEM;
    }
    p->scratch_bytes = scratch;
    k->cx = (weft_eval_ctx){.op = weft_op_get(p->op),
                            .in = k->in,
                            .n_in = p->n_in,
                            .out = k->tensor + p->n_in,
                            .n_out = p->n_out,
                            .scratch = k->arena,
                            .adapters = p->adapters,
                            .where = p->where};
    return copy_attrs(k, p->attrs);
}

weft_err weft_ref__prepare(weft_prep *p)
{
    if (!weft_op_get(p->op)->eval)
        return weft_diag_error(p->diag, WEFT_ERR_UNSUP, p->where,
                               "%s: there is no reference implementation",
                               weft_op_get(p->op)->name);
    ref_kernel *k = calloc(1, sizeof *k);
    if (!k)
        return WEFT_ERR_NOMEM;
    weft_err err = init_ref(p, k);
    if (err != WEFT_ERR_OK) {
        destroy_ref(k);
        return err;
    }
    p->run = run_ref;
    p->state = k;
    p->destroy = destroy_ref;
    p->variant = "ref";
    return WEFT_ERR_OK;
}
