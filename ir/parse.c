/* Recursive-descent parser of the text form: one function for each rule of the grammar in
 * README.md, one token of look-ahead. Stops at the first error. */
#include "ir/parse_int.h"

#include <stdlib.h>
#include <string.h>

enum {
    RESULTS_MAX = 1 << 12,
    PORTS_MAX = 1 << 16,
    BUCKETS_MAX = 1 << 12,
    SYMBOLS_MAX = 1 << 16,
    GRAPHS_MAX = 1 << 14
};

/* -- Symbols ---------------------------------------------------------------------------------- */

static bool find_symbol(const weft_parser *p, weft_dim *out)
{
    uint64_t found;
    uint32_t name = weft_names_find(p->names, p->tok.s, p->tok.s_len);
    if (!name || !weft_map_get(p->symbols, name, &found))
        return false;
    *out = (weft_dim)found;
    return true;
}

static weft_err parse_bounds(weft_parser *p, int64_t *lo, int64_t *hi)
{
    WEFT_TRY(weft_parser__punct(p, '['));
    WEFT_TRY(weft_parser__i64(p, lo));
    WEFT_TRY(weft_parser__punct(p, ','));
    if (weft_parser__is_word(p, "inf")) {
        WEFT_TRY(weft_parser__next(p));
    } else {
        WEFT_TRY(weft_parser__i64(p, hi));
    }
    if (*lo < 0 || *lo > *hi || *hi > INT64_MAX / 4)
        return weft_parser__fail(p, "bounds of a symbol must be 0 <= low <= high");
    return weft_parser__punct(p, ']');
}

/* symbol ?b = [1, 8] */
static weft_err parse_symbol(weft_parser *p)
{
    int64_t lo = 0, hi = INT64_MAX / 4;
    weft_dim dim;
    WEFT_TRY(weft_parser__next(p));
    if (p->tok.kind != WEFT_TOKEN_SYMBOL)
        return weft_parser__expected(p, "a symbol");
    const char *name = p->tok.s;
    if (!weft_text__is_ident(name))
        return weft_parser__fail(p, "the name of a symbol starts with a letter");
    if (find_symbol(p, &dim))
        return weft_parser__fail(p, "symbol ?%s is declared twice", name);
    if (weft_dim_symbol_count(p->m->dims) == SYMBOLS_MAX)
        return weft_parser__fail(p, "more than %d symbols", SYMBOLS_MAX);
    uint32_t id = weft_names_add(p->names, p->tok.s, p->tok.s_len);
    WEFT_TRY(weft_parser__next(p));
    if (weft_parser__is_punct(p, '=')) {
        WEFT_TRY(weft_parser__next(p));
        WEFT_TRY(parse_bounds(p, &lo, &hi));
    }
    dim = weft_dim_symbol(p->m->dims, name, lo, hi);
    weft_map_put(p->symbols, id, (uint64_t)dim);
    if (weft_parser__is_word(p, "data")) {
        weft_dim_declare_data(p->m->dims, name);
        WEFT_TRY(weft_parser__next(p));
    }
    return WEFT_ERR_OK;
}

/* symbol ?b "batch", in a graph */
static weft_err parse_graph_symbol(weft_parser *p)
{
    weft_dim dim;
    const char *name;
    WEFT_TRY(weft_parser__next(p));
    if (p->tok.kind != WEFT_TOKEN_SYMBOL)
        return weft_parser__expected(p, "a symbol");
    if (!find_symbol(p, &dim))
        return weft_parser__fail(p, "symbol ?%s is not declared", p->tok.s);
    for (uint32_t i = 0; i < p->g->symbols.len; i++)
        if (p->g->symbols.at[i].dim == dim)
            return weft_parser__fail(p, "symbol ?%s is listed twice", p->tok.s);
    WEFT_TRY(weft_parser__next(p));
    WEFT_TRY(weft_parser__string(p, &name));
    weft_graph__add_symbol(p->g, name, dim);
    return WEFT_ERR_OK;
}

/* require fits [?a, ?b, ?guard] "Add: dimension" "Add_12"; guard and node may be left out */
static weft_err parse_require(weft_parser *p)
{
    weft_graph_require r = {.kind = WEFT_REQUIRE_EQUAL, .guard = 1};
    const weft_dim *dim;
    uint32_t n;
    WEFT_TRY(weft_parser__next(p));
    if (weft_parser__is_word(p, "fits"))
        r.kind = WEFT_REQUIRE_FITS;
    else if (weft_parser__is_word(p, "differ"))
        r.kind = WEFT_REQUIRE_DIFFER;
    else if (!weft_parser__is_word(p, "equal"))
        return weft_parser__expected(p, "`equal`, `fits` or `differ`");
    WEFT_TRY(weft_parser__next(p));
    if (!weft_parser__is_punct(p, '['))
        return weft_parser__expected(p, "`[`");
    WEFT_TRY(weft_parser__dims(p, 3, &dim, &n));
    if (n < 2)
        return weft_parser__fail(p, "two dimensions, or two and a guard, make a requirement");
    r.a = dim[0];
    r.b = dim[1];
    r.guard = n > 2 ? dim[2] : 1;
    WEFT_TRY(weft_parser__string(p, &r.what));
    if (p->tok.kind == WEFT_TOKEN_STRING)
        WEFT_TRY(weft_parser__string(p, &r.item));
    if (!weft_graph_add_require(p->g, &r))
        return weft_parser__fail(p, "more than %d requirements", WEFT_GRAPH_REQUIRES_MAX);
    return WEFT_ERR_OK;
}

/* part @model 2 1 */
static weft_err parse_part(weft_parser *p)
{
    weft_part part = {0};
    uint64_t n_in = 0, n_out = 0;
    WEFT_TRY(weft_parser__next(p));
    if (p->tok.kind != WEFT_TOKEN_GRAPH)
        return weft_parser__expected(p, "the name of a graph");
    if (p->g->parts.len == GRAPHS_MAX)
        return weft_parser__fail(p, "more than %d parts", GRAPHS_MAX);
    part.model = weft_module__name(p->m, p->tok.s);
    WEFT_TRY(weft_parser__next(p));
    WEFT_TRY(weft_parser__u64(p, UINT32_MAX, "a number of inputs", &n_in));
    WEFT_TRY(weft_parser__u64(p, UINT32_MAX, "a number of outputs", &n_out));
    part.n_in = (uint32_t)n_in;
    part.n_out = (uint32_t)n_out;
    weft_graph_add_part(p->g, &part);
    return WEFT_ERR_OK;
}

static weft_err parse_packed(weft_parser *p)
{
    if (p->g->parts.len == 0)
        return weft_parser__fail(p, "a packed graph without parts");
    weft_graph_set_packed(p->g);
    return weft_parser__next(p);
}

/* limit 4096 */
static weft_err parse_limit(weft_parser *p)
{
    uint64_t elements = 0;
    if (p->g->parts.len == 0)
        return weft_parser__fail(p, "a limit of a graph without parts");
    WEFT_TRY(weft_parser__next(p));
    WEFT_TRY(weft_parser__u64(p, INT64_MAX, "a number of elements", &elements));
    weft_graph_set_limit(p->g, elements);
    return WEFT_ERR_OK;
}

/* -- Values ----------------------------------------------------------------------------------- */

static weft_err check_new(weft_parser *p, uint32_t *out_name)
{
    uint64_t found;
    *out_name = weft_names_add(p->names, p->tok.s, p->tok.s_len);
    if (weft_map_get(p->vals, *out_name, &found))
        return weft_parser__fail(p, "value %%%s is defined twice", p->tok.s);
    return WEFT_ERR_OK;
}

/* %x, $w or, where allowed, _ */
static weft_err parse_operand(weft_parser *p, bool none_allowed, weft_val *out)
{
    uint64_t found;
    uint32_t name = weft_names_find(p->names, p->tok.s, p->tok.s ? p->tok.s_len : 0);
    if (p->tok.kind == WEFT_TOKEN_VALUE) {
        if (!name || !weft_map_get(p->vals, name, &found))
            return weft_parser__fail(p, "value %%%s is not defined before its use", p->tok.s);
        *out = (weft_val){(uint32_t)found};
    } else if (p->tok.kind == WEFT_TOKEN_WEIGHT) {
        if (!name || !weft_map_get(p->weights, name, &found))
            return weft_parser__fail(p, "weight $%s is not defined", p->tok.s);
        *out = weft_weight_val(p->m, (weft_weight){(uint32_t)found});
    } else if (none_allowed && weft_parser__is_word(p, "_")) {
        *out = (weft_val){0};
    } else {
        return weft_parser__expected(p, none_allowed ? "a value, a weight or `_`"
                                                     : "a value or a weight");
    }
    return weft_parser__next(p);
}

/* -- Attributes ------------------------------------------------------------------------------- */

/* Elements of a list whose '[' is the current token; the first one determines the kind. */
static weft_err parse_list(weft_parser *p, weft_attr *out)
{
    WEFT_VEC(int64_t) ints = {0};
    WEFT_VEC(double) floats = {0};
    WEFT_VEC(const char *) strs = {0};
    uint32_t n = 0;
    WEFT_TRY(weft_parser__punct(p, '['));
    for (; !weft_parser__is_punct(p, ']'); n++) {
        int64_t i;
        double f;
        const char *s;
        if (n == WEFT_TEXT_MAX_LIST)
            return weft_parser__fail(p, "a list has over %d elements", WEFT_TEXT_MAX_LIST);
        if (n)
            WEFT_TRY(weft_parser__punct(p, ','));
        if (p->tok.kind == WEFT_TOKEN_STRING && n == strs.len) {
            WEFT_TRY(weft_parser__string(p, &s));
            WEFT_VEC_PUSH(p->scratch, &strs, s);
        } else if (weft_parser__is_float(p) && n == floats.len) {
            WEFT_TRY(weft_parser__f64(p, &f));
            WEFT_VEC_PUSH(p->scratch, &floats, f);
        } else if (p->tok.kind == WEFT_TOKEN_INT && n == ints.len) {
            WEFT_TRY(weft_parser__i64(p, &i));
            WEFT_VEC_PUSH(p->scratch, &ints, i);
        } else {
            return weft_parser__expected(p, n ? "an element of the same kind" : "an element");
        }
    }
    out->n = n;
    if (strs.len) {
        out->kind = WEFT_KIND_STRS;
        out->u.strs = strs.at;
    } else if (floats.len) {
        out->kind = WEFT_KIND_FLOATS;
        out->u.floats = floats.at;
    } else if (ints.len) {
        out->kind = WEFT_KIND_INTS;
        out->u.ints = ints.at;
    } else {
        return weft_parser__fail(p, "an empty list needs its kind: ints[], floats[] or strs[]");
    }
    return weft_parser__punct(p, ']');
}

static weft_err parse_empty(weft_parser *p, weft_attr *out)
{
    static const struct {
        const char *word;
        weft_attr_kind kind;
    } kinds[] = {{"ints", WEFT_KIND_INTS}, {"floats", WEFT_KIND_FLOATS}, {"strs", WEFT_KIND_STRS}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (!weft_parser__is_word(p, kinds[i].word))
            continue;
        out->kind = (uint16_t)kinds[i].kind;
        WEFT_TRY(weft_parser__next(p));
        WEFT_TRY(weft_parser__punct(p, '['));
        return weft_parser__punct(p, ']');
    }
    return weft_parser__expected(p, "the value of an attribute");
}

static weft_err parse_attr_value(weft_parser *p, weft_attr *out)
{
    if (p->tok.kind == WEFT_TOKEN_INT) {
        out->kind = WEFT_KIND_INT;
        return weft_parser__i64(p, &out->u.i);
    }
    if (weft_parser__is_float(p)) {
        out->kind = WEFT_KIND_FLOAT;
        return weft_parser__f64(p, &out->u.f);
    }
    if (p->tok.kind == WEFT_TOKEN_STRING) {
        out->kind = WEFT_KIND_STR;
        return weft_parser__string(p, &out->u.s);
    }
    if (weft_parser__is_punct(p, '['))
        return parse_list(p, out);
    if (weft_parser__is_word(p, "dims")) {
        out->kind = WEFT_KIND_DIMS;
        WEFT_TRY(weft_parser__next(p));
        return weft_parser__dims(p, WEFT_TEXT_MAX_LIST, &out->u.dims, &out->n);
    }
    if (p->tok.kind != WEFT_TOKEN_WORD)
        return weft_parser__expected(p, "the value of an attribute");
    out->u.dtype = weft_dtype_parse(p->tok.s);
    if (out->u.dtype == WEFT_DTYPE_NONE)
        return parse_empty(p, out);
    out->kind = WEFT_KIND_DTYPE;
    return weft_parser__next(p);
}

/* {key = value, ...} */
static weft_err parse_attrs(weft_parser *p, weft_node_spec *spec)
{
    WEFT_VEC(weft_attr) attrs = {0};
    if (!weft_parser__is_punct(p, '{'))
        return WEFT_ERR_OK;
    WEFT_TRY(weft_parser__next(p));
    do {
        weft_attr a = {0};
        if (attrs.len)
            WEFT_TRY(weft_parser__punct(p, ','));
        if (p->tok.kind != WEFT_TOKEN_WORD)
            return weft_parser__expected(p, "the name of an attribute");
        a.key = (uint16_t)weft_attr_key_parse(p->tok.s);
        if (a.key == WEFT_ATTR_NONE)
            return weft_parser__expected(p, "the name of an attribute");
        for (uint32_t i = 0; i < attrs.len; i++)
            if (attrs.at[i].key == a.key)
                return weft_parser__fail(p, "attribute `%s` is given twice", p->tok.s);
        WEFT_TRY(weft_parser__next(p));
        WEFT_TRY(weft_parser__punct(p, '='));
        WEFT_TRY(parse_attr_value(p, &a));
        WEFT_VEC_PUSH(p->scratch, &attrs, a);
    } while (!weft_parser__is_punct(p, '}'));
    spec->attr = attrs.at;
    spec->n_attr = attrs.len;
    return weft_parser__next(p);
}

/* -- Nodes ------------------------------------------------------------------------------------ */

/* loc "file" 12 "item" */
static weft_err parse_loc(weft_parser *p, weft_loc *out)
{
    const char *file;
    uint64_t line = 0;
    if (!weft_parser__is_word(p, "loc"))
        return WEFT_ERR_OK;
    WEFT_TRY(weft_parser__next(p));
    WEFT_TRY(weft_parser__string(p, &file));
    *out = (weft_loc){.file_id = *file ? weft_module_name_file(p->m, file) : 0};
    if (p->tok.kind == WEFT_TOKEN_INT)
        WEFT_TRY(weft_parser__u64(p, UINT32_MAX, "a line", &line));
    out->line = (uint32_t)line;
    if (p->tok.kind == WEFT_TOKEN_STRING)
        WEFT_TRY(weft_parser__string(p, &out->item));
    return WEFT_ERR_OK;
}

typedef struct results {
    WEFT_VEC(uint32_t) names; /* 0: omitted */
    WEFT_VEC(weft_type) types;
} results;

/* %1 : f32[2], _ = */
static weft_err parse_results(weft_parser *p, results *out)
{
    while (!weft_parser__is_punct(p, '=')) {
        uint32_t name = 0;
        weft_type type = {0};
        if (out->names.len == RESULTS_MAX)
            return weft_parser__fail(p, "a node has over %d results", RESULTS_MAX);
        if (out->names.len)
            WEFT_TRY(weft_parser__punct(p, ','));
        if (weft_parser__is_word(p, "_")) {
            WEFT_TRY(weft_parser__next(p));
        } else {
            if (p->tok.kind != WEFT_TOKEN_VALUE)
                return weft_parser__expected(p, "a value, `_` or `=`");
            WEFT_TRY(check_new(p, &name));
            /* Reserved now, so that `%1 : .., %1 : ..` is an error; operands cannot use it yet. */
            for (uint32_t i = 0; i < out->names.len; i++)
                if (out->names.at[i] == name)
                    return weft_parser__fail(p, "value %%%s is defined twice", p->tok.s);
            WEFT_TRY(weft_parser__next(p));
            WEFT_TRY(weft_parser__punct(p, ':'));
            WEFT_TRY(weft_parser__type(p, &type));
        }
        WEFT_VEC_PUSH(p->scratch, &out->names, name);
        WEFT_VEC_PUSH(p->scratch, &out->types, type);
    }
    return weft_parser__next(p);
}

/* Operands begin on the line of the operator; otherwise the `%1` that begins the next node would be
 * read as an operand. */
static weft_err parse_operands(weft_parser *p, weft_node_spec *spec, uint32_t line)
{
    WEFT_VEC(weft_val) in = {0};
    bool more =
        p->tok.line == line && (p->tok.kind == WEFT_TOKEN_VALUE ||
                                p->tok.kind == WEFT_TOKEN_WEIGHT || weft_parser__is_word(p, "_"));
    while (more) {
        weft_val v;
        if (in.len == WEFT_TEXT_MAX_LIST)
            return weft_parser__fail(p, "a node has over %d operands", WEFT_TEXT_MAX_LIST);
        WEFT_TRY(parse_operand(p, true, &v));
        WEFT_VEC_PUSH(p->scratch, &in, v);
        more = weft_parser__is_punct(p, ',');
        if (more)
            WEFT_TRY(weft_parser__next(p));
    }
    spec->in = in.at;
    spec->n_in = in.len;
    return WEFT_ERR_OK;
}

static weft_err parse_node(weft_parser *p)
{
    results res = {0};
    weft_node_spec spec = {.loc = {p->file_id, NULL, p->tok.line}};
    if (++p->nodes > WEFT_TEXT_MAX_NODES)
        return weft_parser__fail(p, "more than %d nodes", WEFT_TEXT_MAX_NODES);
    if (p->tok.kind != WEFT_TOKEN_WORD || weft_parser__is_word(p, "_"))
        WEFT_TRY(parse_results(p, &res));
    spec.op = p->tok.kind == WEFT_TOKEN_WORD ? weft_op_find(p->tok.s) : WEFT_OP_NONE;
    if (spec.op == WEFT_OP_NONE)
        return weft_parser__expected(p, "an operator");
    uint32_t line = p->tok.line;
    WEFT_TRY(weft_parser__next(p));
    WEFT_TRY(parse_operands(p, &spec, line));
    WEFT_TRY(parse_attrs(p, &spec));
    WEFT_TRY(parse_loc(p, &spec.loc));
    spec.out = res.types.at;
    spec.n_out = res.types.len;
    weft_node n = weft_node_append(p->g, &spec);
    for (uint32_t i = 0; i < spec.n_out; i++)
        if (res.names.at[i])
            weft_map_put(p->vals, res.names.at[i], weft_node_out(p->m, n, i).i);
    return WEFT_ERR_OK;
}

/* -- Graphs ----------------------------------------------------------------------------------- */

/* (%x "name" : f32[2], ...) */
static weft_err parse_inputs(weft_parser *p)
{
    WEFT_TRY(weft_parser__punct(p, '('));
    while (!weft_parser__is_punct(p, ')')) {
        uint32_t name;
        weft_type type;
        if (p->g->inputs.len == PORTS_MAX)
            return weft_parser__fail(p, "a graph has over %d inputs", PORTS_MAX);
        if (p->g->inputs.len)
            WEFT_TRY(weft_parser__punct(p, ','));
        if (p->tok.kind != WEFT_TOKEN_VALUE)
            return weft_parser__expected(p, "an input");
        WEFT_TRY(check_new(p, &name));
        const char *text = p->tok.s;
        WEFT_TRY(weft_parser__next(p));
        if (p->tok.kind == WEFT_TOKEN_STRING)
            WEFT_TRY(weft_parser__string(p, &text));
        WEFT_TRY(weft_parser__punct(p, ':'));
        WEFT_TRY(weft_parser__type(p, &type));
        weft_map_put(p->vals, name, weft_graph_add_input(p->g, text, type).i);
    }
    return weft_parser__next(p);
}

/* return "logits" %1, ... */
static weft_err parse_return(weft_parser *p)
{
    bool more;
    WEFT_TRY(weft_parser__word(p, "return"));
    more = p->tok.kind == WEFT_TOKEN_STRING;
    while (more) {
        const char *name;
        weft_val v;
        if (p->g->outputs.len == PORTS_MAX)
            return weft_parser__fail(p, "a graph has over %d outputs", PORTS_MAX);
        WEFT_TRY(weft_parser__string(p, &name));
        WEFT_TRY(parse_operand(p, false, &v));
        weft_graph_add_output(p->g, name, v);
        more = weft_parser__is_punct(p, ',');
        if (more)
            WEFT_TRY(weft_parser__next(p));
    }
    return WEFT_ERR_OK;
}

/* {?b = 8, ...}: a value for each symbol of the graph, in any order */
static weft_err parse_bucket_symbols(weft_parser *p, weft_bucket *out)
{
    int64_t *value = weft_arena_array(p->scratch, p->g->symbols.len, sizeof *value);
    bool *given = weft_arena_array(p->scratch, p->g->symbols.len, sizeof *given);
    uint32_t n = 0;
    WEFT_TRY(weft_parser__punct(p, '{'));
    for (; !weft_parser__is_punct(p, '}'); n++) {
        weft_dim dim = 0;
        uint32_t i = 0;
        if (n)
            WEFT_TRY(weft_parser__punct(p, ','));
        if (p->tok.kind != WEFT_TOKEN_SYMBOL)
            return weft_parser__expected(p, "a symbol");
        bool known = find_symbol(p, &dim);
        while (i < p->g->symbols.len && p->g->symbols.at[i].dim != dim)
            i++;
        if (!known || i == p->g->symbols.len || given[i])
            return weft_parser__expected(p, "another symbol of the graph");
        given[i] = true;
        WEFT_TRY(weft_parser__next(p));
        WEFT_TRY(weft_parser__punct(p, '='));
        WEFT_TRY(weft_parser__i64(p, &value[i]));
    }
    if (n != p->g->symbols.len)
        return weft_parser__fail(p, "the bucket gives %u of the graph's %u symbols", n,
                                 p->g->symbols.len);
    out->symbol = value;
    out->n_symbol = n;
    return weft_parser__next(p);
}

/* %1 offset 0 bytes 64 live 0..3 */
static weft_err parse_buffer(weft_parser *p, weft_buffer *out)
{
    uint64_t first, last;
    WEFT_TRY(parse_operand(p, false, &out->val));
    WEFT_TRY(weft_parser__word(p, "offset"));
    WEFT_TRY(weft_parser__u64(p, UINT64_MAX, "an offset", &out->offset));
    WEFT_TRY(weft_parser__word(p, "bytes"));
    WEFT_TRY(weft_parser__u64(p, UINT64_MAX, "a size", &out->bytes));
    WEFT_TRY(weft_parser__word(p, "live"));
    WEFT_TRY(weft_parser__u64(p, UINT32_MAX, "the number of a node", &first));
    if (p->tok.kind != WEFT_TOKEN_PUNCT || p->tok.len != 2)
        return weft_parser__expected(p, "`..`");
    WEFT_TRY(weft_parser__next(p));
    WEFT_TRY(weft_parser__u64(p, UINT32_MAX, "the number of a node", &last));
    out->first = (uint32_t)first;
    out->last = (uint32_t)last;
    return WEFT_ERR_OK;
}

static weft_err parse_bucket(weft_parser *p)
{
    weft_bucket bucket = {0};
    WEFT_VEC(weft_buffer) buffers = {0};
    if (p->m->stage != WEFT_STAGE_PLAN)
        return weft_parser__fail(p, "a bucket before the plan stage");
    if (p->g->buckets.len == BUCKETS_MAX)
        return weft_parser__fail(p, "a graph has over %d buckets", BUCKETS_MAX);
    WEFT_TRY(weft_parser__next(p));
    WEFT_TRY(parse_bucket_symbols(p, &bucket));
    WEFT_TRY(weft_parser__word(p, "arena"));
    WEFT_TRY(weft_parser__u64(p, UINT64_MAX, "the size of an arena", &bucket.arena_bytes));
    WEFT_TRY(weft_parser__punct(p, '{'));
    while (!weft_parser__is_punct(p, '}')) {
        weft_buffer buffer = {0};
        WEFT_TRY(parse_buffer(p, &buffer));
        WEFT_VEC_PUSH(p->scratch, &buffers, buffer);
    }
    bucket.buffer = buffers.at;
    bucket.n_buffer = buffers.len;
    weft_graph_add_bucket(p->g, &bucket);
    return weft_parser__next(p);
}

static weft_err parse_graph(weft_parser *p)
{
    bool is_body = weft_parser__is_word(p, "body");
    WEFT_TRY(weft_parser__next(p));
    if (p->tok.kind != WEFT_TOKEN_GRAPH)
        return weft_parser__expected(p, "the name of a graph");
    if (weft_graph_find(p->m, p->tok.s))
        return weft_parser__fail(p, "graph @%s is defined twice", p->tok.s);
    if (weft_graph_count(p->m) == GRAPHS_MAX)
        return weft_parser__fail(p, "more than %d graphs", GRAPHS_MAX);
    p->g = weft_graph_create(p->m, p->tok.s);
    p->g->is_body = is_body;
    p->vals = weft_map_create(p->scratch);
    WEFT_TRY(weft_parser__next(p));
    WEFT_TRY(parse_inputs(p));
    WEFT_TRY(weft_parser__punct(p, '{'));
    while (weft_parser__is_word(p, "symbol"))
        WEFT_TRY(parse_graph_symbol(p));
    while (weft_parser__is_word(p, "require"))
        WEFT_TRY(parse_require(p));
    while (weft_parser__is_word(p, "part"))
        WEFT_TRY(parse_part(p));
    if (weft_parser__is_word(p, "packed"))
        WEFT_TRY(parse_packed(p));
    if (weft_parser__is_word(p, "limit"))
        WEFT_TRY(parse_limit(p));
    while (!weft_parser__is_word(p, "return"))
        WEFT_TRY(parse_node(p));
    WEFT_TRY(parse_return(p));
    while (weft_parser__is_word(p, "bucket"))
        WEFT_TRY(parse_bucket(p));
    return weft_parser__punct(p, '}');
}

/* -- Modules ---------------------------------------------------------------------------------- */

static weft_err parse_header(weft_parser *p)
{
    uint64_t version;
    WEFT_TRY(weft_parser__next(p));
    if (!weft_parser__is_word(p, "wir"))
        return weft_parser__expected(p, "`wir`, with which text IR begins");
    WEFT_TRY(weft_parser__next(p));
    weft_token tok = p->tok;
    WEFT_TRY(weft_parser__u64(p, UINT32_MAX, "a version", &version));
    if (version != 1) {
        p->tok = tok;
        return weft_parser__expected(p, "version 1");
    }
    for (weft_stage s = WEFT_STAGE_GRAPH; s <= WEFT_STAGE_PLAN; s++) {
        if (weft_parser__is_word(p, weft_stage_name(s))) {
            p->m->stage = s;
            return weft_parser__next(p);
        }
    }
    return weft_parser__expected(p, "`graph`, `kernel` or `plan`");
}

static weft_err parse_module(weft_parser *p)
{
    p->names = weft_names_create(p->scratch);
    p->symbols = weft_map_create(p->scratch);
    p->weights = weft_map_create(p->scratch);
    p->vals = weft_map_create(p->scratch);
    weft_module_file text = {.path = weft_arena_strdup(p->m->arena, p->file ? p->file : ""),
                             .is_text = true};
    p->file_id = p->m->files.len;
    WEFT_VEC_PUSH(p->m->arena, &p->m->files, text);
    WEFT_TRY(parse_header(p));
    while (p->tok.kind != WEFT_TOKEN_END) {
        if (weft_parser__is_word(p, "symbol"))
            WEFT_TRY(parse_symbol(p));
        else if (weft_parser__is_word(p, "weight"))
            WEFT_TRY(weft_parser__weight(p));
        else if (weft_parser__is_word(p, "graph") || weft_parser__is_word(p, "body"))
            WEFT_TRY(parse_graph(p));
        else
            return weft_parser__expected(p, "`symbol`, `weight`, `graph` or `body`");
    }
    return WEFT_ERR_OK;
}

static weft_err parse_guarded(weft_parser *p)
{
    jmp_buf env;
    weft_arena_guard(p->scratch, &env);
    weft_module_guard(p->m, &env);
    weft_err err;
    if (setjmp(env))
        err = weft_diag_error(p->diag, WEFT_ERR_NOMEM, (weft_where){p->file, NULL, p->line},
                              "out of memory");
    else
        err = parse_module(p);
    weft_module_guard(p->m, NULL);
    return err;
}

static weft_err parse_copy(const char *copy, const char *file, const char *dir,
                           uint64_t weight_bytes, weft_diag *diag, weft_module **out)
{
    weft_parser p = {.at = copy,
                     .line = 1,
                     .m = weft_module_create(2 * weight_bytes + ((uint64_t)1 << 30)),
                     .scratch = weft_arena_create((size_t)4 << 30),
                     .diag = diag,
                     .file = file,
                     .dir = dir,
                     .weight_bytes = weight_bytes};
    weft_err err = WEFT_ERR_NOMEM;
    if (p.m && p.scratch)
        err = parse_guarded(&p);
    else
        weft_diag_error(diag, err, (weft_where){file, NULL, 0}, "out of memory");
    weft_arena_destroy(p.scratch);
    if (err == WEFT_ERR_OK)
        *out = p.m;
    else
        weft_module_destroy(p.m);
    return err;
}

weft_err weft_module__parse(const char *text, size_t len, const char *file, const char *dir,
                            uint64_t weight_bytes, weft_diag *diag, weft_module **out)
{
    weft_where where = {file, NULL, 0};
    if (len > WEFT_TEXT_MAX_BYTES)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "the text is over %d bytes",
                               WEFT_TEXT_MAX_BYTES);
    if (memchr(text, '\0', len))
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "the text has a NUL character");
    char *copy = malloc(len + 1);
    if (!copy)
        return weft_diag_error(diag, WEFT_ERR_NOMEM, where, "out of memory");
    memcpy(copy, text, len);
    copy[len] = '\0';
    weft_err err = parse_copy(copy, file, dir, weight_bytes, diag, out);
    free(copy);
    return err;
}

weft_err weft_module_parse(const char *text, size_t len, const char *file, const char *dir,
                           weft_diag *diag, weft_module **out)
{
    return weft_module__parse(text, len, file, dir, WEFT_TEXT_MAX_WEIGHT_BYTES, diag, out);
}
