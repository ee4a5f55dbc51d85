/* Turns each graph into a program of the bundle. Values are numbered in order of appearance:
 * inputs, then the operands (weights) and results of each launch, then outputs. Every program has
 * its own pool of dimensions: first the symbols of the graph under the names of the model, then the
 * symbols whose values depend on data; a body also knows which of its symbols are symbols of the
 * program that runs it. Expressions are copied from pool to pool as text. */
#include "codegen/codegen_int.h"

#include "base/map.h"

#include <string.h>

static const weft_backend *const backends[] = {
#define BACKEND(name) &weft_backend_##name,
#include "codegen/backends.def"
#undef BACKEND
};

const weft_backend *weft_backend_at(size_t i)
{
    return i < sizeof backends / sizeof backends[0] ? backends[i] : NULL;
}

const weft_backend *weft_backend_find(const char *name)
{
    for (size_t i = 0; weft_backend_at(i); i++)
        if (strcmp(weft_backend_at(i)->name, name) == 0)
            return weft_backend_at(i);
    return NULL;
}

/* A weight of the bundle that is being generated. */
typedef struct content {
    weft_bundle_weight w;
    weft_hash128 hash;
    uint32_t next; /* index + 1 of the next content with the same low half of the hash; 0: none */
} content;

/* The symbols of a program, kept for its bodies. */
typedef struct around {
    weft_dimpool *dims; /* NULL: nothing runs the body */
    weft_map *dim_of, *data_of;
} around;

typedef struct generator {
    weft_module *m;
    const weft_backend *backend;
    weft_arena *arena;
    weft_diag *diag;
    const weft_codegen_options *options;
    weft_device_code code;
    weft_names *symbol_names; /* symbol i of the module has number i + 1 */
    WEFT_VEC(content) contents;
    weft_map *content_of_hash; /* low half of a hash to index + 1 of the last content */
    uint32_t *content_of;      /* index + 1 of the content of each weight of the module */
    uint32_t *number;          /* value of the current program for each value of the module */
    /* Of the current graph. */
    weft_graph *g;
    weft_dimpool *dims;
    weft_map *dim_of;      /* dims of the module to dims of the program */
    weft_map *data_of;     /* data symbols of the module to dims of the program */
    struct around *around; /* by graph; of a body: the program that runs it */
    WEFT_VEC(weft_bundle_value) values;
    WEFT_VEC(uint32_t) numbered; /* value of the module, by value of the program */
    weft_err err;
} generator;

static void fail(generator *g, weft_err err, const char *text, const char *name)
{
    weft_where where = {.item = weft_graph_name(g->g)};
    weft_diag_error(g->diag, err, where, "%s \"%s\"", text, name);
    if (g->err == WEFT_ERR_OK)
        g->err = err;
}

/* -- Dims ------------------------------------------------------------------------------------- */

/* Whether `d` is the batch symbol of one model of a joint graph. */
static bool is_part_batch(const weft_graph *g, weft_dim d)
{
    for (uint32_t i = 0; i < weft_graph_part_count(g); i++) {
        const weft_graph *model =
            weft_graph_find(weft_graph_module(g), weft_graph_part(g, i)->model);
        uint32_t batch = model ? weft_graph_batch_symbol(model) : UINT32_MAX;
        if (batch != UINT32_MAX && weft_graph_symbol_dim(model, batch) == d)
            return true;
    }
    return false;
}

/* Index + 1 of symbol i of the current body in the program that runs it; 0: it has none. */
static uint32_t find_outer(const generator *g, uint32_t i)
{
    const around *a = &g->around[weft_graph_index(g->g)];
    weft_dim d = weft_graph_symbol_dim(g->g, i);
    uint32_t symbol = weft_dim_as_symbol(weft_module_dims(g->m), d);
    uint64_t found;
    if (!weft_map_get(a->dim_of, (uint64_t)d, &found) && !weft_map_get(a->data_of, symbol, &found))
        return 0;
    return weft_dim_as_symbol(a->dims, (weft_dim)found) + 1;
}

static void make_outer(generator *g, weft_bundle_program *p)
{
    uint32_t *outer = weft_arena_array(g->arena, p->n_symbol, sizeof *outer);
    for (uint32_t i = 0; i < p->n_symbol; i++)
        outer[i] = find_outer(g, i);
    p->outer = outer;
}

static void make_symbols(generator *g, weft_bundle_program *p)
{
    const weft_dimpool *from = weft_module_dims(g->m);
    uint32_t n = weft_graph_symbol_count(g->g);
    weft_bundle_symbol *symbol = weft_arena_array(g->arena, n, sizeof *symbol);
    g->dims = weft_dimpool_create(g->arena);
    g->dim_of = weft_map_create(g->arena);
    g->data_of = weft_map_create(g->arena);
    for (uint32_t i = 0; i < n; i++) {
        const char *name = weft_graph_symbol_name(g->g, i), *text = name;
        int64_t lo = 0, hi = 0;
        weft_dim_symbol_range(from, weft_dim_as_symbol(from, weft_graph_symbol_dim(g->g, i)), &lo,
                              &hi);
        /* Two names may differ only in characters that the text form cannot represent. */
        weft_dim d = weft_dim_symbol(g->dims, text, 0, INT64_MAX / 4);
        for (uint32_t k = 2; weft_dim_as_symbol(g->dims, d) != i; k++) {
            text = weft_arena_printf(g->arena, "%s.%u", name, k);
            d = weft_dim_symbol(g->dims, text, 0, INT64_MAX / 4);
        }
        weft_dim_symbol(g->dims, text, lo, hi);
        weft_map_put(g->dim_of, (uint64_t)weft_graph_symbol_dim(g->g, i), (uint64_t)d);
        if (is_part_batch(g->g, weft_graph_symbol_dim(g->g, i)))
            lo = 0; /* a model of a joint program may have no requests */
        symbol[i] = (weft_bundle_symbol){name, lo, hi};
    }
    p->symbol = symbol;
    p->n_symbol = n;
    p->dims = g->dims;
    if (weft_graph_is_body(g->g))
        make_outer(g, p);
}

/* Returns the program's symbol for a symbol of the module. */
static weft_dim find_symbol(generator *g, const char *name, size_t len)
{
    const weft_dimpool *from = weft_module_dims(g->m);
    uint32_t i = weft_names_find(g->symbol_names, name, len) - 1;
    for (uint32_t k = 0; k < weft_graph_symbol_count(g->g); k++) {
        uint64_t dim;
        if (weft_dim_as_symbol(from, weft_graph_symbol_dim(g->g, k)) == i &&
            weft_map_get(g->dim_of, (uint64_t)weft_graph_symbol_dim(g->g, k), &dim))
            return (weft_dim)dim;
    }
    uint64_t found;
    if (weft_map_get(g->data_of, i, &found))
        return (weft_dim)found;
    if (!weft_dim_symbol_is_data(from, i))
        fail(g, WEFT_ERR_INPUT, "no input tells symbol", weft_arena_strndup(g->arena, name, len));
    weft_dim made = weft_dim_fresh(g->dims);
    weft_map_put(g->data_of, i, (uint64_t)made);
    return made;
}

static size_t symbol_length(const char *s)
{
    return strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.");
}

static weft_dim parse_renamed(generator *g, const char *from)
{
    weft_buf text = {0};
    while (*from) {
        weft_buf_putc(&text, *from);
        if (*from++ != '?')
            continue;
        size_t len = symbol_length(from);
        weft_dim d = find_symbol(g, from, len);
        weft_buf_puts(&text, weft_dim_symbol_name(g->dims, weft_dim_as_symbol(g->dims, d)));
        from += len;
    }
    weft_dim out = 0;
    const char *copy = weft_buf_keep(&text, g->arena);
    if (weft_dim_parse(g->dims, copy, &out) != strlen(copy) || !*copy)
        fail(g, WEFT_ERR_BUG, "cannot carry over dimension", copy);
    return out;
}

static weft_dim carry_dim(generator *g, weft_dim d)
{
    uint64_t found;
    if (weft_dim_is_const(d))
        return d;
    if (weft_map_get(g->dim_of, (uint64_t)d, &found))
        return (weft_dim)found;
    weft_buf text = {0};
    weft_dim_print(weft_module_dims(g->m), d, &text);
    const char *copy = weft_buf_keep(&text, g->arena);
    weft_dim out = parse_renamed(g, copy);
    weft_map_put(g->dim_of, (uint64_t)d, (uint64_t)out);
    return out;
}

/* -- Weights ---------------------------------------------------------------------------------- */

static bool is_same(const content *c, const weft_ttype *t, const weft_weight_info *info,
                    weft_hash128 hash)
{
    bool same = weft_hash128_eq(c->hash, hash) && c->w.dtype == t->dtype && c->w.rank == t->rank &&
                c->w.bytes == info->bytes;
    for (uint32_t k = 0; same && k < t->rank; k++)
        same = c->w.dim[k] == t->dim[k];
    return same && (info->bytes == 0 || memcmp(c->w.data, info->data, (size_t)info->bytes) == 0);
}

/* Returns the weight's number in the bundle, counted from 1. */
static uint32_t add_weight(generator *g, weft_weight weight)
{
    if (g->content_of[weight.i])
        return g->content_of[weight.i];
    const weft_weight_info *info = weft_weight_get(g->m, weight);
    const weft_ttype *t = weft_type_get(g->m, info->type);
    weft_hash128 hash = weft_weight_hash(g->m, weight);
    uint64_t chain = 0;
    weft_map_get(g->content_of_hash, hash.lo, &chain);
    for (uint64_t i = chain; i; i = g->contents.at[i - 1].next)
        if (is_same(&g->contents.at[i - 1], t, info, hash))
            return g->content_of[weight.i] = (uint32_t)i;
    content c = {.hash = hash, .next = (uint32_t)chain};
    c.w = (weft_bundle_weight){
        .dtype = (weft_dtype)t->dtype, .rank = t->rank, .data = info->data, .bytes = info->bytes};
    c.w.name = weft_arena_printf(g->arena, "%s:%s", weft_graph_name(g->g), info->name);
    for (uint32_t k = 0; k < t->rank; k++)
        c.w.dim[k] = t->dim[k];
    WEFT_VEC_PUSH(g->arena, &g->contents, c);
    weft_map_put(g->content_of_hash, hash.lo, g->contents.len);
    return g->content_of[weight.i] = g->contents.len;
}

/* -- Values and launches ---------------------------------------------------------------------- */

static uint32_t number_val(generator *g, weft_val v)
{
    if (!v.i || g->number[v.i])
        return v.i ? g->number[v.i] : 0;
    weft_bundle_value value = {.type = *weft_val_ttype(g->m, v)};
    for (uint32_t k = 0; k < value.type.rank; k++)
        value.type.dim[k] = carry_dim(g, value.type.dim[k]);
    weft_weight w = weft_val_weight(g->m, v);
    if (w.i)
        value.weight = add_weight(g, w);
    WEFT_VEC_PUSH(g->arena, &g->values, value);
    WEFT_VEC_PUSH(g->arena, &g->numbered, v.i);
    return g->number[v.i] = g->values.len;
}

static weft_attrs carry_attrs(generator *g, weft_attrs from)
{
    weft_attr *at = weft_arena_array(g->arena, from.n, sizeof *at);
    for (uint32_t i = 0; i < from.n; i++) {
        at[i] = from.at[i];
        if (at[i].kind != WEFT_KIND_DIMS)
            continue;
        weft_dim *dim = weft_arena_array(g->arena, at[i].n, sizeof *dim);
        for (uint32_t k = 0; k < at[i].n; k++)
            dim[k] = carry_dim(g, from.at[i].u.dims[k]);
        at[i].u.dims = dim;
    }
    return (weft_attrs){.at = at, .n = from.n};
}

static void make_launch(generator *g, weft_node n, weft_bundle_launch *l)
{
    weft_module *m = g->m;
    const char *why = "";
    if (!g->backend->supports(m, n, &why)) {
        weft_diag_error(g->diag, WEFT_ERR_UNSUP, weft_node_where(m, n), "%s: %s",
                        weft_node_opdef(m, n)->name, why);
        g->err = WEFT_ERR_UNSUP;
    }
    const char *item = weft_node_loc(m, n).item;
    uint32_t *in = weft_arena_array(g->arena, weft_node_in_count(m, n), sizeof *in);
    uint32_t *out = weft_arena_array(g->arena, weft_node_out_count(m, n), sizeof *out);
    l->op = weft_node_op(m, n);
    l->item = item ? item : "";
    l->n_in = weft_node_in_count(m, n);
    l->n_out = weft_node_out_count(m, n);
    for (uint32_t i = 0; i < l->n_in; i++)
        in[i] = number_val(g, weft_node_in(m, n, i));
    l->attrs = carry_attrs(g, weft_node_attrs(m, n));
    for (uint32_t i = 0; i < l->n_out; i++) {
        weft_val v = weft_node_out(m, n, i);
        if (weft_val_ttype(m, v)->dtype != WEFT_DTYPE_NONE) /* an omitted result has no type */
            out[i] = number_val(g, v);
    }
    l->in = in;
    l->out = out;
    if (g->backend->emit && g->err == WEFT_ERR_OK)
        g->err = g->backend->emit(&g->code, n, l);
}

static void make_launches(generator *g, weft_bundle_program *p)
{
    weft_bundle_launch *launch =
        weft_arena_array(g->arena, weft_graph_node_count(g->g), sizeof *launch);
    p->launch = launch;
    WEFT_FOREACH_NODE (g->m, g->g, n) {
        make_launch(g, n, &launch[p->n_launch++]);
        for (uint32_t i = 0; i < weft_node_body_count(g->m, n); i++) {
            const weft_graph *body = weft_node_body(g->m, n, i);
            if (body)
                g->around[weft_graph_index(body)] = (around){g->dims, g->dim_of, g->data_of};
        }
    }
}

static const weft_codegen_port *find_port(const weft_codegen_model *model, const char *name)
{
    for (size_t i = 0; model && i < model->n_port; i++)
        if (strcmp(model->port[i].name, name) == 0)
            return &model->port[i];
    return NULL;
}

/* `model` NULL: nothing more is told of them. */
static void make_ports(generator *g, weft_bundle_program *p, const weft_codegen_model *model,
                       bool inputs)
{
    uint32_t n = inputs ? weft_graph_input_count(g->g) : weft_graph_output_count(g->g);
    weft_bundle_port *port = weft_arena_array(g->arena, n, sizeof *port);
    for (uint32_t i = 0; i < n; i++) {
        weft_val v = inputs ? weft_graph_input(g->g, i) : weft_graph_output(g->g, i);
        port[i].name = inputs ? weft_graph_input_name(g->g, i) : weft_graph_output_name(g->g, i);
        port[i].value = number_val(g, v);
        const weft_codegen_port *more = find_port(model, port[i].name);
        if (more && inputs)
            port[i].format = more->format;
        if (more && !inputs) {
            port[i].label = more->label;
            port[i].n_label = (uint32_t)more->n_label;
        }
    }
    *(inputs ? &p->input : &p->output) = port;
    *(inputs ? &p->n_input : &p->n_output) = n;
}

static void make_buckets(generator *g, weft_bundle_program *p)
{
    p->n_bucket = weft_graph_bucket_count(g->g);
    weft_bundle_bucket *bucket = weft_arena_array(g->arena, p->n_bucket, sizeof *bucket);
    p->bucket = bucket;
    for (uint32_t i = 0; i < p->n_bucket; i++) {
        const weft_bucket *from = weft_graph_bucket(g->g, i);
        weft_bundle_buffer *buffer = weft_arena_array(g->arena, from->n_buffer, sizeof *buffer);
        bucket[i] = (weft_bundle_bucket){from->symbol, from->arena_bytes, buffer, from->n_buffer};
        for (uint32_t k = 0; k < from->n_buffer; k++)
            buffer[k] = (weft_bundle_buffer){g->number[from->buffer[k].val.i],
                                             from->buffer[k].offset, from->buffer[k].bytes};
    }
}

/* Index among the models. */
static uint32_t find_model(const weft_module *m, const char *name)
{
    uint32_t i = 0, model = 0;
    for (; i < weft_graph_count(m) && strcmp(weft_graph_name(weft_graph_at(m, i)), name) != 0; i++)
        model += !weft_graph_is_body(weft_graph_at(m, i));
    return model;
}

static void make_requires(generator *g, weft_bundle_program *p)
{
    uint32_t n = weft_graph_require_count(g->g);
    weft_bundle_require *require = weft_arena_array(g->arena, n, sizeof *require);
    for (uint32_t i = 0; i < n; i++) {
        const weft_graph_require *from = weft_graph_require_at(g->g, i);
        weft_bundle_require r = {.kind = from->kind,
                                 .a = carry_dim(g, from->a),
                                 .b = carry_dim(g, from->b),
                                 .guard = carry_dim(g, from->guard),
                                 .item = from->item,
                                 .what = from->what};
        /* Bounds that became tighter after a dim was made change its form: min(?s, 512) is ?s once
         * ?s <= 512 is known. */
        if (r.a != r.b)
            require[p->n_require++] = r;
    }
    p->require = require;
}

static void make_parts(generator *g, weft_bundle_program *p)
{
    p->n_part = weft_graph_part_count(g->g);
    p->limit = weft_graph_limit(g->g);
    p->is_packed = weft_graph_is_packed(g->g);
    weft_bundle_part *part = weft_arena_array(g->arena, p->n_part, sizeof *part);
    for (uint32_t i = 0; i < p->n_part; i++) {
        const weft_part *from = weft_graph_part(g->g, i);
        part[i] = (weft_bundle_part){find_model(g->m, from->model), from->n_in, from->n_out};
    }
    p->part = part;
}

static void make_heads(generator *g, const weft_codegen_model *model, weft_bundle_program *p)
{
    uint32_t *head = weft_arena_array(g->arena, model->n_head + 1, sizeof *head);
    for (size_t i = 0; i < model->n_head; i++)
        head[i] = find_model(g->m, model->head[i]);
    p->head = head;
    p->n_head = (uint32_t)model->n_head;
}

static void make_program(generator *g, uint32_t i, const weft_codegen_model *model,
                         weft_bundle_program *p)
{
    g->g = weft_graph_at(g->m, i);
    memset(&g->values, 0, sizeof g->values);
    p->name = weft_graph_name(g->g);
    make_symbols(g, p);
    make_requires(g, p);
    bool is_model = model && !weft_graph_is_body(g->g) && weft_graph_part_count(g->g) == 0;
    make_ports(g, p, is_model ? model : NULL, true);
    make_launches(g, p);
    make_ports(g, p, is_model ? model : NULL, false);
    p->value = g->values.at;
    p->n_value = g->values.len;
    make_buckets(g, p);
    make_parts(g, p);
    p->batch_symbol =
        p->n_part || weft_graph_is_body(g->g) ? UINT32_MAX : weft_graph_batch_symbol(g->g);
    if (model && !weft_graph_is_body(g->g)) {
        p->serves = p->n_part ? NULL : model->serves;
        p->version = p->n_part ? NULL : model->version;
        p->slo_us = model->slo_us;
        p->rate_per_s = model->rate_per_s;
        p->admit_by_slo = model->admit_by_slo;
        p->profile = model->profile;
        if (!p->n_part)
            make_heads(g, model, p);
    }
    for (uint32_t k = 0; k < g->numbered.len; k++)
        g->number[g->numbered.at[k]] = 0;
    g->numbered.len = 0;
}

/* -- The bundle ------------------------------------------------------------------------------- */

static weft_dim carry_for_code(void *user, weft_dim d)
{
    return carry_dim(user, d);
}

/* Models, joint programs, bodies; a body comes after the program that runs it, as in the module. */
static void make_programs(generator *g, weft_bundle_program *program, weft_bundle *out)
{
    const weft_codegen_model *model = g->options->model;
    uint32_t n = weft_graph_count(g->m), at = 0;
    g->around = weft_arena_array(g->arena, n, sizeof *g->around);
    for (uint32_t i = 0; i < n; i++) {
        if (weft_graph_is_body(weft_graph_at(g->m, i)))
            continue;
        make_program(g, i, model ? &model[at] : NULL, &program[at]);
        bool is_joint = program[at++].n_part > 0;
        if (out->n_joint > 0 && !is_joint)
            fail(g, WEFT_ERR_BUG, "joint graphs come after the models, not before",
                 weft_graph_name(g->g));
        out->n_joint += is_joint;
        out->n_program += !is_joint;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!g->around[i].dims)
            continue;
        make_program(g, i, NULL, &program[at++]);
        out->n_body++;
    }
}

/* Kernels use small weights (biases, scales) where they are in the file, and pack large ones.
 * Reading a page of a file makes those around it resident too, so the small ones stand together,
 * first. */
enum { SMALL_WEIGHT_BYTES = 16 << 10 };

static void make_weights(generator *g, weft_bundle_program *program, uint32_t n, weft_bundle *out)
{
    uint32_t n_weight = g->contents.len, next = 0;
    weft_bundle_weight *weight = weft_arena_array(g->arena, n_weight, sizeof *weight);
    uint32_t *place = weft_arena_array(g->arena, (size_t)n_weight + 1, sizeof *place);
    for (int large = 0; large <= 1; large++)
        for (uint32_t i = 0; i < n_weight; i++) {
            if ((g->contents.at[i].w.bytes > SMALL_WEIGHT_BYTES) != (large == 1))
                continue;
            weight[next++] = g->contents.at[i].w;
            place[i + 1] = next;
        }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t n_value = program[i].n_value;
        weft_bundle_value *value = weft_arena_array(g->arena, n_value, sizeof *value);
        for (uint32_t v = 0; v < n_value; v++) {
            value[v] = program[i].value[v];
            value[v].weight = place[value[v].weight];
        }
        program[i].value = value;
    }
    out->weight = weight;
    out->n_weight = n_weight;
    if (g->err == WEFT_ERR_OK)
        g->err = weft_bundle_link(out, g->diag);
    if (g->err != WEFT_ERR_OK)
        return;
    uint32_t *users = weft_arena_array(g->arena, n_weight, sizeof *users);
    weft_bundle_count_users(out, g->arena, users);
    for (uint32_t i = 0; i < n_weight; i++)
        weight[i].n_users = users[i];
}

static void make_bundle(generator *g, weft_bundle *out)
{
    const weft_codegen_options *o = g->options;
    const weft_dimpool *dims = weft_module_dims(g->m);
    uint32_t n = weft_graph_count(g->m);
    weft_bundle_program *program = weft_arena_array(g->arena, n, sizeof *program);
    g->symbol_names = weft_names_create(g->arena);
    for (uint32_t i = 0; i < weft_dim_symbol_count(dims); i++) {
        const char *name = weft_dim_symbol_name(dims, i);
        weft_names_add(g->symbol_names, name, strlen(name));
    }
    g->content_of_hash = weft_map_create(g->arena);
    g->content_of =
        weft_arena_array(g->arena, weft_weight_count(g->m) + (size_t)1, sizeof *g->content_of);
    g->number = weft_arena_array(g->arena, weft_val_count(g->m) + (size_t)1, sizeof *g->number);
    *out = (weft_bundle){.tool = "weft " WEFT_VERSION,
                         .target = o->target ? o->target : g->backend->name,
                         .program = program,
                         .plan_json = o->plan_json && *o->plan_json ? o->plan_json : NULL};
    make_programs(g, program, out);
    make_weights(g, program, out->n_program + out->n_joint + out->n_body, out);
    if (g->backend->finish && g->err == WEFT_ERR_OK)
        g->err = g->backend->finish(&g->code, out);
}

weft_err weft_codegen_make(weft_module *m, const weft_backend *backend,
                           const weft_codegen_options *options, weft_arena *arena, weft_diag *diag,
                           weft_bundle *out)
{
    generator g = {.m = m, .backend = backend, .arena = arena, .diag = diag, .options = options};
    jmp_buf env;
    jmp_buf *before = weft_arena_guard(weft_module_arena(m), &env);
    jmp_buf *arena_before = weft_arena_guard(arena, &env);
    g.code = (weft_device_code){.m = m,
                                .arena = arena,
                                .diag = diag,
                                .options = options,
                                .carry = carry_for_code,
                                .user = &g};
    if (setjmp(env)) {
        g.err = weft_diag_error(diag, WEFT_ERR_NOMEM, (weft_where){0},
                                "out of memory while making the bundle");
    } else {
        if (backend->start)
            g.err = backend->start(&g.code);
        if (g.err == WEFT_ERR_OK)
            make_bundle(&g, out);
    }
    if (backend->stop)
        backend->stop(&g.code);
    weft_arena_guard(arena, arena_before);
    weft_arena_guard(weft_module_arena(m), before);
    return g.err;
}

weft_err weft_codegen_bundle(weft_module *m, const weft_backend *backend,
                             const weft_codegen_model *model, const char *plan_json,
                             weft_arena *arena, weft_diag *diag, weft_bundle *out)
{
    const weft_codegen_options options = {.model = model, .plan_json = plan_json};
    return weft_codegen_make(m, backend, &options, arena, diag, out);
}
