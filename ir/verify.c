/* The rules of a module, by name:
 *
 *   ports            names of inputs and of outputs are there and unique, outputs exist
 *   ssa-order        operands are defined earlier, in the same graph
 *   operand-count    as many operands and results as the row of the operator allows
 *   attr-schema      attributes are those of the row, of the right kind
 *   type-match       inference agrees with the stored types of results
 *   layout-allowed   blocked layouts only where the operator supports them, never on inputs and
 * outputs weight-bytes     constant dims, plain layout, as many bytes as the type needs
 *   no-graph-only-op from the kernel stage on
 *   bodies           a body is run by at most one node, of an earlier graph
 *   view-bytes       a view has as many elements as its operand, of the same type
 *
 * and those of verify_plan.c. Inference runs on a copy of the dims: verifying does not change the
 * module. */
#include "ir/bundle.h"
#include "ir/verify_int.h"

#include <string.h>

enum { SAMPLE_RANGE = 997 };

static const char *type_text(weft_verifier *v, const weft_ttype *t)
{
    weft_buf buf = {0};
    if (t->dtype == WEFT_DTYPE_NONE)
        return "none";
    weft_buf_printf(&buf, "%s[", weft_dtype_name((weft_dtype)t->dtype));
    for (uint32_t k = 0; k < t->rank; k++) {
        weft_buf_puts(&buf, k ? "," : "");
        weft_dim_print(v->dims, t->dim[k], &buf);
    }
    weft_buf_putc(&buf, ']');
    return weft_buf_keep(&buf, v->scratch);
}

/* -- Ports and weights ------------------------------------------------------------------------ */

static bool is_defined(const weft_verifier *v, weft_val val)
{
    if (!val.i || val.i >= v->m->vals.len)
        return false;
    const weft_val_rec *rec = &v->m->vals.at[val.i];
    if (rec->kind == WEFT_VAL_INPUT)
        return rec->def == v->g->idx;
    return rec->kind == WEFT_VAL_WEIGHT || v->order[val.i];
}

static void check_names(weft_verifier *v, bool outputs)
{
    weft_names *seen = weft_names_create(v->scratch);
    uint32_t n = outputs ? weft_graph_output_count(v->g) : weft_graph_input_count(v->g);
    for (uint32_t i = 0; i < n; i++) {
        const char *name =
            outputs ? weft_graph_output_name(v->g, i) : weft_graph_input_name(v->g, i);
        const char *what = outputs ? "output" : "input";
        if (!name || !*name)
            weft_verifier__report(v, "ports", weft_verifier__where(v), "%s %u has no name", what,
                                  i);
        else if (weft_names_find(seen, name, strlen(name)))
            weft_verifier__report(v, "ports", weft_verifier__where(v), "two %ss are named \"%s\"",
                                  what, name);
        else
            weft_names_add(seen, name, strlen(name));
    }
}

static void check_port_type(weft_verifier *v, const char *what, const char *name, weft_val val)
{
    const weft_ttype *t = weft_val_ttype(v->m, val);
    if (t->dtype == WEFT_DTYPE_NONE)
        weft_verifier__report(v, "type-match", weft_verifier__where(v), "%s \"%s\" has no type",
                              what, name);
    if (t->layout != WEFT_LAYOUT_PLAIN)
        weft_verifier__report(v, "layout-allowed", weft_verifier__where(v),
                              "%s \"%s\" has layout %s", what, name,
                              weft_layout_name((weft_layout)t->layout));
}

static void check_ports(weft_verifier *v)
{
    check_names(v, false);
    check_names(v, true);
    for (uint32_t i = 0; i < weft_graph_input_count(v->g); i++)
        check_port_type(v, "input", weft_graph_input_name(v->g, i), weft_graph_input(v->g, i));
    if (weft_graph_output_count(v->g) == 0)
        weft_verifier__report(v, "ports", weft_verifier__where(v), "the graph has no outputs");
    for (uint32_t i = 0; i < weft_graph_output_count(v->g); i++) {
        weft_val val = weft_graph_output(v->g, i);
        if (!is_defined(v, val))
            weft_verifier__report(v, "ports", weft_verifier__where(v),
                                  "output \"%s\" is not defined in the graph",
                                  weft_graph_output_name(v->g, i));
        else
            check_port_type(v, "output", weft_graph_output_name(v->g, i), val);
    }
}

static void check_weights(weft_verifier *v)
{
    for (uint32_t i = 1; i <= weft_weight_count(v->m); i++) {
        const weft_weight_info *info = weft_weight_get(v->m, (weft_weight){i});
        weft_where where = {.file = weft_module_file_path(v->m, info->file_id), .item = info->name};
        uint64_t need;
        if (!weft_type__bytes(v->m, info->type, &need))
            weft_verifier__report(v, "weight-bytes", where,
                                  "a weight needs constant dimensions and the plain layout");
        else if (info->bytes != need || (need && !info->data))
            weft_verifier__report(v, "weight-bytes", where, "%llu bytes, its type needs %llu",
                                  (unsigned long long)info->bytes, (unsigned long long)need);
        if (weft_val_type(v->m, weft_weight_val(v->m, (weft_weight){i})).i != info->type.i)
            weft_verifier__report(v, "type-match", where,
                                  "the value of the weight has another type than the weight");
    }
}

/* -- Nodes ------------------------------------------------------------------------------------ */

static bool check_operands(weft_verifier *v, weft_node n)
{
    weft_module *m = v->m;
    const weft_op *op = weft_node_opdef(m, n);
    uint32_t n_in = weft_node_in_count(m, n), n_out = weft_node_out_count(m, n);
    weft_where where = weft_node_where(m, n);
    bool ok = true;
    for (uint32_t i = 0; i < n_in; i++) {
        weft_val val = weft_node_in(m, n, i);
        if (val.i && !is_defined(v, val)) {
            weft_verifier__report(v, "ssa-order", where,
                                  "%s: operand %u (%s) is not defined before its use", op->name, i,
                                  weft_verifier__val(v, val));
            ok = false;
        } else if (!val.i && i < op->in_min) {
            weft_verifier__report(v, "operand-count", where, "%s: operand %u is missing", op->name,
                                  i);
            ok = false;
        }
    }
    if (n_in < op->in_min || (op->in_max != WEFT_VARIADIC && n_in > op->in_max)) {
        weft_verifier__report(v, "operand-count", where, "%s: %u operands, expected %u to %u",
                              op->name, n_in, op->in_min, op->in_max);
        ok = false;
    }
    if (n_out < op->out_min || (op->out_max != WEFT_VARIADIC && n_out > op->out_max)) {
        weft_verifier__report(v, "operand-count", where, "%s: %u results, expected %u to %u",
                              op->name, n_out, op->out_min, op->out_max);
        ok = false;
    }
    return ok;
}

/* Reports the messages of another function under the name of a rule. */
static void repeat(weft_verifier *v, const char *rule, weft_diag *said, weft_err err,
                   weft_where where)
{
    if (weft_diag_count(said) == 0)
        weft_verifier__report(v, rule, where, "%s", weft_err_text(err));
    for (size_t i = 0; i < weft_diag_count(said); i++)
        weft_verifier__report(v, rule, where, "%s", weft_diag_at(said, i)->text);
    weft_diag_clear(said);
}

/* Sample values of the symbols: the lower bounds, then pseudo-random values within the bounds. */
static void make_samples(weft_verifier *v)
{
    uint64_t x = 1;
    v->n_sample = weft_dim_symbol_count(v->dims);
    v->sample = weft_arena_array(v->scratch, (size_t)WEFT_SAMPLES * v->n_sample, sizeof *v->sample);
    for (uint32_t i = 0; i < WEFT_SAMPLES * v->n_sample; i++) {
        int64_t lo, hi;
        weft_dim_symbol_range(v->dims, i % v->n_sample, &lo, &hi);
        uint64_t room = hi - lo < SAMPLE_RANGE ? (uint64_t)(hi - lo) + 1 : SAMPLE_RANGE;
        x = weft_hash_mix(x, i);
        v->sample[i] = i < v->n_sample ? lo : lo + (int64_t)(x % room);
    }
}

/* Only sizes that satisfy the graph's requirements tell whether dims agree. */
static void allow_samples(weft_verifier *v)
{
    for (uint32_t k = 0; k < WEFT_SAMPLES; k++)
        v->allowed[k] = !weft_graph_find_broken(v->g, v->dims, v->sample + (size_t)k * v->n_sample,
                                                v->n_sample);
}

/* The dims are equal, or one of them is known only at run time. Bounds that became tighter after a
 * type was made change the form of a dim (min(?s, 512) is ?s once ?s <= 512 is known), so dims with
 * different handles are compared at sample values. */
static bool dims_agree(weft_verifier *v, weft_dim a, weft_dim b)
{
    if (a == b || weft_dim_is_data(v->dims, a) || weft_dim_is_data(v->dims, b))
        return true;
    for (uint32_t k = 0; k < WEFT_SAMPLES; k++) {
        const int64_t *value = v->sample + (size_t)k * v->n_sample;
        int64_t x, y;
        if (v->allowed[k] && weft_dim_eval(v->dims, a, value, v->n_sample, &x) &&
            weft_dim_eval(v->dims, b, value, v->n_sample, &y) && x != y)
            return false;
    }
    return true;
}

static void check_type(weft_verifier *v, weft_node n, uint32_t i, const weft_ttype *inferred)
{
    weft_module *m = v->m;
    const weft_ttype *stored = weft_val_ttype(m, weft_node_out(m, n, i));
    const char *op = weft_node_opdef(m, n)->name;
    if (stored->dtype == WEFT_DTYPE_NONE)
        return;
    bool same = stored->dtype == inferred->dtype && stored->rank == inferred->rank;
    for (uint32_t k = 0; same && k < stored->rank; k++)
        same = dims_agree(v, stored->dim[k], inferred->dim[k]);
    if (!same)
        weft_verifier__report(v, "type-match", weft_node_where(m, n),
                              "%s: result %u is %s, inference says %s", op, i, type_text(v, stored),
                              type_text(v, inferred));
    else if (stored->layout != inferred->layout)
        weft_verifier__report(v, "layout-allowed", weft_node_where(m, n),
                              "%s: result %u has layout %s, should be %s", op, i,
                              weft_layout_name((weft_layout)stored->layout),
                              weft_layout_name((weft_layout)inferred->layout));
}

static bool check_layouts(weft_verifier *v, weft_node n)
{
    weft_module *m = v->m;
    const weft_op *op = weft_node_opdef(m, n);
    bool ok = true;
    uint32_t n_in = weft_node_in_count(m, n), n_out = weft_node_out_count(m, n);
    for (uint32_t i = 0; i < n_in + n_out; i++) {
        weft_val val = i < n_in ? weft_node_in(m, n, i) : weft_node_out(m, n, i - n_in);
        const weft_ttype *t = weft_val_ttype(m, val);
        const char *what = i < n_in ? "operand" : "result";
        if (t->layout == WEFT_LAYOUT_PLAIN)
            continue;
        if (!(op->traits & WEFT_T_LAYOUT) || t->rank < 3) {
            weft_verifier__report(v, "layout-allowed", weft_node_where(m, n),
                                  "%s: %s %u has layout %s, rank %u", op->name, what,
                                  i < n_in ? i : i - n_in, weft_layout_name((weft_layout)t->layout),
                                  t->rank);
            ok = false;
        }
    }
    return ok;
}

static void check_view(weft_verifier *v, weft_node n)
{
    weft_module *m = v->m;
    const weft_ttype *in = weft_val_ttype(m, weft_node_in(m, n, 0));
    const weft_ttype *out = weft_val_ttype(m, weft_node_out(m, n, 0));
    weft_dim a = weft_ttype_numel(v->dims, in), b = weft_ttype_numel(v->dims, out);
    if (in->dtype != out->dtype || !dims_agree(v, a, b))
        weft_verifier__report(v, "view-bytes", weft_node_where(m, n),
                              "%s: %s does not have the bytes of %s", weft_node_opdef(m, n)->name,
                              type_text(v, out), type_text(v, in));
}

static void check_node(weft_verifier *v, weft_node n, weft_diag *said)
{
    weft_module *m = v->m;
    const weft_op *op = weft_node_opdef(m, n);
    weft_where where = weft_node_where(m, n);
    uint32_t n_out = weft_node_out_count(m, n);
    if (m->stage != WEFT_STAGE_GRAPH && (op->traits & WEFT_T_GRAPH_ONLY))
        weft_verifier__report(v, "no-graph-only-op", where, "%s at the %s stage", op->name,
                              weft_stage_name(m->stage));
    bool ok = check_operands(v, n);
    weft_err err = weft_op_check_attrs(op, weft_node_attrs(m, n), said, where);
    if (err != WEFT_ERR_OK)
        repeat(v, "attr-schema", said, err, where);
    if (!ok || err != WEFT_ERR_OK || !check_layouts(v, n))
        return;
    weft_ttype *type = weft_arena_array(v->scratch, n_out, sizeof *type);
    err = weft_node__infer(n, v->dims, v->contents, said, type, n_out);
    if (err != WEFT_ERR_OK) {
        repeat(v, "type-match", said, err, where);
        return;
    }
    for (uint32_t i = 0; i < n_out; i++)
        check_type(v, n, i, &type[i]);
    if (op->traits & WEFT_T_VIEW)
        check_view(v, n);
}

/* A joint graph has the inputs and outputs of the models that it names, but a packed one
 * has the inputs of one part and some of its own. */
static void check_parts(weft_verifier *v)
{
    uint64_t n_in = 0, n_out = 0;
    uint32_t n = weft_graph_part_count(v->g);
    for (uint32_t i = 0; i < n; i++) {
        const weft_part *part = weft_graph_part(v->g, i);
        const weft_graph *model = weft_graph_find(v->m, part->model);
        n_in += part->n_in;
        n_out += part->n_out;
        if (weft_graph_is_packed(v->g) && part->n_in != weft_graph_part(v->g, 0)->n_in)
            weft_verifier__report(v, "parts", weft_verifier__where(v),
                                  "@%s has %u inputs, other packed parts %u", part->model,
                                  part->n_in, weft_graph_part(v->g, 0)->n_in);
        if (!model || weft_graph_part_count(model) > 0)
            weft_verifier__report(v, "parts", weft_verifier__where(v), "@%s is no model",
                                  part->model);
        else if (weft_graph_input_count(model) != part->n_in ||
                 weft_graph_output_count(model) != part->n_out)
            weft_verifier__report(v, "parts", weft_verifier__where(v),
                                  "@%s has %u inputs and %u outputs, its part %u and %u",
                                  part->model, weft_graph_input_count(model),
                                  weft_graph_output_count(model), part->n_in, part->n_out);
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(weft_graph_part(v->g, k)->model, part->model) == 0)
                weft_verifier__report(v, "parts", weft_verifier__where(v), "@%s is twice a part",
                                      part->model);
    }
    if (weft_graph_is_packed(v->g) && n > 0)
        n_in = (uint64_t)weft_graph_part(v->g, 0)->n_in + weft_bundle_packed_extra(n);
    if (n > 0 && (n_in != weft_graph_input_count(v->g) || n_out != weft_graph_output_count(v->g)))
        weft_verifier__report(v, "parts", weft_verifier__where(v),
                              "parts have %llu inputs and %llu outputs, the graph %u and %u",
                              (unsigned long long)n_in, (unsigned long long)n_out,
                              weft_graph_input_count(v->g), weft_graph_output_count(v->g));
}

static void check_graph(weft_verifier *v, weft_diag *said)
{
    uint32_t number = 0;
    WEFT_FOREACH_NODE (v->m, v->g, n) {
        check_node(v, n, said);
        number++;
        for (uint32_t i = 0; i < weft_node_out_count(v->m, n); i++)
            v->order[weft_node_out(v->m, n, i).i] = number;
    }
    check_ports(v);
    check_parts(v);
    /* The rules of the plan stage follow views and need a graph without errors. */
    if (v->m->stage == WEFT_STAGE_PLAN && v->err == WEFT_ERR_OK)
        weft_verifier__plan(v);
}

static void check_module(weft_verifier *v, weft_diag *said)
{
    v->dims = weft_dimpool_clone(v->m->dims, v->scratch);
    v->contents = weft_contents_create(v->m, v->scratch);
    make_samples(v);
    weft_err err = weft_body_check(v->m, said);
    if (err != WEFT_ERR_OK)
        repeat(v, "bodies", said, err, (weft_where){0});
    v->order = weft_arena_array(v->scratch, v->m->vals.len, sizeof *v->order);
    check_weights(v);
    /* Inference reads the bytes of weights. */
    if (v->err != WEFT_ERR_OK)
        return;
    for (uint32_t i = 0; i < weft_graph_count(v->m); i++) {
        v->g = weft_graph_at(v->m, i);
        allow_samples(v);
        check_graph(v, said);
    }
}

static void check_guarded(weft_verifier *v, weft_diag *said)
{
    jmp_buf env;
    jmp_buf *before = weft_arena_guard(v->m->arena, &env);
    weft_arena_guard(v->scratch, &env);
    if (setjmp(env))
        v->err = weft_diag_error(v->diag, WEFT_ERR_NOMEM, (weft_where){0},
                                 "out of memory while verifying");
    else
        check_module(v, said);
    weft_arena_guard(v->m->arena, before);
}

weft_err weft_module_verify(weft_module *m, weft_diag *diag)
{
    weft_verifier v = {.m = m, .diag = diag, .scratch = weft_arena_create(0)};
    weft_diag *said = weft_diag_create();
    if (v.scratch && said)
        check_guarded(&v, said);
    else
        v.err = weft_diag_error(diag, WEFT_ERR_NOMEM, (weft_where){0}, "out of memory");
    weft_diag_destroy(said);
    weft_arena_destroy(v.scratch);
    return v.err;
}
