/* add-adapters: GEMMs to which adapters (LoRA) add become sites.
 *
 *     %y = matmul %x, $w              %y = matmul %x, $w
 *     %z = add %y, $bias       ==>    %z = add %y, $bias
 *                                     %d = adapter_delta %x {sites = ["layer.0.query"],
 *                                                        widths = [64]}
 *                                     %s = add %z, %d
 *
 * Runs tell which adapter each row of the batch uses, and bring its factors (ops/adapter_rows.h),
 * so that one program serves any adapters of these GEMMs. Later passes fuse the sum with the GEMM.
 *
 * A GEMM by a weight is known by the path of its module: of the weight, "PATH.weight"; of the bias
 * that is added to the result, "PATH.bias", where constant folding has renamed the weight; or of
 * the ONNX node, "/layer.0/query/MatMul". Exporters give equal constants one name: zeros are the
 * bias of all modules. A weight or bias of GEMMs that are not those of one module names none. The
 * paths of the options are those of adapters' files, which may have more components in front, or
 * fewer. A path that fits no GEMM, or several of different modules equally well, is an error: the
 * model would answer without its adapter, or with that of another module.
 *
 * Runs before dedup, while nodes and weights have the names of the ONNX file. O(nodes x (nodes +
 * paths)). */
#include "passes/match.h"

#include "ops/adapter_rows.h"

#include <string.h>

enum { BY_WEIGHT, BY_BIAS, BY_NODE, NAMES };

/* A GEMM of a value by a weight. */
typedef struct gemm {
    weft_node node;
    weft_val weight, bias, result; /* bias: none; result: with the bias */
    int64_t n;
    const char *name[NAMES]; /* paths of its module, the best first; NULL: none */
    const char *site;        /* the name by which it is a site; NULL: it is none */
    const char *twin;        /* path of another node with equal constants; NULL: there is none */
} gemm;

typedef struct finder {
    weft_passctx *cx;
    weft_module *m;
    weft_graph *g;
    gemm *at;
    uint32_t n;
} finder;

/* -- Names ---------------------------------------------------------------------------------- */

/* The name of a weight without `ending`; NULL: it ends otherwise. */
static const char *strip_ending(const finder *f, weft_val v, const char *ending)
{
    weft_weight w = weft_val_weight(f->m, v);
    const char *name = w.i ? weft_weight_get(f->m, w)->name : NULL;
    size_t len = name ? strlen(name) : 0, end = strlen(ending);
    if (len <= end || strcmp(name + len - end, ending) != 0)
        return NULL;
    return weft_arena_strndup(f->cx->scratch, name, len - end);
}

/* "/layer.0/query/MatMul" as "layer.0.query"; NULL: no path. */
static const char *path_of_node(const finder *f, weft_node n)
{
    const char *item = weft_node_loc(f->m, n).item;
    const char *last = item && item[0] == '/' ? strrchr(item, '/') : NULL;
    if (!last || last == item)
        return NULL;
    char *path = weft_arena_strndup(f->cx->scratch, item + 1, (size_t)(last - item - 1));
    for (char *s = path; *s; s++)
        *s = *s == '/' ? '.' : *s;
    return path;
}

/* -- GEMMs ---------------------------------------------------------------------------------- */

/* The sum of `v` and a bias, if that is all that uses v; else v. */
static weft_val with_bias(const finder *f, weft_val v, weft_val *out_bias)
{
    weft_node sum = weft_rewrite__sole_user(f->g, v);
    if (!sum.i || weft_node_op(f->m, sum) != WEFT_OP_ADD)
        return v;
    weft_val other = weft_node_in(f->m, sum, weft_node_in(f->m, sum, 0).i == v.i ? 1 : 0);
    if (weft_val_get_kind(f->m, other) != WEFT_VAL_WEIGHT || weft_val_ttype(f->m, other)->rank > 1)
        return v;
    *out_bias = other;
    return weft_node_out(f->m, sum, 0);
}

/* false: no GEMM by a weight whose columns are those of the result. */
static bool read_gemm(const finder *f, weft_node n, gemm *out)
{
    const weft_module *m = f->m;
    weft_op_id op = weft_node_op(m, n);
    weft_attrs attrs = weft_node_attrs(m, n);
    if (op != WEFT_OP_MATMUL && op != WEFT_OP_GEMM)
        return false;
    bool is_gemm = op == WEFT_OP_GEMM;
    weft_val x = weft_node_in(m, n, 0), w = weft_node_in(m, n, 1), bias = weft_node_in(m, n, 2);
    const weft_ttype *tx = weft_val_ttype(m, x), *tw = weft_val_ttype(m, w);
    if (weft_val_get_kind(m, w) != WEFT_VAL_WEIGHT || tw->rank != 2 ||
        weft_val_get_kind(m, x) == WEFT_VAL_WEIGHT || !weft_match__is_f32(m, x) || tx->rank < 2 ||
        weft_attrs_int(attrs, is_gemm ? WEFT_ATTR_TRANSA : WEFT_ATTR_TRANS_A, 0))
        return false;
    bool trans_b = weft_attrs_int(attrs, is_gemm ? WEFT_ATTR_TRANSB : WEFT_ATTR_TRANS_B, 0) != 0;
    *out = (gemm){.node = n, .weight = w, .n = tw->dim[!trans_b]};
    out->result = with_bias(f, weft_node_out(m, n, 0), &bias);
    out->bias = bias;
    out->name[BY_WEIGHT] = strip_ending(f, w, ".weight");
    out->name[BY_BIAS] = strip_ending(f, bias, ".bias");
    out->name[BY_NODE] = path_of_node(f, n);
    return true;
}

static bool same_weight(const finder *f, const gemm *a, const gemm *b)
{
    return a->weight.i == b->weight.i || weft_weight_equal(f->m, weft_val_weight(f->m, a->weight),
                                                           weft_val_weight(f->m, b->weight));
}

/* Whether both may be uses of one module, as far as the constants and nodes tell. */
static bool may_be_one(const finder *f, const gemm *a, const gemm *b)
{
    const char *of_a = a->name[BY_NODE], *of_b = b->name[BY_NODE];
    return a->bias.i == b->bias.i && (!of_a || !of_b || strcmp(of_a, of_b) == 0) &&
           same_weight(f, a, b);
}

/* Forgets the names of constants that GEMMs of different modules have in common. Of modules that
 * differ in nothing but the path it is not known whether they are one that runs twice. */
static void part(const finder *f, gemm *a, gemm *b)
{
    bool weight = a->weight.i == b->weight.i, bias = a->bias.i && a->bias.i == b->bias.i;
    if (may_be_one(f, a, b))
        return;
    if (weight)
        a->name[BY_WEIGHT] = b->name[BY_WEIGHT] = NULL;
    if (bias)
        a->name[BY_BIAS] = b->name[BY_BIAS] = NULL;
    if (a->bias.i == b->bias.i && same_weight(f, a, b)) {
        a->twin = b->name[BY_NODE];
        b->twin = a->name[BY_NODE];
    }
}

static void find_gemms(finder *f)
{
    f->at = weft_arena_array(f->cx->scratch, weft_graph_node_count(f->g), sizeof *f->at);
    WEFT_FOREACH_NODE (f->m, f->g, n)
        f->n += read_gemm(f, n, &f->at[f->n]);
    for (uint32_t i = 0; i < f->n; i++)
        for (uint32_t k = 0; k < i; k++)
            part(f, &f->at[i], &f->at[k]);
}

/* -- Paths ---------------------------------------------------------------------------------- */

/* How well the path fits; *out_name: which of the GEMM's. */
static weft_path_fit fit_gemm(const gemm *at, const char *path, const char **out_name)
{
    weft_path_fit best = WEFT_PATH_APART;
    for (uint32_t i = 0; i < NAMES; i++) {
        weft_path_fit fit = weft_path_compare(at->name[i] ? at->name[i] : "", path);
        if (fit > best) {
            best = fit;
            *out_name = at->name[i];
        }
    }
    return best;
}

/* GEMMs of different names: `path` does not tell which is meant. */
static weft_err refuse_ambiguous(const finder *f, const char *path, const char *a, const char *b)
{
    return weft_diag_error(
        f->cx->diag, WEFT_ERR_INPUT, (weft_where){.item = weft_graph_name(f->g)},
        strcmp(a, b) ? "adapter: module %s may be %s or %s: rename it in the adapter's file, or "
                       "merge the adapter into its base where these have equal weights"
                     : "adapter: module %s may be several: %s has GEMMs by different weights",
        path, a, b);
}

static weft_err refuse_unknown(const finder *f, const char *path)
{
    const char *like = NULL;
    for (uint32_t i = 0; i < f->n * NAMES && !like; i++)
        like = f->at[i / NAMES].name[i % NAMES];
    return weft_diag_error(
        f->cx->diag, WEFT_ERR_INPUT, (weft_where){.item = weft_graph_name(f->g)},
        "adapter: no GEMM by a constant weight belongs to module %s%s%s; export the model with the "
        "names of its modules (torch 1.13 or later writes them into node names), or name the "
        "module "
        "in the adapter's file as the model does",
        path, like ? "; the first one's is " : "", like ? like : "");
}

/* Makes sites of the GEMMs that the path fits best; several have to be uses of one module. */
static weft_err mark(finder *f, const char *path)
{
    weft_path_fit best = WEFT_PATH_APART;
    const char *name = NULL;
    const gemm *first = NULL;
    for (uint32_t i = 0; i < f->n; i++) {
        weft_path_fit fit = fit_gemm(&f->at[i], path, &name);
        best = fit > best ? fit : best;
    }
    if (best == WEFT_PATH_APART)
        return refuse_unknown(f, path);
    for (uint32_t i = 0; i < f->n; i++) {
        gemm *at = &f->at[i];
        weft_path_fit fit = fit_gemm(at, path, &name);
        if (fit < best)
            continue;
        if (first && (strcmp(first->site, name) != 0 || !same_weight(f, first, at)))
            return refuse_ambiguous(f, path, first->site, name);
        /* Another adapter may call the module otherwise. */
        if (at->site && weft_path_compare(at->site, path) == WEFT_PATH_APART)
            return refuse_ambiguous(f, path, at->site, name);
        if (at->twin)
            return refuse_ambiguous(f, path, name, at->twin);
        at->site = at->site ? at->site : name;
        first = at;
    }
    return WEFT_ERR_OK;
}

/* -- Sites ---------------------------------------------------------------------------------- */

static weft_val append_behind(const finder *f, weft_val v, const weft_node_spec *spec)
{
    weft_node next = weft_node_next(f->m, weft_val_node(f->m, v));
    weft_node n = next.i ? weft_node_insert_before(f->g, next, spec) : weft_node_append(f->g, spec);
    return weft_node_out(f->m, n, 0);
}

static void add_site(const finder *f, const gemm *at)
{
    weft_module *m = f->m;
    /* Its operand may be the sum of a site before. */
    weft_val x = weft_node_in(m, at->node, 0), in[2] = {at->result};
    const weft_attr attr[2] = {WEFT_ATTR_OF_STRS(SITES, &at->site, 1),
                               WEFT_ATTR_OF_INTS(WIDTHS, &at->n, 1)};
    weft_ttype type = *weft_val_ttype(m, x);
    type.dim[type.rank - 1] = at->n;
    weft_type of_delta = weft_type_intern(m, &type), of_sum = weft_val_type(m, at->result);
    const weft_node_spec delta = {.op = WEFT_OP_ADAPTER_DELTA,
                                  .in = &x,
                                  .n_in = 1,
                                  .out = &of_delta,
                                  .n_out = 1,
                                  .attr = attr,
                                  .n_attr = 2,
                                  .loc = weft_node_loc(m, at->node)};
    in[1] = append_behind(f, at->result, &delta);
    const weft_node_spec sum = {
        .op = WEFT_OP_ADD, .in = in, .n_in = 2, .out = &of_sum, .n_out = 1, .loc = delta.loc};
    weft_val y = append_behind(f, in[1], &sum);
    weft_val_replace(f->g, at->result, y);
    weft_node_set_in(m, weft_val_node(m, y), 0, at->result);
}

/* Makes sites of all GEMMs whose module is called so. */
static weft_err mark_all(finder *f, const char *ending)
{
    bool any = false;
    for (uint32_t i = 0; i < f->n; i++) {
        const char *name = NULL;
        for (uint32_t k = 0; k < NAMES && !name; k++)
            name = f->at[i].name[k];
        if (!name || weft_path_compare(name, ending) == WEFT_PATH_APART ||
            strlen(ending) > strlen(name))
            continue;
        WEFT_TRY(mark(f, name));
        any = true;
    }
    return any ? WEFT_ERR_OK : refuse_unknown(f, ending);
}

static weft_err add_sites(finder *f, const weft_adapted_model *model, bool *changed)
{
    find_gemms(f);
    for (uint32_t i = 0; i < model->n_path; i++) {
        const char *path = model->path[i];
        WEFT_TRY(strncmp(path, "*.", 2) == 0 ? mark_all(f, path + 2) : mark(f, path));
    }
    for (uint32_t i = 0; i < f->n; i++)
        if (f->at[i].site) {
            add_site(f, &f->at[i]);
            *changed = true;
        }
    return WEFT_ERR_OK;
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    for (size_t i = 0; i < cx->options->n_adapted; i++) {
        const weft_adapted_model *model = &cx->options->adapted[i];
        finder f = {.cx = cx, .m = m, .g = weft_graph_find(m, model->model)};
        if (f.g)
            WEFT_TRY(add_sites(&f, model, changed));
    }
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_add_adapters = {
    .name = "add-adapters",
    .brief = "GEMMs to which adapters may add get the sum",
    .from = WEFT_STAGE_GRAPH,
    .to = WEFT_STAGE_GRAPH,
    .run = run,
};
