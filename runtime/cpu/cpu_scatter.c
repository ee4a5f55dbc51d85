/* scatter_elements on f32: sums over the edges of a graph, for one. One thread, because several
 * updates may meet in an element and are applied in order. */
#include "runtime/cpu/cpu_int.h"

typedef enum scatter_mode { SET, ADD, MUL, MIN, MAX, N_MODE } scatter_mode;

typedef struct scatter_kernel {
    scatter_mode mode;
    bool wide; /* i64 indices */
    int32_t rank, axis;
    int64_t dim[WEFT_RANK_MAX];    /* of the indices and updates */
    int64_t stride[WEFT_RANK_MAX]; /* of the data, in elements */
    int64_t len, numel;            /* of the data: along the axis, in all */
} scatter_kernel;

/* NaN if an operand is NaN. */
static float least(float a, float b)
{
    return a < b || a != a ? a : b;
}
static float most(float a, float b)
{
    return a > b || a != a ? a : b;
}

/* Position along the axis, or -1: outside. */
static int64_t index_at(const scatter_kernel *k, const void *index, int64_t i)
{
    int64_t x = k->wide ? ((const int64_t *)index)[i] : ((const int32_t *)index)[i];
    x = x < 0 ? x + k->len : x;
    return x >= 0 && x < k->len ? x : -1;
}

/* One row of updates, i = first .. first + n - 1; update j goes to out + index * step + j * along.
 */
static weft_err scatter_row(const scatter_kernel *k, float *out, const void *index,
                            const float *from, int64_t first)
{
    int32_t last = k->rank - 1;
    int64_t step = k->stride[k->axis], along = k->axis == last ? 0 : 1;
    for (int64_t j = 0; j < k->dim[last]; j++) {
        int64_t at = index_at(k, index, first + j);
        if (at < 0)
            return WEFT_ERR_INPUT;
        float *y = out + at * step + j * along, x = from[first + j];
        *y = k->mode == SET   ? x
             : k->mode == ADD ? *y + x
             : k->mode == MUL ? *y * x
             : k->mode == MIN ? least(*y, x)
                              : most(*y, x);
    }
    return WEFT_ERR_OK;
}

static weft_err run_scatter(void *state, void *const *arg)
{
    const scatter_kernel *k = state;
    int64_t pos[WEFT_RANK_MAX] = {0}, rows = 1;
    float *out = arg[3];
    if (arg[0] != arg[3])
        memcpy(out, arg[0], (size_t)k->numel * sizeof *out);
    for (int32_t d = 0; d + 1 < k->rank; d++)
        rows *= k->dim[d];
    for (int64_t row = 0; row < rows; row++) {
        int64_t base = 0;
        for (int32_t d = 0; d + 1 < k->rank; d++)
            base += d == k->axis ? 0 : pos[d] * k->stride[d];
        WEFT_TRY(scatter_row(k, out + base, arg[1], arg[2], row * k->dim[k->rank - 1]));
        for (int32_t d = k->rank - 2; d >= 0 && ++pos[d] == k->dim[d]; d--)
            pos[d] = 0;
    }
    return WEFT_ERR_OK;
}

static scatter_mode parse_mode(const weft_prep *p)
{
    static const char *const names[N_MODE] = {"none", "add", "mul", "min", "max"};
    const char *name = weft_attrs_str(p->attrs, WEFT_ATTR_REDUCTION, "none");
    int mode = 0;
    while (mode < N_MODE && strcmp(name, names[mode]) != 0)
        mode++;
    return (scatter_mode)mode;
}

weft_err weft_cpu__prepare_scatter(weft_prep *p)
{
    const weft_tensor *x = &p->in[0].tensor, *idx = &p->in[1].tensor, *from = &p->in[2].tensor;
    int64_t axis = weft_attrs_int(p->attrs, WEFT_ATTR_AXIS, 0);
    scatter_kernel k = {.mode = parse_mode(p), .rank = x->rank};
    axis += axis < 0 ? x->rank : 0;
    if (p->n_in != 3 || k.mode == N_MODE || x->rank < 1 || axis < 0 || axis >= x->rank ||
        !weft_slot_is(&p->in[0], WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN) ||
        !weft_slot_is(&p->in[2], WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN) || p->in[1].layout ||
        !weft_slot_is(&p->out[0], WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN) ||
        (idx->dtype != WEFT_DTYPE_I64 && idx->dtype != WEFT_DTYPE_I32) || idx->rank != x->rank ||
        !weft_slot_same_dims(&p->in[1], &p->in[2]) || !weft_slot_same_dims(&p->in[0], &p->out[0]))
        return WEFT_ERR_OK;
    k.axis = (int32_t)axis;
    k.wide = idx->dtype == WEFT_DTYPE_I64;
    k.len = x->dim[axis];
    k.numel = weft_slot_numel(&p->in[0]);
    int64_t stride = 1;
    for (int32_t d = x->rank - 1; d >= 0; d--) {
        /* The reference refuses indices that reach beyond the data. */
        if (d != k.axis && from->dim[d] > x->dim[d])
            return WEFT_ERR_OK;
        k.dim[d] = from->dim[d];
        k.stride[d] = stride;
        stride *= x->dim[d];
    }
    return weft_cpu__set_kernel(p, run_scatter, &k, sizeof k, "scatter");
}
