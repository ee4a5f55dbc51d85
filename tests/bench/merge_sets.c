#include "tests/bench/merge_sets.h"
#include "tests/support/rand.h"

#include <stdio.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD = 10, IMAGE = 28 };

/* -- Made-up models --------------------------------------------------------------------------- */

typedef struct shape {
    char family[8];
    unsigned width, layers, more; /* more: additional layers of each sibling */
} shape;

enum { LAYERS_MAX = 128 };

/* Layer numbers of model i in order; its additional layers are in the middle. */
static unsigned list_layers(const shape *s, int i, unsigned *out)
{
    unsigned n = 0;
    for (unsigned l = 0; l < s->layers; l++) {
        for (unsigned k = 0; i > 0 && l == s->layers / 2 && k < s->more; k++)
            out[n++] = s->layers + ((unsigned)i - 1) * s->more + k;
        out[n++] = l;
    }
    return n;
}

static void write_mlp(weft_buf *t, int i, const shape *s)
{
    unsigned w = s->width, x = 0, layer[LAYERS_MAX], n = list_layers(s, i, layer);
    weft_buf_printf(t, "graph @m%d (%%0 : f32[?b%d,%u]) {\n  symbol ?b%d \"batch\"\n", i, i, w, i);
    for (unsigned l = 0; l < n; l++, x += 2)
        weft_buf_printf(t,
                        "  %%%u : f32[?b%d,%u] = matmul %%%u, $w%u loc \"set\" \"w%u\"\n"
                        "  %%%u : f32[?b%d,%u] = relu %%%u\n",
                        x + 1, i, w, x, layer[l], layer[l], x + 2, i, w, x + 1);
    weft_buf_printf(t,
                    "  %%%u : f32[?b%d,%d] = matmul %%%u, $head loc \"set\" \"head\"\n"
                    "  return \"y\" %%%u\n}\n",
                    x + 1, i, HEAD, x, x + 1);
}

/* Odd siblings list their branches in the opposite order. */
static void write_pair(weft_buf *t, int i, const shape *s)
{
    unsigned w = s->width, x = 0, layer[LAYERS_MAX], n = list_layers(s, i, layer);
    bool turned = strcmp(s->family, "turned") == 0 && i % 2;
    weft_buf_printf(t, "graph @m%d (%%0 : f32[?b%d,%u]) {\n  symbol ?b%d \"batch\"\n", i, i, 2 * w,
                    i);
    for (unsigned l = 0; l < n; l++, x += 5) {
        for (unsigned k = 0; k < 2; k++) {
            char name = turned == k ? 'u' : 'd';
            weft_buf_printf(t,
                            "  %%%u : f32[?b%d,%u] = matmul %%%u, $%c%u loc \"set\" \"%c%u\"\n"
                            "  %%%u : f32[?b%d,%u] = relu %%%u\n",
                            x + 2 * k + 1, i, w, x, name, layer[l], name, layer[l], x + 2 * k + 2,
                            i, w, x + 2 * k + 1);
        }
        weft_buf_printf(t, "  %%%u : f32[?b%d,%u] = concat %%%u, %%%u {axis = 1}\n", x + 5, i,
                        2 * w, x + (turned ? 4 : 2), x + (turned ? 2 : 4));
    }
    weft_buf_printf(t,
                    "  %%%u : f32[?b%d,%d] = matmul %%%u, $head loc \"set\" \"head\"\n"
                    "  return \"y\" %%%u\n}\n",
                    x + 1, i, HEAD, x, x + 1);
}

static void write_ffn(weft_buf *t, int i, const shape *s)
{
    unsigned w = s->width, x = 0, layer[LAYERS_MAX], n = list_layers(s, i, layer);
    weft_buf_printf(t, "graph @m%d (%%0 : f32[?b%d,?s%d,%u]) {\n  symbol ?b%d \"batch\"\n", i, i, i,
                    w, i);
    weft_buf_printf(t, "  symbol ?s%d \"seq\"\n", i);
    for (unsigned l = 0; l < n; l++, x += 5) {
        unsigned at = layer[l];
        weft_buf_printf(t,
                        "  %%%u : f32[?b%d,?s%d,%u] = layer_norm %%%u, $n {axis = -1, "
                        "epsilon = 1e-05}\n",
                        x + 1, i, i, w, x);
        weft_buf_printf(t, "  %%%u : f32[?b%d,?s%d,%u] = matmul %%%u, $u%u loc \"set\" \"u%u\"\n",
                        x + 2, i, i, 4 * w, x + 1, at, at);
        weft_buf_printf(t, "  %%%u : f32[?b%d,?s%d,%u] = gelu %%%u\n", x + 3, i, i, 4 * w, x + 2);
        weft_buf_printf(t, "  %%%u : f32[?b%d,?s%d,%u] = matmul %%%u, $d%u loc \"set\" \"d%u\"\n",
                        x + 4, i, i, w, x + 3, at, at);
        weft_buf_printf(t, "  %%%u : f32[?b%d,?s%d,%u] = add %%%u, %%%u\n", x + 5, i, i, w, x + 4,
                        x);
    }
    weft_buf_printf(t,
                    "  %%%u : f32[?b%d,?s%d,%d] = matmul %%%u, $head loc \"set\" \"head\"\n"
                    "  return \"y\" %%%u\n}\n",
                    x + 1, i, i, HEAD, x, x + 1);
}

static void write_cnn(weft_buf *t, int i, const shape *s)
{
    unsigned w = s->width, x = 0, layer[LAYERS_MAX], n = list_layers(s, i, layer);
    weft_buf_printf(t, "graph @m%d (%%0 : f32[?b%d,%u,%d,%d]) {\n  symbol ?b%d \"batch\"\n", i, i,
                    w, IMAGE, IMAGE, i);
    for (unsigned l = 0; l < n; l++, x += 2)
        weft_buf_printf(t,
                        "  %%%u : f32[?b%d,%u,%d,%d] = conv %%%u, $c%u {pads = [1, 1, 1, 1]} "
                        "loc \"set\" \"c%u\"\n"
                        "  %%%u : f32[?b%d,%u,%d,%d] = relu %%%u\n",
                        x + 1, i, w, IMAGE, IMAGE, x, layer[l], layer[l], x + 2, i, w, IMAGE, IMAGE,
                        x + 1);
    weft_buf_printf(t,
                    "  %%%u : f32[?b%d,%u,1,1] = global_average_pool %%%u\n"
                    "  %%%u : f32[?b%d,%u] = flatten %%%u\n"
                    "  %%%u : f32[?b%d,%d] = matmul %%%u, $head loc \"set\" \"head\"\n"
                    "  return \"y\" %%%u\n}\n",
                    x + 1, i, w, x, x + 2, i, w, x + 1, x + 3, i, HEAD, x + 2, x + 3);
}

static const struct {
    const char *name;
    void (*write)(weft_buf *t, int i, const shape *s);
    const char *weights; /* of a layer, see write_weights */
} family_table[] = {{"mlp", write_mlp, "w11"},
                    {"pair", write_pair, "u21d21"},
                    {"turned", write_pair, "u21d21"},
                    {"ffn", write_ffn, "u14d41"},
                    {"cnn", write_cnn, "c33"}};

/* Three characters for each weight: name, rows and columns as multiples of the width; 33: kernels
 * of 3 x 3. */
static void write_weights(weft_buf *t, const shape *s, const char *weights, unsigned layers)
{
    unsigned w = s->width, seed = 1;
    for (unsigned l = 0; l < layers; l++)
        for (const char *at = weights; *at; at += 3, seed++)
            if (at[1] == '3')
                weft_buf_printf(t, "weight $%c%u : f32[%u,%u,3,3] = random %u\n", at[0], l, w, w,
                                seed);
            else
                weft_buf_printf(t, "weight $%c%u : f32[%u,%u] = random %u\n", at[0], l,
                                w * (unsigned)(at[1] - '0'), w * (unsigned)(at[2] - '0'), seed);
    weft_buf_printf(t,
                    "weight $n : f32[%u] = random 9998\nweight $head : f32[%u,%d] = random 9999\n",
                    w, *weights == 'u' && weights[1] == '2' ? 2 * w : w, HEAD);
}

static bool write_model(const merge_spec *spec, weft_buf *t)
{
    shape s = {0};
    size_t f = 0;
    if (sscanf(spec->model, "%7[a-z]:%ux%u", s.family, &s.width, &s.layers) != 3 || s.width == 0)
        return false;
    if (sscanf(spec->rule, "deeper:%u", &s.more) != 1)
        s.more = 0;
    while (f < sizeof family_table / sizeof family_table[0] &&
           strcmp(family_table[f].name, s.family) != 0)
        f++;
    if (f == sizeof family_table / sizeof family_table[0] || s.layers == 0 ||
        s.more > LAYERS_MAX / 2 || s.layers > LAYERS_MAX / 2)
        return false;
    weft_buf_printf(t, "wir 1 graph\n");
    for (int i = 0; i < spec->k; i++) {
        weft_buf_printf(t, "symbol ?b%d = [1, 1024]\n", i);
        if (strcmp(s.family, "ffn") == 0)
            weft_buf_printf(t, "symbol ?s%d = [1, 512]\n", i);
    }
    write_weights(t, &s, family_table[f].weights, s.layers + s.more * (unsigned)(spec->k - 1));
    for (int i = 0; i < spec->k; i++)
        family_table[f].write(t, i, &s);
    return true;
}

/* -- Rules ------------------------------------------------------------------------------------ */

static bool is_gemm(const weft_module *m, weft_node n)
{
    weft_val w = weft_node_in(m, n, 1);
    return weft_node_opdef(m, n)->traits & WEFT_T_GEMM && w.i &&
           weft_val_get_kind(m, w) == WEFT_VAL_WEIGHT && weft_val_ttype(m, w)->rank >= 2 &&
           weft_val_ttype(m, w)->dtype == WEFT_DTYPE_F32;
}

/* The weight as a matrix whose rows (or columns) are features. */
typedef struct matrix {
    float *at;
    size_t rows, cols;
    bool by_row; /* features are rows */
} matrix;

static void add_low_rank(const matrix *x, int rank, uint64_t *seed)
{
    for (int r = 0; r < rank; r++) {
        uint64_t columns = rand_next(seed);
        for (size_t i = 0; i < x->rows; i++) {
            float u = 0.05f * rand_signed(seed);
            uint64_t again = columns;
            for (size_t k = 0; k < x->cols; k++)
                x->at[i * x->cols + k] += u * rand_signed(&again);
        }
    }
}

/* New elements have the magnitude of the old ones: larger weights would make networks so
 * ill-conditioned that rounding alone changes their answers. */
static float largest(const matrix *x)
{
    float most = 0;
    for (size_t i = 0; i < x->rows * x->cols; i++)
        most = fmaxf(most, fabsf(x->at[i]));
    return most;
}

static void change_elements(const matrix *x, double part, uint64_t *seed)
{
    size_t n = x->rows * x->cols;
    float size = largest(x);
    for (size_t i = 0; i < (size_t)(part * (double)n); i++)
        x->at[rand_next(seed) % n] = size * rand_signed(seed);
}

/* Replaces the last rows (or columns) by random elements; `part`: fraction of them. */
static void change_last(const matrix *x, bool rows, double part, uint64_t *seed)
{
    size_t n = rows ? x->rows : x->cols;
    size_t first = n - (size_t)(part * (double)n + 0.5);
    float size = largest(x);
    for (size_t i = 0; i < x->rows; i++)
        for (size_t k = 0; k < x->cols; k++)
            if ((rows ? i : k) >= first)
                x->at[i * x->cols + k] = size * rand_signed(seed);
}

/* Applies the rule to GEMM `at` of `n` of a sibling. */
static void change(const matrix *x, const char *rule, uint32_t at, uint32_t n, uint64_t *seed)
{
    const char *colon = strchr(rule, ':');
    double arg = colon ? atof(colon + 1) : 0;
    bool is_head = at + 1 == n;
    if (strncmp(rule, "lora", 4) == 0 && !is_head)
        add_low_rank(x, (int)arg, seed);
    else if (strncmp(rule, "sparse", 6) == 0 && !is_head)
        change_elements(x, arg, seed);
    else if (strncmp(rule, "rows", 4) == 0 && !is_head)
        change_last(x, x->by_row, arg, seed);
    else if (strncmp(rule, "inputs", 6) == 0 && !is_head)
        change_last(x, !x->by_row, arg, seed);
    else if (strcmp(rule, "moved") == 0)
        for (size_t i = 0; i < x->rows * x->cols; i++)
            x->at[i] += 1e-3f * rand_signed(seed);
    else
        change_last(x, true, 1, seed);
}

static bool is_changed(const char *rule, uint32_t at, uint32_t n)
{
    if (strcmp(rule, "head") == 0 || strncmp(rule, "deeper:", 7) == 0)
        return at + 1 == n;
    if (strncmp(rule, "last:", 5) == 0)
        return at >= n - (uint32_t)(atof(rule + 5) * n + 0.5) || at + 1 == n;
    return true;
}

static void change_weight(weft_module *m, weft_node n, const char *rule, uint32_t at,
                          uint32_t count, weft_arena *arena, uint64_t *seed)
{
    weft_weight w = weft_val_weight(m, weft_node_in(m, n, 1));
    weft_weight_info info = *weft_weight_get(m, w);
    const weft_ttype *type = weft_type_get(m, info.type);
    float *data = weft_arena_alloc(arena, info.bytes + 1);
    bool conv = weft_node_op(m, n) != WEFT_OP_MATMUL && weft_node_op(m, n) != WEFT_OP_GEMM;
    bool trans = weft_attrs_int(weft_node_attrs(m, n), WEFT_ATTR_TRANSB, 0) != 0 ||
                 weft_attrs_int(weft_node_attrs(m, n), WEFT_ATTR_TRANS_B, 0) != 0;
    memcpy(data, info.data, info.bytes);
    matrix x = {.at = data, .by_row = conv || trans};
    x.rows = (size_t)type->dim[0];
    x.cols = info.bytes / sizeof *data / x.rows;
    change(&x, rule, at, count, seed);
    info.data = (const uint8_t *)data;
    info.file_id = 0;
    info.name = "changed";
    weft_node_set_in(m, n, 1, weft_weight_val(m, weft_weight_add(m, &info)));
}

static void change_graph(weft_graph *g, const char *rule, weft_arena *arena, uint64_t seed)
{
    weft_module *m = weft_graph_module(g);
    uint32_t count = 0, at = 0;
    WEFT_FOREACH_NODE (m, g, n)
        count += is_gemm(m, n);
    WEFT_FOREACH_NODE (m, g, n) {
        if (!is_gemm(m, n))
            continue;
        if (is_changed(rule, at, count))
            change_weight(m, n, rule, at, count, arena, &seed);
        at++;
    }
}

/* -- Sets ------------------------------------------------------------------------------------- */

static weft_err import_models(const merge_spec *spec, merge_set *set, weft_diag *diag)
{
    set->module = weft_module_create(0);
    weft_err err = set->module ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
    for (int i = 0; i < spec->k && err == WEFT_ERR_OK; i++) {
        weft_graph *g = NULL;
        const weft_import_options how = {.graph_name = set->name[i]};
        err = weft_import_onnx(set->module, spec->model, &how, diag, &g);
    }
    return err;
}

void merge_set_make(const merge_spec *spec, weft_arena *arena, weft_diag *diag, merge_set *out)
{
    merge_set set = {.n = (uint32_t)spec->k};
    weft_buf text = {0};
    weft_err err;
    for (uint32_t i = 0; i < set.n && i < MERGE_SET_MAX; i++)
        snprintf(set.name[i], sizeof set.name[i], "m%u", i);
    if (spec->k > MERGE_SET_MAX)
        err = WEFT_ERR_INPUT;
    else if (write_model(spec, &text))
        err = weft_module_parse(text.at, text.len, spec->model, NULL, diag, &set.module);
    else
        err = import_models(spec, &set, diag);
    weft_buf_finish(&text);
    for (uint32_t i = 1; i < set.n && err == WEFT_ERR_OK; i++)
        change_graph(weft_graph_find(set.module, set.name[i]), spec->rule, arena, 1000 + i);
    if (err != WEFT_ERR_OK) {
        weft_module_destroy(set.module);
        set.module = NULL;
    }
    *out = set;
}

void merge_spec_draw(uint64_t *seed, merge_spec *out)
{
    static const char *const families[] = {"mlp", "ffn", "ffn", "cnn"};
    static const int widths[] = {128, 256, 384, 512, 768};
    static const char *const rules[] = {"head",      "last:0.25", "last:0.5", "last:0.75",
                                        "none",      "lora:4",    "lora:16",  "sparse:0.01",
                                        "rows:0.25", "rows:0.75", "moved"};
    static const int64_t rows[] = {1, 1, 2, 4, 8, 16, 32, 64};
    const char *family = families[rand_next(seed) % 4];
    bool image = strcmp(family, "cnn") == 0;
    *out = (merge_spec){.k = 2 << rand_next(seed) % 3, .other = 1};
    int width = widths[rand_next(seed) % (image ? 1 : 5)] / (image ? 2 : 1);
    snprintf(out->model, sizeof out->model, "%s:%dx%d", family, width,
             (int)(2 + rand_next(seed) % 5));
    snprintf(out->rule, sizeof out->rule, "%s", rules[rand_next(seed) % 11]);
    out->rows = rows[rand_next(seed) % (image ? 4 : 8)];
    if (strcmp(family, "ffn") == 0 && rand_next(seed) % 2) {
        out->other = 4;
        out->rows = out->rows > 16 ? 16 : out->rows;
    }
}
