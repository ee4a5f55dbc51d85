/* oneDNN post-ops: copying them, and the check that every primitive must pass. */
#include "runtime/cpu/cpu_dnnl_int.h"

typedef struct eltwise {
    dnnl_alg_kind_t alg;
    float scale, alpha, beta;
} eltwise;

static bool get_eltwise(const_dnnl_post_ops_t ops, int i, eltwise *out)
{
    return dnnl_post_ops_get_kind(ops, i) == dnnl_eltwise &&
           dnnl_post_ops_get_params_eltwise(ops, i, &out->scale, &out->alg, &out->alpha,
                                            &out->beta) == dnnl_success;
}

/* NaN parameters compare unequal, so two of them count as a conflict, which is safe. */
static bool conflict(const eltwise *a, const eltwise *b)
{
    return a->alg == b->alg &&
           !(a->alpha == b->alpha && a->beta == b->beta && a->scale == b->scale);
}

bool weft_dnnl__post_ops_are_sound(const_dnnl_post_ops_t ops)
{
    int n = ops ? dnnl_post_ops_len(ops) : 0;
    eltwise a, b;
    for (int i = 1; i < n; i++)
        for (int j = 0; j < i; j++)
            if (get_eltwise(ops, i, &a) && get_eltwise(ops, j, &b) && conflict(&a, &b))
                return false;
    return true;
}

static bool copy_sum(const_dnnl_post_ops_t from, int i, dnnl_post_ops_t to)
{
    float scale;
    return dnnl_post_ops_get_params_sum(from, i, &scale) == dnnl_success &&
           dnnl_post_ops_append_sum(to, scale) == dnnl_success;
}

static bool copy_binary(const_dnnl_post_ops_t from, int i, dnnl_post_ops_t to)
{
    dnnl_alg_kind_t alg;
    const dnnl_memory_desc_t *md;
    return dnnl_post_ops_get_params_binary(from, i, &alg, &md) == dnnl_success &&
           dnnl_post_ops_append_binary(to, alg, md) == dnnl_success;
}

bool weft_dnnl__copy_post_op(const_dnnl_post_ops_t from, int i, dnnl_post_ops_t to)
{
    eltwise e;
    switch (dnnl_post_ops_get_kind(from, i)) {
    case dnnl_sum:
        return copy_sum(from, i, to);
    case dnnl_binary:
        return copy_binary(from, i, to);
    case dnnl_eltwise:
        return get_eltwise(from, i, &e) &&
               dnnl_post_ops_append_eltwise(to, e.scale, e.alg, e.alpha, e.beta) == dnnl_success;
    default:
        return false;
    }
}
