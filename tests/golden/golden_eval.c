/* Compares two modules by evaluating both with the reference implementations of the operators, on
 * seeded inputs and a few values of the symbols. A joint graph that only the second module has
 * must give the answers of its parts' models. */
#include "golden.h"
#include "tests/support/rand.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PORTS_MAX = 32, POINTS = 3, ELEMENTS_MAX = 1 << 22 };

/* Relative to the largest output: fused operators round differently, but by much less than a real
 * error. */
static const double tolerance = 2e-4;

/* A value within the bounds of a symbol: a small odd one, the smallest, or one in the middle. */
static int64_t pick(int64_t lo, int64_t hi, uint32_t symbol, int point)
{
    int64_t x = point == 0 ? 2 + (int64_t)symbol : point == 1 ? 1 : 5;
    x = x < lo ? lo : x;
    return x > hi ? hi : x;
}

static void set_symbols(const weft_dimpool *pool, int point, int64_t *value, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        int64_t lo, hi;
        weft_dim_symbol_range(pool, i, &lo, &hi);
        value[i] = weft_dim_symbol_is_data(pool, i) ? -1 : pick(lo, hi, i, point);
    }
}

/* Random integers below `range`, because they may be indices. */
static void fill(const weft_tensor *t, uint64_t seed, uint64_t range)
{
    int64_t n = weft_tensor_numel(t);
    for (int64_t i = 0; i < n; i++) {
        uint64_t x = rand_next(&seed);
        if (weft_dtype_is_float(t->dtype))
            weft_tensor_set_f64(t, i, (double)(x % 4096) / 1024 - 2);
        else
            weft_tensor_set_i64(t, i, (int64_t)(x % range));
    }
}

static bool make_inputs(weft_graph *g, const int64_t *value, uint32_t n_value, uint64_t seed,
                        uint64_t range, weft_arena *arena, weft_tensor *out)
{
    weft_module *m = weft_graph_module(g);
    for (uint32_t i = 0; i < weft_graph_input_count(g); i++) {
        const weft_ttype *type = weft_val_ttype(m, weft_graph_input(g, i));
        out[i] = (weft_tensor){.dtype = (weft_dtype)type->dtype, .rank = type->rank};
        for (uint32_t k = 0; k < type->rank; k++)
            if (!weft_dim_eval(weft_module_dims(m), type->dim[k], value, n_value, &out[i].dim[k]))
                return false;
        int64_t n = weft_tensor_numel(&out[i]);
        if (n < 0 || n > ELEMENTS_MAX)
            return false;
        out[i].data = weft_arena_alloc(arena, weft_tensor_bytes(&out[i]));
        fill(&out[i], seed + i, range);
    }
    return true;
}

static bool same_tensor(const weft_tensor *a, const weft_tensor *b, const char *name)
{
    int64_t n = weft_tensor_numel(a);
    bool same = a->dtype == b->dtype && a->rank == b->rank;
    for (int32_t k = 0; same && k < a->rank; k++)
        same = a->dim[k] == b->dim[k];
    if (!same) {
        printf("output %s has another type\n", name);
        return false;
    }
    double scale = 0;
    bool is_float = weft_dtype_is_float(a->dtype);
    double allowed = a->dtype == WEFT_DTYPE_F16 || a->dtype == WEFT_DTYPE_BF16 ? 2e-2 : tolerance;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(weft_tensor_get_f64(a, i)))
            scale = fmax(scale, fabs(weft_tensor_get_f64(a, i)));
    for (int64_t i = 0; i < n; i++) {
        double x = weft_tensor_get_f64(a, i), y = weft_tensor_get_f64(b, i);
        bool close = is_float ? x == y || (isnan(x) && isnan(y)) || fabs(x - y) <= allowed * scale
                              : weft_tensor_get_i64(a, i) == weft_tensor_get_i64(b, i);
        if (!close) {
            printf("output %s[%lld]: %g before, %g after\n", name, (long long)i, x, y);
            return false;
        }
    }
    return true;
}

static void show(const weft_diag *diag)
{
    char text[1024];
    for (size_t i = 0; i < weft_diag_count(diag); i++) {
        weft_diag_format(weft_diag_at(diag, i), text, sizeof text);
        printf("%s\n", text);
    }
}

/* *ran: `before` can be evaluated with these inputs. */
static bool compare_graphs(weft_graph *before, weft_graph *after, const weft_tensor *in,
                           weft_arena *arena, weft_diag *diag, bool *ran)
{
    weft_tensor a[PORTS_MAX], b[PORTS_MAX];
    uint32_t n_in = weft_graph_input_count(before), n_out = weft_graph_output_count(before);
    *ran = weft_graph_eval(before, in, n_in, arena, NULL, a, n_out) == WEFT_ERR_OK;
    if (!*ran)
        return true;
    if (weft_graph_eval(after, in, n_in, arena, diag, b, n_out) != WEFT_ERR_OK) {
        printf("graph %s cannot be evaluated any more\n", weft_graph_name(before));
        show(diag);
        return false;
    }
    bool ok = true;
    for (uint32_t i = 0; i < n_out; i++)
        ok = same_tensor(&a[i], &b[i], weft_graph_output_name(before, i)) && ok;
    return ok;
}

static bool check_graph(weft_graph *before, weft_graph *after, weft_arena *arena, weft_diag *diag)
{
    static const uint64_t ranges[] = {8, 2, 1};
    weft_dimpool *pool = weft_module_dims(weft_graph_module(before));
    uint32_t n = weft_dim_symbol_count(pool);
    int64_t *value = weft_arena_array(arena, n, sizeof *value);
    weft_tensor in[PORTS_MAX];
    if (weft_graph_input_count(before) > PORTS_MAX || weft_graph_output_count(before) > PORTS_MAX)
        return true;
    for (int point = 0; point < POINTS; point++) {
        bool ran = false;
        set_symbols(pool, point, value, n);
        for (size_t r = 0; r < sizeof ranges / sizeof ranges[0] && !ran; r++)
            if (make_inputs(before, value, n, 1, ranges[r], arena, in) &&
                !compare_graphs(before, after, in, arena, diag, &ran))
                return false;
    }
    return true;
}

/* The joint graph must give the answers of its parts' models. */
static bool check_joint(weft_module *before, weft_graph *joint, weft_arena *arena, weft_diag *diag)
{
    weft_dimpool *pool = weft_module_dims(before);
    uint32_t n = weft_dim_symbol_count(pool);
    int64_t *value = weft_arena_array(arena, n, sizeof *value);
    weft_tensor in[PORTS_MAX], apart[PORTS_MAX], out[PORTS_MAX];
    if (weft_graph_input_count(joint) > PORTS_MAX || weft_graph_output_count(joint) > PORTS_MAX)
        return true;
    for (int point = 0; point < POINTS; point++) {
        uint32_t n_in = 0, n_out = 0;
        set_symbols(pool, point, value, n);
        for (uint32_t i = 0; i < weft_graph_part_count(joint); i++) {
            const weft_part *part = weft_graph_part(joint, i);
            weft_graph *model = weft_graph_find(before, part->model);
            if (!model || !make_inputs(model, value, n, n_in + 1, 8, arena, &in[n_in]) ||
                weft_graph_eval(model, &in[n_in], part->n_in, arena, diag, &apart[n_out],
                                part->n_out) != WEFT_ERR_OK)
                return false;
            n_in += part->n_in;
            n_out += part->n_out;
        }
        bool ok = weft_graph_eval(joint, in, n_in, arena, diag, out, n_out) == WEFT_ERR_OK;
        if (!ok)
            show(diag);
        for (uint32_t i = 0; ok && i < n_out; i++)
            ok = same_tensor(&apart[i], &out[i], weft_graph_output_name(joint, i));
        if (!ok)
            return false;
    }
    return true;
}

bool golden_same_meaning(weft_module *before, weft_module *after)
{
    weft_arena *arena = weft_arena_create(0);
    weft_diag *diag = weft_diag_create();
    bool ok = arena && diag;
    for (uint32_t i = 0; ok && i < weft_graph_count(before); i++) {
        weft_graph *g = weft_graph_at(before, i);
        weft_graph *h = weft_graph_find(after, weft_graph_name(g));
        ok = weft_graph_is_body(g) || (h && check_graph(g, h, arena, diag));
    }
    for (uint32_t i = 0; ok && i < weft_graph_count(after); i++) {
        weft_graph *joint = weft_graph_at(after, i);
        bool is_new = !weft_graph_find(before, weft_graph_name(joint));
        ok =
            !is_new || weft_graph_part_count(joint) == 0 || check_joint(before, joint, arena, diag);
    }
    weft_diag_destroy(diag);
    weft_arena_destroy(arena);
    return ok;
}
