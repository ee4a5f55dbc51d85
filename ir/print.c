/* Prints modules as canonical text; README.md has the grammar. Values are renumbered in order,
 * unused symbols and weights are omitted: the text depends on the content only. */
#include "base/num.h"
#include "ir/ir_int.h"

#include <string.h>

enum { DENSE_MAX = 64 }; /* elements of a weight printed one by one */

typedef struct printer {
    weft_module *m;
    weft_buf *out;
    weft_arena *scratch;
    weft_names *symbol_names; /* id of a name: number of the symbol plus 1 */
    bool *symbol_used;
    weft_dimpool *dims; /* a copy: printing does not change the module */
    weft_map *dim_ids;  /* dim to the index of its text */
    WEFT_VEC(const char *) dim_texts;
    bool *is_output;          /* by value: of any graph */
    uint32_t *number;         /* by value: 0 none yet */
    const char **input_name;  /* of the graph, NULL: by number */
    const char **weight_name; /* by weight */
    weft_graph *g;
} printer;

bool weft_text__is_ident(const char *s)
{
    if (!weft_text__is_name(s[0]) || s[0] == '.' || (s[0] >= '0' && s[0] <= '9'))
        return false;
    for (; *s; s++)
        if (!weft_text__is_name(*s))
            return false;
    return true;
}

static void put_string(printer *p, const char *s)
{
    weft_buf_put_quoted(p->out, s, strlen(s));
}

/* A float always contains '.', 'e', "inf" or "nan", which tells it from an integer. */
static void put_float(weft_buf *out, double x, bool is_f32)
{
    size_t start = out->len;
    if (is_f32)
        weft_buf_put_f32(out, (float)x);
    else
        weft_buf_put_f64(out, x);
    if (out->at && !strpbrk(out->at + start, ".ein"))
        weft_buf_puts(out, ".0");
}

/* -- Symbols ---------------------------------------------------------------------------------- */

/* Text of a dim. If bounds have become tighter since the dim was made, its text would read back as
 * a simpler dim (min(?s, 512) as ?s); the simpler one is printed. */
static const char *dim_text(printer *p, weft_dim d)
{
    uint64_t found;
    if (weft_map_get(p->dim_ids, (uint64_t)d, &found))
        return p->dim_texts.at[found];
    weft_buf buf = {0};
    weft_dim again;
    weft_dim_print(p->dims, d, &buf);
    const char *text = weft_buf_keep(&buf, p->scratch);
    if (weft_dim_parse(p->dims, text, &again) && again != d) {
        weft_dim_print(p->dims, again, &buf);
        text = weft_buf_keep(&buf, p->scratch);
    }
    weft_map_put(p->dim_ids, (uint64_t)d, p->dim_texts.len);
    WEFT_VEC_PUSH(p->scratch, &p->dim_texts, text);
    return text;
}

static void put_dim(printer *p, weft_dim d)
{
    if (weft_dim_is_const(d))
        weft_buf_printf(p->out, "%lld", (long long)d);
    else
        weft_buf_puts(p->out, dim_text(p, d));
}

static void note_dim(printer *p, weft_dim d)
{
    uint64_t seen;
    if (weft_dim_is_const(d) || weft_map_get(p->dim_ids, (uint64_t)d, &seen))
        return;
    for (const char *s = dim_text(p, d); (s = strchr(s, '?')) != NULL;) {
        size_t len = 0;
        for (s++; weft_text__is_name(s[len]);)
            len++;
        uint32_t id = weft_names_find(p->symbol_names, s, len);
        if (id)
            p->symbol_used[id - 1] = true;
    }
}

static void note_val(printer *p, weft_val v)
{
    const weft_ttype *t = weft_val_ttype(p->m, v);
    for (uint32_t k = 0; k < t->rank; k++)
        note_dim(p, t->dim[k]);
}

static void note_attrs(printer *p, weft_attrs attrs)
{
    for (uint32_t i = 0; i < attrs.n; i++)
        if (attrs.at[i].kind == WEFT_KIND_DIMS)
            for (uint32_t k = 0; k < attrs.at[i].n; k++)
                note_dim(p, attrs.at[i].u.dims[k]);
}

static void note_graph(printer *p, weft_graph *g)
{
    for (uint32_t i = 0; i < weft_graph_symbol_count(g); i++)
        note_dim(p, weft_graph_symbol_dim(g, i));
    for (uint32_t i = 0; i < weft_graph_require_count(g); i++) {
        note_dim(p, weft_graph_require_at(g, i)->a);
        note_dim(p, weft_graph_require_at(g, i)->b);
        note_dim(p, weft_graph_require_at(g, i)->guard);
    }
    for (uint32_t i = 0; i < weft_graph_input_count(g); i++)
        note_val(p, weft_graph_input(g, i));
    for (uint32_t i = 0; i < weft_graph_output_count(g); i++)
        p->is_output[weft_graph_output(g, i).i] = true;
    WEFT_FOREACH_NODE (p->m, g, n) {
        note_attrs(p, weft_node_attrs(p->m, n));
        for (uint32_t i = 0; i < weft_node_out_count(p->m, n); i++)
            note_val(p, weft_node_out(p->m, n, i));
    }
}

static void print_symbols(printer *p)
{
    const weft_dimpool *pool = p->m->dims;
    for (uint32_t i = 0; i < weft_dim_symbol_count(pool); i++) {
        if (!p->symbol_used[i])
            continue;
        int64_t lo, hi;
        weft_dim_symbol_range(pool, i, &lo, &hi);
        weft_buf_printf(p->out, "symbol ?%s", weft_dim_symbol_name(pool, i));
        if (hi < INT64_MAX / 4)
            weft_buf_printf(p->out, " = [%lld, %lld]", (long long)lo, (long long)hi);
        else if (lo > 0)
            weft_buf_printf(p->out, " = [%lld, inf]", (long long)lo);
        weft_buf_puts(p->out, weft_dim_symbol_is_data(pool, i) ? " data\n" : "\n");
    }
}

/* -- Types ------------------------------------------------------------------------------------ */

static void print_type(printer *p, weft_type type)
{
    const weft_ttype *t = weft_type_get(p->m, type);
    if (t->dtype == WEFT_DTYPE_NONE) {
        weft_buf_puts(p->out, "none");
        return;
    }
    weft_buf_printf(p->out, "%s[", weft_dtype_name((weft_dtype)t->dtype));
    for (uint32_t k = 0; k < t->rank; k++) {
        if (k)
            weft_buf_putc(p->out, ',');
        put_dim(p, t->dim[k]);
    }
    weft_buf_putc(p->out, ']');
    if (t->layout != WEFT_LAYOUT_PLAIN)
        weft_buf_printf(p->out, ":%s", weft_layout_name((weft_layout)t->layout));
}

/* -- Weights ---------------------------------------------------------------------------------- */

/* Element i as text; false when the text would not read back to the same bits. */
static bool put_element(weft_buf *out, const weft_tensor *t, int64_t i)
{
    size_t size = weft_dtype_size(t->dtype), start = out->len;
    uint64_t bits = 0;
    weft_tensor back = {.dtype = t->dtype, .rank = 1, .dim = {1}, .data = &bits};
    if (weft_dtype_is_float(t->dtype)) {
        double x = weft_tensor_get_f64(t, i);
        put_float(out, x, t->dtype != WEFT_DTYPE_F64);
        if (!out->at || !weft_parse_f64(out->at + start, &x))
            return false;
        weft_tensor_set_f64(&back, 0, x);
    } else if (t->dtype == WEFT_DTYPE_U64) {
        memcpy(&bits, (const char *)t->data + (size_t)i * size, size);
        weft_buf_printf(out, "%llu", (unsigned long long)bits);
    } else {
        weft_buf_printf(out, "%lld", (long long)weft_tensor_get_i64(t, i));
        weft_tensor_set_i64(&back, 0, weft_tensor_get_i64(t, i));
    }
    return memcmp(&bits, (const char *)t->data + (size_t)i * size, size) == 0;
}

static bool all_equal(const weft_weight_info *info, size_t size)
{
    for (uint64_t i = size; i < info->bytes; i += size)
        if (memcmp(info->data, info->data + i, size) != 0)
            return false;
    return true;
}

static void print_base64(printer *p, const uint8_t *data, uint64_t len)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    weft_buf_puts(p->out, "base64 \"");
    for (uint64_t i = 0; i < len; i += 3) {
        uint32_t left = len - i < 3 ? (uint32_t)(len - i) : 3;
        uint32_t x = (uint32_t)data[i] << 16 | (left > 1 ? (uint32_t)data[i + 1] << 8 : 0) |
                     (left > 2 ? data[i + 2] : 0);
        char four[4] = {digit[x >> 18], digit[x >> 12 & 63], left > 1 ? digit[x >> 6 & 63] : '=',
                        left > 2 ? digit[x & 63] : '='};
        weft_buf_add(p->out, four, 4);
    }
    weft_buf_putc(p->out, '"');
}

/* The first `n` elements as "dense [..]" or, when there is one to print, "splat x". */
static bool print_elements(printer *p, const weft_tensor *t, int64_t n, bool splat)
{
    size_t start = p->out->len;
    weft_buf_puts(p->out, splat ? "splat " : "dense [");
    for (int64_t i = 0; i < n; i++) {
        if (i)
            weft_buf_puts(p->out, ", ");
        if (!put_element(p->out, t, i)) {
            p->out->len = start;
            return false;
        }
    }
    if (!splat)
        weft_buf_putc(p->out, ']');
    return true;
}

static void print_data(printer *p, weft_weight w)
{
    const weft_weight_info *info = weft_weight_get(p->m, w);
    weft_tensor t = weft_weight_tensor(p->m, w);
    int64_t n = weft_tensor_numel(&t);
    size_t size = weft_dtype_size(t.dtype);
    uint64_t seed;
    if (weft_weight__get_random(p->m, w, &seed)) {
        weft_buf_printf(p->out, "random %llu", (unsigned long long)seed);
        return;
    }
    const char *path = weft_module_file_path(p->m, info->file_id);
    if (n > DENSE_MAX && path) {
        const char *base = strrchr(path, '/');
        weft_buf_puts(p->out, "file ");
        put_string(p, base ? base + 1 : path);
        weft_buf_printf(p->out, " offset %llu", (unsigned long long)info->offset);
        return;
    }
    bool splat = n > 1 && all_equal(info, size);
    int64_t shown = splat ? 1 : n;
    uint64_t aligned[DENSE_MAX];
    if (shown <= DENSE_MAX) {
        if (shown)
            memcpy(aligned, info->data, (size_t)shown * size);
        t.data = aligned;
        if (print_elements(p, &t, shown, splat))
            return;
    }
    print_base64(p, info->data, info->bytes);
}

static bool weight_is_used(const printer *p, weft_weight w)
{
    weft_val v = weft_weight_val(p->m, w);
    return weft_val_use_count(p->m, v) || p->is_output[v.i];
}

/* The weight's name if it is valid in text and unused, else "wN". */
static void name_weights(printer *p)
{
    uint32_t count = weft_weight_count(p->m);
    weft_names *names = weft_names_create(p->scratch), *taken = weft_names_create(p->scratch);
    p->weight_name = weft_arena_array(p->scratch, count + 1, sizeof *p->weight_name);
    for (uint32_t i = 1; i <= count; i++) {
        const char *name = weft_weight_get(p->m, (weft_weight){i})->name;
        if (weight_is_used(p, (weft_weight){i}))
            weft_names_add(names, name, strlen(name));
    }
    uint32_t next = 1;
    for (uint32_t i = 1; i <= count; i++) {
        if (!weight_is_used(p, (weft_weight){i}))
            continue;
        const char *name = weft_weight_get(p->m, (weft_weight){i})->name;
        if (!weft_text__is_ident(name) || weft_names_find(taken, name, strlen(name))) {
            do {
                name = weft_arena_printf(p->scratch, "w%u", next++);
            } while (weft_names_find(names, name, strlen(name)));
        }
        weft_names_add(taken, name, strlen(name));
        p->weight_name[i] = name;
    }
}

static void print_weights(printer *p)
{
    name_weights(p);
    for (uint32_t i = 1; i <= weft_weight_count(p->m); i++) {
        const weft_weight_info *info = weft_weight_get(p->m, (weft_weight){i});
        if (!p->weight_name[i])
            continue;
        weft_buf_printf(p->out, "weight $%s ", p->weight_name[i]);
        if (strcmp(p->weight_name[i], info->name) != 0) {
            put_string(p, info->name);
            weft_buf_putc(p->out, ' ');
        }
        weft_buf_puts(p->out, ": ");
        print_type(p, info->type);
        weft_buf_puts(p->out, " = ");
        print_data(p, (weft_weight){i});
        if (info->group)
            weft_buf_printf(p->out, " group %u", info->group);
        weft_buf_putc(p->out, '\n');
    }
}

/* -- Attributes ------------------------------------------------------------------------------- */

static void print_list(printer *p, const weft_attr *a)
{
    static const char *const empty[] = {
        [WEFT_KIND_INTS] = "ints", [WEFT_KIND_FLOATS] = "floats", [WEFT_KIND_STRS] = "strs"};
    if (a->kind == WEFT_KIND_DIMS)
        weft_buf_puts(p->out, "dims");
    else if (a->n == 0)
        weft_buf_puts(p->out, empty[a->kind]);
    weft_buf_putc(p->out, '[');
    for (uint32_t i = 0; i < a->n; i++) {
        if (i)
            weft_buf_puts(p->out, ", ");
        if (a->kind == WEFT_KIND_INTS)
            weft_buf_printf(p->out, "%lld", (long long)a->u.ints[i]);
        else if (a->kind == WEFT_KIND_FLOATS)
            put_float(p->out, a->u.floats[i], false);
        else if (a->kind == WEFT_KIND_STRS)
            put_string(p, a->u.strs[i]);
        else
            put_dim(p, a->u.dims[i]);
    }
    weft_buf_putc(p->out, ']');
}

static void print_attrs(printer *p, weft_attrs attrs)
{
    for (uint32_t i = 0; i < attrs.n; i++) {
        const weft_attr *a = &attrs.at[i];
        weft_buf_printf(p->out, "%s%s = ", i ? ", " : " {",
                        weft_attr_key_name((weft_attr_key)a->key));
        switch (a->kind) {
        case WEFT_KIND_INT:
            weft_buf_printf(p->out, "%lld", (long long)a->u.i);
            break;
        case WEFT_KIND_FLOAT:
            put_float(p->out, a->u.f, false);
            break;
        case WEFT_KIND_STR:
            put_string(p, a->u.s);
            break;
        case WEFT_KIND_DTYPE:
            weft_buf_puts(p->out, weft_dtype_name(a->u.dtype));
            break;
        default:
            print_list(p, a);
        }
    }
    if (attrs.n)
        weft_buf_putc(p->out, '}');
}

/* -- Graphs ----------------------------------------------------------------------------------- */

/* Inputs are printed by name if it is valid in text; all other values by number. */
static void name_inputs(printer *p)
{
    uint32_t n = weft_graph_input_count(p->g);
    weft_names *taken = weft_names_create(p->scratch);
    p->input_name = weft_arena_array(p->scratch, n, sizeof *p->input_name);
    for (uint32_t i = 0; i < n; i++) {
        const char *name = weft_graph_input_name(p->g, i);
        size_t len = strlen(name);
        if (weft_text__is_ident(name) && !weft_names_find(taken, name, len))
            p->input_name[i] = name;
        weft_names_add(taken, name, len);
    }
}

static void print_val(printer *p, weft_val v)
{
    if (!v.i) {
        weft_buf_putc(p->out, '_');
        return;
    }
    weft_weight w = weft_val_weight(p->m, v);
    if (w.i) {
        weft_buf_printf(p->out, "$%s", p->weight_name[w.i]);
        return;
    }
    bool is_input = weft_val_get_kind(p->m, v) == WEFT_VAL_INPUT;
    if (is_input && weft_val_index(p->m, v) < weft_graph_input_count(p->g) &&
        weft_graph_input(p->g, weft_val_index(p->m, v)).i == v.i) {
        const char *name = p->input_name[weft_val_index(p->m, v)];
        if (name) {
            weft_buf_printf(p->out, "%%%s", name);
            return;
        }
    }
    /* A value without a number belongs to another graph or is defined later; verify reports it. */
    if (p->number[v.i])
        weft_buf_printf(p->out, "%%%u", p->number[v.i]);
    else
        weft_buf_printf(p->out, "%%undefined.%u", v.i);
}

static void print_name(printer *p, char sigil, const char *name)
{
    weft_buf_putc(p->out, sigil);
    if (weft_text__is_ident(name))
        weft_buf_puts(p->out, name);
    else
        put_string(p, name);
}

static void print_requires(printer *p, const weft_graph *g)
{
    for (uint32_t i = 0; i < weft_graph_require_count(g); i++) {
        const weft_graph_require *r = weft_graph_require_at(g, i);
        weft_buf_puts(p->out, r->kind == WEFT_REQUIRE_FITS     ? "  require fits ["
                              : r->kind == WEFT_REQUIRE_DIFFER ? "  require differ ["
                                                               : "  require equal [");
        put_dim(p, r->a);
        weft_buf_puts(p->out, ", ");
        put_dim(p, r->b);
        if (r->guard != 1) {
            weft_buf_puts(p->out, ", ");
            put_dim(p, r->guard);
        }
        weft_buf_puts(p->out, "] ");
        put_string(p, r->what);
        if (r->item) {
            weft_buf_putc(p->out, ' ');
            put_string(p, r->item);
        }
        weft_buf_putc(p->out, '\n');
    }
}

static void print_head(printer *p, uint32_t *next)
{
    weft_graph *g = p->g;
    name_inputs(p);
    weft_buf_puts(p->out, weft_graph_is_body(g) ? "\nbody " : "\ngraph ");
    print_name(p, '@', weft_graph_name(g));
    weft_buf_puts(p->out, " (");
    for (uint32_t i = 0; i < weft_graph_input_count(g); i++) {
        weft_val v = weft_graph_input(g, i);
        const char *name = p->input_name[i];
        if (!name)
            p->number[v.i] = (*next)++;
        weft_buf_puts(p->out, i ? ", " : "");
        print_val(p, v);
        if (!name) {
            weft_buf_putc(p->out, ' ');
            put_string(p, weft_graph_input_name(g, i));
        }
        weft_buf_puts(p->out, " : ");
        print_type(p, weft_val_type(p->m, v));
    }
    weft_buf_puts(p->out, ") {\n");
    for (uint32_t i = 0; i < weft_graph_symbol_count(g); i++) {
        weft_buf_puts(p->out, "  symbol ");
        put_dim(p, weft_graph_symbol_dim(g, i));
        weft_buf_putc(p->out, ' ');
        put_string(p, weft_graph_symbol_name(g, i));
        weft_buf_putc(p->out, '\n');
    }
    print_requires(p, g);
    for (uint32_t i = 0; i < weft_graph_part_count(g); i++) {
        const weft_part *part = weft_graph_part(g, i);
        weft_buf_puts(p->out, "  part ");
        print_name(p, '@', part->model);
        weft_buf_printf(p->out, " %u %u\n", part->n_in, part->n_out);
    }
    if (weft_graph_is_packed(g))
        weft_buf_puts(p->out, "  packed\n");
    if (weft_graph_limit(g))
        weft_buf_printf(p->out, "  limit %llu\n", (unsigned long long)weft_graph_limit(g));
}

static void print_loc(printer *p, weft_loc loc)
{
    const char *path = weft_module_file_path(p->m, loc.file_id);
    if (path && p->m->files.at[loc.file_id].is_text)
        return;
    if (!path && !loc.item)
        return;
    weft_buf_puts(p->out, "  loc ");
    put_string(p, path ? path : "");
    if (loc.line)
        weft_buf_printf(p->out, " %u", loc.line);
    if (loc.item) {
        weft_buf_putc(p->out, ' ');
        put_string(p, loc.item);
    }
}

static void print_node(printer *p, weft_node n, uint32_t *next)
{
    weft_module *m = p->m;
    weft_buf_puts(p->out, "  ");
    for (uint32_t i = 0; i < weft_node_out_count(m, n); i++) {
        weft_val v = weft_node_out(m, n, i);
        weft_buf_puts(p->out, i ? ", " : "");
        if (!weft_val_type(m, v).i && !weft_val_use_count(m, v) && !p->is_output[v.i]) {
            weft_buf_putc(p->out, '_');
            continue;
        }
        p->number[v.i] = (*next)++;
        weft_buf_printf(p->out, "%%%u : ", p->number[v.i]);
        print_type(p, weft_val_type(m, v));
    }
    weft_buf_printf(p->out, "%s%s", weft_node_out_count(m, n) ? " = " : "",
                    weft_node_opdef(m, n)->name);
    for (uint32_t i = 0; i < weft_node_in_count(m, n); i++) {
        weft_buf_puts(p->out, i ? ", " : " ");
        print_val(p, weft_node_in(m, n, i));
    }
    print_attrs(p, weft_node_attrs(m, n));
    print_loc(p, weft_node_loc(m, n));
    weft_buf_putc(p->out, '\n');
}

static void print_bucket(printer *p, const weft_bucket *b)
{
    weft_buf_puts(p->out, "  bucket {");
    for (uint32_t i = 0; i < b->n_symbol && i < weft_graph_symbol_count(p->g); i++) {
        weft_buf_puts(p->out, i ? ", " : "");
        put_dim(p, weft_graph_symbol_dim(p->g, i));
        weft_buf_printf(p->out, " = %lld", (long long)b->symbol[i]);
    }
    weft_buf_printf(p->out, "} arena %llu {\n", (unsigned long long)b->arena_bytes);
    for (uint32_t i = 0; i < b->n_buffer; i++) {
        const weft_buffer *f = &b->buffer[i];
        weft_buf_puts(p->out, "    ");
        print_val(p, f->val);
        weft_buf_printf(p->out, " offset %llu bytes %llu live %u..%u\n",
                        (unsigned long long)f->offset, (unsigned long long)f->bytes, f->first,
                        f->last);
    }
    weft_buf_puts(p->out, "  }\n");
}

static void print_graph(printer *p, weft_graph *g)
{
    uint32_t next = 1;
    p->g = g;
    print_head(p, &next);
    WEFT_FOREACH_NODE (p->m, g, n)
        print_node(p, n, &next);
    weft_buf_puts(p->out, "  return");
    for (uint32_t i = 0; i < weft_graph_output_count(g); i++) {
        weft_buf_puts(p->out, i ? ", " : " ");
        put_string(p, weft_graph_output_name(g, i));
        weft_buf_putc(p->out, ' ');
        print_val(p, weft_graph_output(g, i));
    }
    weft_buf_putc(p->out, '\n');
    for (uint32_t i = 0; i < weft_graph_bucket_count(g); i++)
        print_bucket(p, weft_graph_bucket(g, i));
    weft_buf_puts(p->out, "}\n");
}

static void print_module(printer *p)
{
    weft_module *m = p->m;
    p->symbol_names = weft_names_create(p->scratch);
    for (uint32_t i = 0; i < weft_dim_symbol_count(m->dims); i++) {
        const char *name = weft_dim_symbol_name(m->dims, i);
        weft_names_add(p->symbol_names, name, strlen(name));
    }
    p->symbol_used = weft_arena_array(p->scratch, weft_dim_symbol_count(m->dims), 1);
    p->dims = weft_dimpool_clone(m->dims, p->scratch);
    p->dim_ids = weft_map_create(p->scratch);
    p->number = weft_arena_array(p->scratch, weft_val_count(m) + 1, sizeof *p->number);
    p->is_output = weft_arena_array(p->scratch, weft_val_count(m) + 1, sizeof *p->is_output);
    for (uint32_t i = 0; i < weft_graph_count(m); i++)
        note_graph(p, weft_graph_at(m, i));
    weft_buf_printf(p->out, "wir 1 %s\n", weft_stage_name(m->stage));
    print_symbols(p);
    print_weights(p);
    for (uint32_t i = 0; i < weft_graph_count(m); i++)
        print_graph(p, weft_graph_at(m, i));
}

static void print_guarded(printer *p)
{
    jmp_buf env;
    weft_arena_guard(p->scratch, &env);
    if (setjmp(env))
        p->out->failed = true;
    else
        print_module(p);
}

void weft_module_print(weft_module *m, weft_buf *out)
{
    printer p = {.m = m, .out = out, .scratch = weft_arena_create(0)};
    if (p.scratch)
        print_guarded(&p);
    else
        out->failed = true;
    weft_arena_destroy(p.scratch);
}
