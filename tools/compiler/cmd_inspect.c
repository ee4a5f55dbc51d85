/* weft inspect: shows what is in an ONNX file, a text IR file or a bundle. The facts are
 * gathered as JSON (docs/bundle.md has the keys); the text form is printed from the JSON. */
#include "ir/bundle.h"

#include "base/file.h"
#include "ir/ir.h"
#include "tools/compiler/sources.h"
#include "tools/compiler/inspect.h"
#include "tools/compiler/inspect_code.h"
#include "tools/common/names.h"
#include "tools/common/tools.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct options {
    bool json, no_verify;
    const char *file;
} options;

/* -- JSON ------------------------------------------------------------------------------------- */

static json_t *json_count(uint64_t n)
{
    return json_integer(n > INT64_MAX ? INT64_MAX : (json_int_t)n);
}

/* Names of a graph's symbols by index in its pool; NULL where it has none. */
typedef struct scope {
    const weft_dimpool *dims;
    const char **name;
} scope;

static json_t *json_dim(const scope *s, weft_dim d)
{
    if (weft_dim_is_const(d))
        return json_integer(d);
    uint32_t symbol = weft_dim_as_symbol(s->dims, d);
    if (symbol != UINT32_MAX && s->name[symbol])
        return weft_tool_json_name(s->name[symbol]);
    weft_buf text = {0};
    weft_dim_print(s->dims, d, &text);
    json_t *out = weft_tool_json_name(text.at ? text.at : "");
    weft_buf_finish(&text);
    return out;
}

static json_t *json_port(const scope *s, const char *name, const weft_ttype *t)
{
    json_t *port = json_object(), *shape = json_array();
    json_object_set_new(port, "name", weft_tool_json_name(name));
    json_object_set_new(port, "dtype", json_string(weft_dtype_name((weft_dtype)t->dtype)));
    for (uint32_t k = 0; k < t->rank; k++)
        json_array_append_new(shape, json_dim(s, t->dim[k]));
    json_object_set_new(port, "shape", shape);
    return port;
}

static void add_symbol(json_t *symbols, const char *name, int64_t lo, int64_t hi)
{
    json_t *symbol = json_object();
    json_object_set_new(symbol, "name", weft_tool_json_name(name));
    json_object_set_new(symbol, "min", json_integer(lo));
    json_object_set_new(symbol, "max", hi >= INT64_MAX / 4 ? json_null() : json_integer(hi));
    json_array_append_new(symbols, symbol);
}

/* Adds one to the counter of an operator. */
static void count_op(json_t *ops, const char *name)
{
    json_object_set_new(ops, name,
                        json_integer(json_integer_value(json_object_get(ops, name)) + 1));
}

static void put_weights(json_t *model, uint32_t count, uint64_t bytes)
{
    json_t *weights = json_object();
    json_object_set_new(weights, "count", json_integer(count));
    json_object_set_new(weights, "bytes", json_count(bytes));
    json_object_set_new(model, "weights", weights);
}

/* -- Modules ---------------------------------------------------------------------------------- */

static json_t *graph_ports(const scope *s, const weft_graph *g, bool inputs)
{
    const weft_module *m = weft_graph_module(g);
    json_t *ports = json_array();
    uint32_t n = inputs ? weft_graph_input_count(g) : weft_graph_output_count(g);
    for (uint32_t i = 0; i < n; i++) {
        weft_val v = inputs ? weft_graph_input(g, i) : weft_graph_output(g, i);
        const char *name = inputs ? weft_graph_input_name(g, i) : weft_graph_output_name(g, i);
        json_array_append_new(ports, json_port(s, name, weft_val_ttype(m, v)));
    }
    return ports;
}

static void note_weight(const weft_module *m, weft_val v, bool *seen, uint32_t *count,
                        uint64_t *bytes)
{
    weft_weight w = v.i ? weft_val_weight(m, v) : (weft_weight){0};
    if (!w.i || seen[w.i])
        return;
    seen[w.i] = true;
    ++*count;
    *bytes += weft_weight_get(m, w)->bytes;
}

/* What a graph and the bodies of its nodes have. */
typedef struct contents {
    json_t *ops;
    bool *seen; /* by weight */
    uint32_t n_node, n_weight;
    uint64_t bytes;
} contents;

static void add_contents(const weft_graph *g, contents *c, uint32_t depth)
{
    weft_module *m = weft_graph_module(g);
    c->n_node += weft_graph_node_count(g);
    WEFT_FOREACH_NODE (m, g, n) {
        count_op(c->ops, weft_node_opdef(m, n)->name);
        for (uint32_t i = 0; i < weft_node_in_count(m, n); i++)
            note_weight(m, weft_node_in(m, n, i), c->seen, &c->n_weight, &c->bytes);
        for (uint32_t i = 0; depth < WEFT_FLOW_DEPTH_MAX && i < weft_node_body_count(m, n); i++)
            if (weft_node_body(m, n, i))
                add_contents(weft_node_body(m, n, i), c, depth + 1);
    }
    for (uint32_t i = 0; i < weft_graph_output_count(g); i++)
        note_weight(m, weft_graph_output(g, i), c->seen, &c->n_weight, &c->bytes);
}

static json_t *inspect_graph(const weft_graph *g, weft_arena *arena)
{
    weft_module *m = weft_graph_module(g);
    scope s = {.dims = weft_module_dims(m)};
    json_t *model = json_object(), *symbols = json_array();
    contents c = {.ops = json_object()};
    c.seen = weft_arena_array(arena, weft_weight_count(m) + (size_t)1, sizeof *c.seen);
    add_contents(g, &c, 0);
    s.name = weft_arena_array(arena, weft_dim_symbol_count(s.dims), sizeof *s.name);
    for (uint32_t i = 0; i < weft_graph_symbol_count(g); i++) {
        uint32_t symbol = weft_dim_as_symbol(s.dims, weft_graph_symbol_dim(g, i));
        int64_t lo, hi;
        s.name[symbol] = weft_graph_symbol_name(g, i);
        weft_dim_symbol_range(s.dims, symbol, &lo, &hi);
        add_symbol(symbols, s.name[symbol], lo, hi);
    }
    json_object_set_new(model, "name", weft_tool_json_name(weft_graph_name(g)));
    json_object_set_new(model, "inputs", graph_ports(&s, g, true));
    json_object_set_new(model, "outputs", graph_ports(&s, g, false));
    json_object_set_new(model, "symbols", symbols);
    json_object_set_new(model, "nodes", json_integer(c.n_node));
    json_object_set_new(model, "ops", c.ops);
    put_weights(model, c.n_weight, c.bytes);
    return model;
}

static weft_err inspect_module(const char *path, const char *kind, weft_diag *diag,
                               weft_arena *arena, json_t *root)
{
    weft_module *m = NULL;
    WEFT_TRY(weft_tool_load_module(path, diag, &m));
    json_t *models = json_array();
    for (uint32_t i = 0; i < weft_graph_count(m); i++)
        if (!weft_graph_is_body(weft_graph_at(m, i)))
            json_array_append_new(models, inspect_graph(weft_graph_at(m, i), arena));
    json_object_set_new(root, "kind", json_string(kind));
    json_object_set_new(root, "stage", json_string(weft_stage_name(weft_module_stage(m))));
    json_object_set_new(root, "models", models);
    weft_module_destroy(m);
    return WEFT_ERR_OK;
}

/* -- Bundles ---------------------------------------------------------------------------------- */

static json_t *program_ports(const scope *s, const weft_bundle_program *p,
                             const weft_bundle_port *port, uint32_t n)
{
    json_t *ports = json_array();
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(ports, json_port(s, port[i].name, &p->value[port[i].value - 1].type));
    return ports;
}

static json_t *program_buckets(const weft_bundle_program *p)
{
    json_t *buckets = json_array();
    for (uint32_t i = 0; i < p->n_bucket; i++) {
        json_t *bucket = json_object(), *symbols = json_array();
        for (uint32_t k = 0; k < p->n_symbol; k++)
            json_array_append_new(symbols, json_integer(p->bucket[i].symbol[k]));
        json_object_set_new(bucket, "symbols", symbols);
        json_object_set_new(bucket, "arena_bytes", json_count(p->bucket[i].arena_bytes));
        json_array_append_new(buckets, bucket);
    }
    return buckets;
}

static json_t *profile_use(const weft_usehist *use)
{
    char text[WEFT_USEHIST_TEXT_MAX];
    if (!weft_usehist_is_known(use))
        return json_null();
    weft_usehist_format(use, text);
    return json_string(text);
}

static json_t *program_profile(const weft_bundle_program *p)
{
    json_t *profile = json_array();
    for (size_t i = 0; i < p->profile.n; i++) {
        const weft_profile_point *from = &p->profile.point[i];
        json_t *point = json_object();
        json_object_set_new(point, "device", weft_tool_json_name(from->device));
        json_object_set_new(point, "slice", weft_tool_json_name(from->slice));
        json_object_set_new(point, "share", json_real(from->share));
        json_object_set_new(point, "batch", json_integer(from->batch));
        json_object_set_new(point, "procs", json_integer(from->procs));
        json_object_set_new(point, "throughput_per_s", json_real(from->throughput_per_s));
        json_object_set_new(point, "time_us", json_real(from->cost.time_us));
        json_object_set_new(point, "creq", json_real(from->cost.creq));
        json_object_set_new(point, "mreq_bytes", json_count(from->cost.mreq_bytes));
        json_object_set_new(point, "bandwidth_gbps", json_real(from->cost.bandwidth_gbps));
        json_object_set_new(point, "energy_j", json_real(from->cost.energy_j));
        json_object_set_new(point, "source", weft_tool_json_name(from->cost.source));
        json_object_set_new(point, "expected_error", json_real(from->cost.expected_error));
        json_object_set_new(point, "use", profile_use(&from->use));
        json_object_set_new(point, "idle_us", json_real(from->idle_us));
        json_array_append_new(profile, point);
    }
    return profile;
}

/* Finds which weights a program uses; `uses` is indexed by weight from 0. */
static void find_uses(const weft_bundle *b, const weft_bundle_program *p, bool *uses)
{
    for (uint32_t v = 0; v < p->n_value; v++)
        if (p->value[v].weight)
            uses[p->value[v].weight - 1] = true;
    for (uint32_t i = 0; i < p->n_launch; i++)
        for (uint32_t k = 0; k < weft_flow_bodies(p->launch[i].op); k++)
            find_uses(b, &b->program[p->launch[i].body[k] - 1], uses);
}

static void put_program_weights(json_t *model, const weft_bundle *b, const bool *uses)
{
    uint32_t count = 0;
    uint64_t bytes = 0;
    for (uint32_t w = 0; w < b->n_weight; w++) {
        count += uses[w];
        bytes += uses[w] ? b->weight[w].bytes : 0;
    }
    put_weights(model, count, bytes);
}

/* Operators of a program and of its bodies; their number. */
static uint32_t count_launches(const weft_bundle *b, const weft_bundle_program *p, json_t *ops)
{
    uint32_t n = p->n_launch;
    for (uint32_t i = 0; i < p->n_launch; i++) {
        const weft_bundle_launch *l = &p->launch[i];
        count_op(ops, weft_op_get(l->op)->name);
        for (uint32_t k = 0; k < weft_flow_bodies(l->op); k++)
            n += count_launches(b, &b->program[l->body[k] - 1], ops);
    }
    return n;
}

static json_t *inspect_program(const weft_bundle *b, const weft_bundle_program *p, const bool *uses,
                               weft_arena *arena)
{
    scope s = {.dims = p->dims};
    json_t *model = json_object(), *symbols = json_array(), *ops = json_object();
    s.name = weft_arena_array(arena, weft_dim_symbol_count(s.dims), sizeof *s.name);
    for (uint32_t i = 0; i < p->n_symbol; i++) {
        s.name[i] = p->symbol[i].name;
        add_symbol(symbols, p->symbol[i].name, p->symbol[i].lo, p->symbol[i].hi);
    }
    uint32_t n_launch = count_launches(b, p, ops);
    json_object_set_new(model, "name", weft_tool_json_name(p->name));
    if (p->version) {
        json_object_set_new(model, "serves", weft_tool_json_name(weft_bundle_served(p)));
        json_object_set_new(model, "version", json_string(p->version));
    }
    json_object_set_new(model, "inputs", program_ports(&s, p, p->input, p->n_input));
    json_object_set_new(model, "outputs", program_ports(&s, p, p->output, p->n_output));
    json_object_set_new(model, "symbols", symbols);
    json_object_set_new(model, "batch_symbol",
                        p->batch_symbol == UINT32_MAX
                            ? json_null()
                            : weft_tool_json_name(p->symbol[p->batch_symbol].name));
    json_object_set_new(model, "nodes", json_integer(n_launch));
    json_object_set_new(model, "ops", ops);
    put_program_weights(model, b, uses);
    json_object_set_new(model, "buckets", program_buckets(p));
    json_object_set_new(model, "slo_us", json_real(p->slo_us));
    json_object_set_new(model, "rate_per_s", json_real(p->rate_per_s));
    json_object_set_new(model, "admission", json_string(p->admit_by_slo ? "slo" : "all"));
    json_object_set_new(model, "host_us", json_real(p->profile.host_us));
    json_object_set_new(model, "profile", program_profile(p));
    return model;
}

static bool same_users(bool *const *uses, uint32_t n, uint32_t a, uint32_t b)
{
    for (uint32_t i = 0; i < n; i++)
        if (uses[i][a] != uses[i][b])
            return false;
    return true;
}

/* Groups the weights that several models use by the set of their models. */
static json_t *find_shared(const weft_bundle *b, bool *const *uses, weft_arena *arena)
{
    json_t *shared = json_array();
    bool *done = weft_arena_array(arena, b->n_weight, sizeof *done);
    for (uint32_t w = 0; w < b->n_weight; w++) {
        if (done[w] || b->weight[w].n_users < 2)
            continue;
        uint64_t bytes = 0;
        uint32_t count = 0;
        for (uint32_t k = w; k < b->n_weight; k++) {
            if (done[k] || !same_users(uses, b->n_program, w, k))
                continue;
            done[k] = true;
            count++;
            bytes += b->weight[k].bytes;
        }
        json_t *group = json_object(), *models = json_array();
        for (uint32_t i = 0; i < b->n_program; i++)
            if (uses[i][w])
                json_array_append_new(models, weft_tool_json_name(b->program[i].name));
        json_object_set_new(group, "models", models);
        json_object_set_new(group, "count", json_integer(count));
        json_object_set_new(group, "bytes", json_count(bytes));
        json_object_set_new(group, "saved_bytes", json_count(bytes * (b->weight[w].n_users - 1)));
        json_array_append_new(shared, group);
    }
    return shared;
}

static void put_totals(const weft_bundle *b, json_t *root)
{
    uint64_t bytes = 0, used = 0;
    for (uint32_t w = 0; w < b->n_weight; w++) {
        bytes += b->weight[w].bytes;
        used += b->weight[w].bytes * b->weight[w].n_users;
    }
    json_t *weights = json_object();
    json_object_set_new(weights, "count", json_integer(b->n_weight));
    json_object_set_new(weights, "bytes", json_count(bytes));
    json_object_set_new(weights, "unshared_bytes", json_count(used));
    json_object_set_new(weights, "saved_bytes", json_count(used > bytes ? used - bytes : 0));
    json_object_set_new(root, "weights", weights);
}

static void put_sections(const weft_bundle *b, json_t *root)
{
    weft_bundle_section section[WEFT_BUNDLE_SECTIONS_MAX];
    uint32_t n = weft_bundle_sections(b, section);
    json_t *sections = json_array();
    for (uint32_t i = 0; i < n; i++) {
        json_t *s = json_object();
        json_object_set_new(s, "name", json_string(section[i].name));
        json_object_set_new(s, "offset", json_count(section[i].offset));
        json_object_set_new(s, "bytes", json_count(section[i].bytes));
        json_array_append_new(sections, s);
    }
    json_object_set_new(root, "sections", sections);
}

static weft_err verify(const weft_bundle *b, weft_diag *diag)
{
    weft_err err = WEFT_ERR_OK;
    for (uint32_t w = 1; w <= b->n_weight; w++) {
        weft_err wrong = weft_bundle_check_weight(b, w, diag);
        err = err == WEFT_ERR_OK ? wrong : err;
    }
    return err;
}

/* Lists the joint programs. */
static json_t *list_joint(const weft_bundle *b)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < b->n_joint; i++) {
        const weft_bundle_program *p = &b->program[b->n_program + i];
        json_t *o = json_object(), *models = json_array();
        uint32_t apart = 0;
        for (uint32_t k = 0; k < p->n_part; k++) {
            json_array_append_new(models, weft_tool_json_name(b->program[p->part[k].program].name));
            apart += b->program[p->part[k].program].n_launch;
        }
        json_object_set_new(o, "name", weft_tool_json_name(p->name));
        json_object_set_new(o, "models", models);
        json_object_set_new(o, "launches", json_count(p->n_launch));
        json_object_set_new(o, "launches_apart", json_count(apart));
        json_object_set_new(o, "limit", json_integer((json_int_t)p->limit));
        json_object_set_new(o, "packed", json_boolean(p->is_packed));
        json_object_set_new(o, "profile", program_profile(p));
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *list_apps(const weft_bundle *b)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < b->n_app; i++) {
        const weft_bundle_app *a = &b->app[i];
        json_t *variants = json_array();
        for (uint32_t k = 0; k < a->n_variant; k++)
            json_array_append_new(
                variants, json_pack("{s:o, s:f}", "model",
                                    weft_tool_json_name(b->program[a->variant[k].program].name),
                                    "accuracy", a->variant[k].accuracy));
        json_array_append_new(list, json_pack("{s:o, s:f, s:f, s:f, s:o}", "name",
                                              weft_tool_json_name(a->name), "slo_us", a->slo_us,
                                              "rate_per_s", a->rate_per_s, "accuracy", a->accuracy,
                                              "variants", variants));
    }
    return list;
}

static json_t *list_adapters(const weft_bundle *b)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < b->n_adapter; i++) {
        const weft_bundle_adapter *a = &b->adapter[i];
        int64_t rank = 0;
        for (uint32_t k = 0; k < a->n_factor; k++) {
            int64_t own = b->weight[a->factor[k].a - 1].dim[0];
            rank = own > rank ? own : rank;
        }
        json_array_append_new(
            list, json_pack("{s:o, s:o, s:I, s:I, s:o}", "name", weft_tool_json_name(a->name),
                            "model", weft_tool_json_name(b->program[a->program].name), "modules",
                            (json_int_t)a->n_factor, "largest_rank", (json_int_t)rank, "bytes",
                            json_count(weft_bundle_adapter_bytes(b, a))));
    }
    return list;
}

static weft_err inspect_bundle(const char *path, bool verified, weft_diag *diag, weft_arena *arena,
                               json_t *root)
{
    weft_bundle *b = NULL;
    WEFT_TRY(weft_bundle_open(path, diag, &b));
    weft_err err = verified ? verify(b, diag) : WEFT_ERR_OK;
    bool **uses = weft_arena_array(arena, b->n_program, sizeof *uses);
    json_t *models = json_array();
    for (uint32_t i = 0; i < b->n_program; i++) {
        uses[i] = weft_arena_array(arena, b->n_weight, sizeof **uses);
        find_uses(b, &b->program[i], uses[i]);
        json_array_append_new(models, inspect_program(b, &b->program[i], uses[i], arena));
    }
    json_t *plan = b->plan_json ? json_loads(b->plan_json, 0, NULL) : NULL;
    json_object_set_new(root, "kind", json_string("bundle"));
    json_object_set_new(root, "bytes", json_count(b->file.len));
    json_object_set_new(root, "tool", weft_tool_json_name(b->tool));
    json_object_set_new(root, "target", weft_tool_json_name(b->target));
    json_object_set_new(root, "verified", json_boolean(verified));
    put_sections(b, root);
    put_totals(b, root);
    json_object_set_new(root, "shared", find_shared(b, uses, arena));
    json_object_set_new(root, "models", models);
    json_object_set_new(root, "joint", list_joint(b));
    json_object_set_new(root, "apps", list_apps(b));
    json_object_set_new(root, "adapters", list_adapters(b));
    json_object_set_new(root, "code", weft_tool_code_json(b));
    json_object_set_new(root, "plan", plan ? plan : json_null());
    weft_bundle_close(b);
    return err;
}

/* -- Text ------------------------------------------------------------------------------------- */

static uint64_t get_count(const json_t *o, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(o, key));
}

static const char *get_bytes(const json_t *o, const char *key, char *buf)
{
    return weft_tool_bytes(get_count(o, key), buf);
}

/* Escapes a name: control characters of a file must not reach the terminal. */
static void print_name(const json_t *name)
{
    const char *s = json_string_value(name);
    for (; s && *s; s++)
        putchar((unsigned char)*s < 0x20 || *s == 0x7f ? '?' : *s);
}

static void print_ports(const json_t *ports, const char *what)
{
    size_t i, k;
    const json_t *port, *dim;
    json_array_foreach(ports, i, port)
    {
        printf("  %-9s", what);
        print_name(json_object_get(port, "name"));
        printf(": %s[", json_string_value(json_object_get(port, "dtype")));
        json_array_foreach(json_object_get(port, "shape"), k, dim)
        {
            printf("%s", k ? ", " : "");
            if (json_is_integer(dim))
                printf("%lld", (long long)json_integer_value(dim));
            else
                print_name(dim);
        }
        printf("]\n");
    }
}

static void print_version(const json_t *model)
{
    if (!json_object_get(model, "version"))
        return;
    printf("  serves   version %s of ", json_string_value(json_object_get(model, "version")));
    print_name(json_object_get(model, "serves"));
    putchar('\n');
}

static void print_symbols(const json_t *model)
{
    size_t i;
    const json_t *symbol, *batch = json_object_get(model, "batch_symbol");
    json_array_foreach(json_object_get(model, "symbols"), i, symbol)
    {
        const json_t *name = json_object_get(symbol, "name"), *max = json_object_get(symbol, "max");
        printf("  symbol   ");
        print_name(name);
        printf(": %llu to ", (unsigned long long)get_count(symbol, "min"));
        if (json_is_integer(max))
            printf("%lld", (long long)json_integer_value(max));
        else
            printf("any");
        printf("%s\n", json_equal(name, batch) ? ", batches requests" : "");
    }
}

static void print_buckets(const json_t *model)
{
    size_t i, k;
    const json_t *bucket, *value, *symbols = json_object_get(model, "symbols");
    json_array_foreach(json_object_get(model, "buckets"), i, bucket)
    {
        char size[32];
        printf("  bucket   ");
        json_array_foreach(json_object_get(bucket, "symbols"), k, value)
        {
            printf("%s", k ? ", " : "");
            print_name(json_object_get(json_array_get(symbols, k), "name"));
            printf(" = %lld", (long long)json_integer_value(value));
        }
        printf("%sarena %s\n", k ? ": " : "", get_bytes(bucket, "arena_bytes", size));
    }
}

static bool same_slice(const json_t *a, const json_t *b)
{
    return b && json_equal(json_object_get(a, "device"), json_object_get(b, "device")) &&
           json_equal(json_object_get(a, "slice"), json_object_get(b, "slice"));
}

static void print_point(const json_t *p)
{
    char size[32];
    printf(" batch %llu: %.4g us, Creq %.0f %%, Mreq %s", (unsigned long long)get_count(p, "batch"),
           json_real_value(json_object_get(p, "time_us")),
           100 * json_real_value(json_object_get(p, "creq")), get_bytes(p, "mreq_bytes", size));
}

/* Prints the smallest and the largest batch size of each slice; the JSON form has all. */
static void print_profile(const json_t *model)
{
    const json_t *profile = json_object_get(model, "profile");
    size_t n = json_array_size(profile);
    for (size_t first = 0, i; first < n; first = i + 1) {
        const json_t *p = json_array_get(profile, first);
        for (i = first; same_slice(p, json_array_get(profile, i + 1)); i++)
            continue;
        const json_t *last = json_array_get(profile, i);
        printf("  estimate ");
        print_name(json_object_get(p, "device"));
        printf(" ");
        print_name(json_object_get(p, "slice"));
        print_point(p);
        if (i > first) {
            printf(" ..");
            print_point(last);
        }
        printf(" (");
        print_name(json_object_get(p, "source"));
        printf(", +-%.0f %%)\n", 100 * json_real_value(json_object_get(last, "expected_error")));
    }
}

static void print_model(json_t *model)
{
    char size[32];
    const char *op;
    json_t *count;
    const json_t *weights = json_object_get(model, "weights");
    double slo_us = json_real_value(json_object_get(model, "slo_us"));
    double rate = json_real_value(json_object_get(model, "rate_per_s"));
    printf("\nmodel ");
    print_name(json_object_get(model, "name"));
    printf("\n");
    print_ports(json_object_get(model, "inputs"), "input");
    print_ports(json_object_get(model, "outputs"), "output");
    print_version(model);
    print_symbols(model);
    printf("  weights  %llu, %s\n", (unsigned long long)get_count(weights, "count"),
           get_bytes(weights, "bytes", size));
    printf("  nodes    %llu:", (unsigned long long)get_count(model, "nodes"));
    json_object_foreach(json_object_get(model, "ops"), op, count)
        printf(" %s %lld", op, (long long)json_integer_value(count));
    printf("\n");
    if (slo_us > 0 || rate > 0)
        printf("  demand   SLO %.4g ms, %.4g/s\n", slo_us / 1e3, rate);
    print_buckets(model);
    print_profile(model);
}

static void print_app(const json_t *app)
{
    size_t i;
    const json_t *variant;
    printf("\napp ");
    print_name(json_object_get(app, "name"));
    printf("\n");
    json_array_foreach(json_object_get(app, "variants"), i, variant)
    {
        printf("  variant  ");
        print_name(json_object_get(variant, "model"));
        printf(", accuracy %g\n", json_number_value(json_object_get(variant, "accuracy")));
    }
}

static void print_adapter(const json_t *adapter)
{
    char size[32];
    printf("\nadapter ");
    print_name(json_object_get(adapter, "name"));
    printf(" of ");
    print_name(json_object_get(adapter, "model"));
    printf(
        ": %llu modules, rank up to %llu, %s\n", (unsigned long long)get_count(adapter, "modules"),
        (unsigned long long)get_count(adapter, "largest_rank"), get_bytes(adapter, "bytes", size));
}

static void print_joint(const json_t *joint)
{
    size_t i;
    json_t *name;
    printf("\n%s program ", json_is_true(json_object_get(joint, "packed")) ? "packed" : "joint");
    print_name(json_object_get(joint, "name"));
    printf("\n  models  ");
    json_array_foreach(json_object_get(joint, "models"), i, name)
    {
        printf(" ");
        print_name(name);
    }
    printf("\n  launches %llu, of the models apart %llu\n",
           (unsigned long long)get_count(joint, "launches"),
           (unsigned long long)get_count(joint, "launches_apart"));
    print_profile(joint);
}

static void print_bundle(const json_t *root)
{
    char size[32], other[32];
    size_t i, k;
    const json_t *s, *name, *weights = json_object_get(root, "weights");
    printf(" %s, ", get_bytes(root, "bytes", size));
    print_name(json_object_get(root, "tool"));
    printf(" for ");
    print_name(json_object_get(root, "target"));
    printf("\n");
    json_array_foreach(json_object_get(root, "sections"), i, s)
        printf("  section  %s: %s at %llu\n", json_string_value(json_object_get(s, "name")),
               get_bytes(s, "bytes", size), (unsigned long long)get_count(s, "offset"));
    printf("  weights  %llu, %s%s; sharing saves %s\n",
           (unsigned long long)get_count(weights, "count"), get_bytes(weights, "bytes", size),
           json_is_true(json_object_get(root, "verified")) ? ", checksums right" : "",
           get_bytes(weights, "saved_bytes", other));
    json_array_foreach(json_object_get(root, "shared"), i, s)
    {
        printf("  shared   %llu, %s: ", (unsigned long long)get_count(s, "count"),
               get_bytes(s, "bytes", size));
        json_array_foreach(json_object_get(s, "models"), k, name)
        {
            printf("%s", k ? ", " : "");
            print_name(name);
        }
        printf("\n");
    }
    weft_tool_code_print(json_object_get(root, "code"));
    const json_t *plan = json_object_get(root, "plan");
    if (!json_is_null(plan))
        printf("  plan     %zu placements on %llu devices\n",
               json_array_size(json_object_get(plan, "placements")),
               (unsigned long long)get_count(plan, "gpus"));
}

static void print_text(const json_t *root)
{
    size_t i;
    json_t *model;
    print_name(json_object_get(root, "file"));
    printf(": %s,", json_string_value(json_object_get(root, "kind")));
    if (json_object_get(root, "stage"))
        printf(" %s stage\n", json_string_value(json_object_get(root, "stage")));
    else
        print_bundle(root);
    json_array_foreach(json_object_get(root, "models"), i, model) print_model(model);
    json_array_foreach(json_object_get(root, "joint"), i, model) print_joint(model);
    json_array_foreach(json_object_get(root, "apps"), i, model) print_app(model);
    json_array_foreach(json_object_get(root, "adapters"), i, model) print_adapter(model);
}

/* -- The verb --------------------------------------------------------------------------------- */

/* Copies standard input to a file that can be mapped. Returns its descriptor; `path` gets its
 * path. */
static weft_err copy_stdin(char *path, size_t size, int *out_fd, weft_diag *diag)
{
    const weft_where where = {.file = "<stdin>"};
    char *at = NULL;
    size_t len = 0;
    WEFT_TRY(weft_file_read("-", (uint64_t)1 << 40, diag, &at, &len));
    int fd = weft_file_make("weft-stdin", at, len);
    free(at);
    *out_fd = fd;
    snprintf(path, size, "/proc/self/fd/%d", fd);
    return fd >= 0
               ? WEFT_ERR_OK
               : weft_diag_error(diag, WEFT_ERR_IO, where, "no memory to keep standard input in");
}

weft_err weft_tool_inspect(const char *file, bool verify, weft_diag *diag, weft_arena *arena,
                           json_t *root)
{
    bool is_stdin = strcmp(file, "-") == 0;
    char path[64];
    int fd = -1;
    weft_err err = is_stdin ? copy_stdin(path, sizeof path, &fd, diag) : WEFT_ERR_OK;
    const char *from = is_stdin ? path : file;
    weft_file_kind kind = WEFT_FILE_TEXT;
    if (err == WEFT_ERR_OK)
        err = weft_tool_sniff(from, diag, &kind);
    json_object_set_new(root, "file", weft_tool_json_name(is_stdin ? "<stdin>" : file));
    if (err == WEFT_ERR_OK)
        err =
            kind == WEFT_FILE_BUNDLE
                ? inspect_bundle(from, verify, diag, arena, root)
                : inspect_module(from, kind == WEFT_FILE_TEXT ? "text" : "onnx", diag, arena, root);
    if (fd >= 0)
        close(fd);
    return err;
}

#define OPTIONS_OF_inspect
#define OPTIONS options
#include "tools/common/option_rows.h"

static int run_inspect(int argc, char **argv)
{
    options o = {0};
    int code = weft_options_parse_one(&weft_verb_inspect, argc, argv, &o,
                                      "file, or - for standard input", &o.file);
    if (code >= 0)
        return code;
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    json_t *root = json_object();
    weft_err err = WEFT_ERR_NOMEM;
    weft_tool_progress("reading %s", o.file);
    if (diag && arena && root)
        err = weft_tool_inspect(o.file, !o.no_verify, diag, arena, root);
    weft_tool_progress(NULL);
    if (err == WEFT_ERR_OK && o.json) {
        json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
        putchar('\n');
    } else if (err == WEFT_ERR_OK) {
        print_text(root);
    }
    code = weft_tool_report(diag, err);
    json_decref(root);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return code;
}

const weft_verb weft_verb_inspect = {.name = "inspect", .row = rows, .run = run_inspect};
