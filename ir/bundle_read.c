/* The metadata of a bundle: protobuf messages to structures. Untrusted input: names are checked
 * against the tables, indices against counts, dims and bounds by parsing them, launches for SSA
 * order, buffers against their arena and type. The result is one that codegen could have produced.
 */
#include "base/escape.h"
#include "base/num.h"
#include "ir/bundle_read_int.h"
#include "ops/adapter_rows.h"

#include <math.h>
#include <string.h>

enum { VERSION_DIGITS_MAX = 18 };

static const char *keep(weft_bundle__reader *r, const char *s)
{
    return weft_arena_strdup(r->arena, s);
}

/* A name, which messages and reports show. */
static const char *keep_name(weft_bundle__reader *r, const char *s)
{
    return weft_escaped(r->arena, s);
}

/* false if the name is empty or was already added. */
static bool add_name(weft_names *names, const char *s)
{
    size_t len = strlen(s);
    if (!len || weft_names_find(names, s, len))
        return false;
    weft_names_add(names, s, len);
    return true;
}

/* -- Tables ----------------------------------------------------------------------------------- */

static weft_err read_tables(weft_bundle__reader *r)
{
    const Weft__Bundle__Bundle *m = r->msg;
    r->op = weft_arena_array(r->scratch, m->n_op, sizeof *r->op);
    r->key = weft_arena_array(r->scratch, m->n_key, sizeof *r->key);
    r->dtype = weft_arena_array(r->scratch, m->n_dtype, sizeof *r->dtype);
    r->layout = weft_arena_array(r->scratch, m->n_layout, sizeof *r->layout);
    for (size_t i = 0; i < m->n_op; i++) {
        r->op[i] = weft_op_find(m->op[i]);
        if (r->op[i] == WEFT_OP_NONE)
            return weft_bundle__refuse(r, "no operator is called \"%s\"", m->op[i]);
    }
    for (size_t i = 0; i < m->n_key; i++) {
        r->key[i] = weft_attr_key_parse(m->key[i]);
        if (r->key[i] == WEFT_ATTR_NONE)
            return weft_bundle__refuse(r, "no attribute is called \"%s\"", m->key[i]);
    }
    for (size_t i = 0; i < m->n_dtype; i++) {
        r->dtype[i] = weft_dtype_parse(m->dtype[i]);
        if (r->dtype[i] == WEFT_DTYPE_NONE)
            return weft_bundle__refuse(r, "no element type is called \"%s\"", m->dtype[i]);
    }
    for (size_t i = 0; i < m->n_layout; i++)
        if (!weft_layout_parse(m->layout[i], &r->layout[i]))
            return weft_bundle__refuse(r, "no layout is called \"%s\"", m->layout[i]);
    return WEFT_ERR_OK;
}

/* -- Weights ---------------------------------------------------------------------------------- */

static weft_err read_weight(weft_bundle__reader *r, const Weft__Bundle__Weight *m,
                            weft_bundle_weight *w)
{
    w->name = keep_name(r, m->name);
    w->dtype = weft_dtype_parse(m->dtype);
    w->rank = (uint32_t)m->n_dim;
    w->checksum = m->checksum;
    w->n_users = m->users;
    if (w->dtype == WEFT_DTYPE_NONE || m->n_dim > WEFT_RANK_MAX)
        return weft_bundle__refuse(r, "weight \"%s\" has type \"%s\" and rank %zu", m->name,
                                   m->dtype, m->n_dim);
    for (uint32_t k = 0; k < w->rank; k++) {
        if (m->dim[k] > (uint64_t)WEFT_NUMEL_MAX)
            return weft_bundle__refuse(r, "weight \"%s\" is too large", m->name);
        w->dim[k] = (int64_t)m->dim[k];
    }
    if (!weft_layout_bytes(w->dtype, WEFT_LAYOUT_PLAIN, w->dim, (int32_t)w->rank, &w->bytes))
        return weft_bundle__refuse(r, "weight \"%s\" is too large", m->name);
    return WEFT_ERR_OK;
}

static weft_err read_weights(weft_bundle__reader *r, const weft_file *section)
{
    uint64_t at = 0;
    size_t n = r->msg->n_weight;
    weft_bundle_weight *weight = weft_arena_array(r->arena, n, sizeof *weight);
    for (size_t i = 0; i < n; i++) {
        WEFT_TRY(read_weight(r, r->msg->weight[i], &weight[i]));
        uint64_t left = section->len - at;
        if (weight[i].bytes > left || weft_align_up(weight[i].bytes, WEFT_BUNDLE_ALIGN) > left)
            return weft_bundle__refuse(
                r, "weight \"%s\" has %llu bytes, %llu are left in its section", weight[i].name,
                (unsigned long long)weight[i].bytes, (unsigned long long)left);
        weight[i].data = section->at + at;
        at += weft_align_up(weight[i].bytes, WEFT_BUNDLE_ALIGN);
    }
    if (at != section->len)
        return weft_bundle__refuse(r, "the weights have %llu bytes, their section %llu",
                                   (unsigned long long)at, (unsigned long long)section->len);
    r->b->weight = weight;
    r->b->n_weight = (uint32_t)n;
    return WEFT_ERR_OK;
}

/* -- Symbols and dims ------------------------------------------------------------------------- */

static weft_err read_symbols(weft_bundle__reader *r, const Weft__Bundle__Program *m)
{
    weft_bundle_program *p = r->p;
    if (m->n_symbol > WEFT_BUNDLE_SYMBOLS_MAX)
        return weft_bundle__refuse(r, "%zu symbols, at most %d", m->n_symbol,
                                   WEFT_BUNDLE_SYMBOLS_MAX);
    weft_bundle_symbol *symbol = weft_arena_array(r->arena, m->n_symbol, sizeof *symbol);
    weft_names *names = weft_names_create(r->scratch);
    p->dims = weft_dimpool_create(r->arena);
    for (uint32_t i = 0; i < m->n_symbol; i++) {
        const Weft__Bundle__Symbol *s = m->symbol[i];
        int64_t lo = 0, hi = 0;
        bool ok = s->lo >= 0 && s->hi >= s->lo && add_name(names, s->name) &&
                  weft_dim_as_symbol(p->dims, weft_dim_symbol(p->dims, s->text, s->lo, s->hi)) == i;
        if (ok)
            weft_dim_symbol_range(p->dims, i, &lo, &hi);
        if (!ok || lo != s->lo || hi != s->hi ||
            strcmp(weft_dim_symbol_name(p->dims, i), s->text) != 0)
            return weft_bundle__refuse(r,
                                       "symbol \"%s\" (%s, %lld to %lld) is wrong or given twice",
                                       s->name, s->text, (long long)s->lo, (long long)s->hi);
        symbol[i] = (weft_bundle_symbol){keep_name(r, s->name), lo, hi};
    }
    for (uint32_t i = 0; i < m->n_data_symbol; i++) {
        uint32_t want = (uint32_t)m->n_symbol + i;
        weft_dim d = weft_dim_declare_data(p->dims, m->data_symbol[i]);
        if (weft_dim_as_symbol(p->dims, d) != want ||
            strcmp(weft_dim_symbol_name(p->dims, want), m->data_symbol[i]) != 0)
            return weft_bundle__refuse(r, "symbol \"%s\" is wrong or given twice",
                                       m->data_symbol[i]);
    }
    p->symbol = symbol;
    p->n_symbol = (uint32_t)m->n_symbol;
    return WEFT_ERR_OK;
}

static weft_err read_exprs(weft_bundle__reader *r, const Weft__Bundle__Program *m)
{
    weft_dimpool *dims = r->p->dims;
    uint32_t n_symbol = weft_dim_symbol_count(dims);
    weft_err err = WEFT_ERR_OK;
    r->expr = weft_arena_array(r->scratch, m->n_expr, sizeof *r->expr);
    r->n_expr = m->n_expr;
    for (size_t i = 0; i < m->n_expr && err == WEFT_ERR_OK; i++) {
        weft_dim d = 0;
        size_t used = weft_dim_parse(dims, m->expr[i], &d);
        bool ok =
            used && used == strlen(m->expr[i]) && d < 0 && weft_dim_symbol_count(dims) == n_symbol;
        if (ok) {
            weft_buf text = {0};
            weft_dim_print(dims, d, &text);
            if (text.failed)
                err = WEFT_ERR_NOMEM;
            else
                ok = strcmp(text.at, m->expr[i]) == 0;
            weft_buf_finish(&text);
        }
        r->expr[i] = d;
        if (!ok)
            err = weft_bundle__refuse(r, "dimension \"%s\" cannot be read", m->expr[i]);
    }
    return err;
}

static weft_err read_requires(weft_bundle__reader *r, const Weft__Bundle__Program *m)
{
    weft_bundle_require *require = weft_arena_array(r->arena, m->n_require, sizeof *require);
    if (m->n_require > WEFT_BUNDLE_REQUIRES_MAX)
        return weft_bundle__refuse(r, "%zu requirements, at most %d", m->n_require,
                                   WEFT_BUNDLE_REQUIRES_MAX);
    for (size_t i = 0; i < m->n_require; i++) {
        const Weft__Bundle__Require *from = m->require[i];
        weft_bundle_require *to = &require[i];
        to->kind = (weft_require_kind)from->kind;
        to->item = *from->item ? keep(r, from->item) : NULL;
        to->what = keep(r, from->what);
        if (from->kind >= WEFT_REQUIRE_COUNT || !weft_bundle__get_dim(r, from->a, &to->a) ||
            !weft_bundle__get_dim(r, from->b, &to->b) ||
            !weft_bundle__get_dim(r, from->guard, &to->guard) ||
            weft_dim_is_data(r->p->dims, to->a) || weft_dim_is_data(r->p->dims, to->b) ||
            weft_dim_is_data(r->p->dims, to->guard))
            return weft_bundle__refuse(r, "requirement %zu is wrong", i);
    }
    r->p->require = require;
    r->p->n_require = (uint32_t)m->n_require;
    return WEFT_ERR_OK;
}

/* -- Values and ports ------------------------------------------------------------------------- */

static bool is_weight_type(const weft_ttype *t, const weft_bundle_weight *w)
{
    if (t->dtype != w->dtype || t->layout != WEFT_LAYOUT_PLAIN || t->rank != w->rank)
        return false;
    for (uint32_t k = 0; k < w->rank; k++)
        if (t->dim[k] != w->dim[k])
            return false;
    return true;
}

static weft_err read_value(weft_bundle__reader *r, const Weft__Bundle__Value *m, uint32_t v,
                           weft_bundle_value *value)
{
    if (m->dtype >= r->msg->n_dtype || m->layout >= r->msg->n_layout || m->n_dim > WEFT_RANK_MAX)
        return weft_bundle__refuse(r, "value %u has no sound type", v);
    value->type.dtype = (uint8_t)r->dtype[m->dtype];
    value->type.layout = (uint8_t)r->layout[m->layout];
    value->type.rank = (uint8_t)m->n_dim;
    for (uint32_t k = 0; k < m->n_dim; k++) {
        weft_dim d;
        if (!weft_bundle__get_dim(r, m->dim[k], &d) || (d < 0 && weft_dim_is_const(d)))
            return weft_bundle__refuse(r, "value %u has a wrong dimension", v);
        value->type.dim[k] = d;
    }
    value->weight = m->weight;
    if (!m->weight)
        return WEFT_ERR_OK;
    if (m->weight > r->b->n_weight)
        return weft_bundle__refuse(r, "value %u is weight %u of %u", v, m->weight, r->b->n_weight);
    if (!is_weight_type(&value->type, &r->b->weight[m->weight - 1]))
        return weft_bundle__refuse(r, "value %u does not have the type of weight %u", v, m->weight);
    r->defined[v] = BY_WEIGHT;
    return WEFT_ERR_OK;
}

static weft_err read_values(weft_bundle__reader *r, const Weft__Bundle__Program *m)
{
    weft_bundle_value *value = weft_arena_array(r->arena, m->n_value, sizeof *value);
    r->p->value = value;
    r->p->n_value = (uint32_t)m->n_value;
    r->defined = weft_arena_array(r->scratch, m->n_value + 1, 1);
    for (uint32_t v = 1; v <= m->n_value; v++)
        WEFT_TRY(read_value(r, m->value[v - 1], v, &value[v - 1]));
    return WEFT_ERR_OK;
}

static const char *const *keep_labels(weft_bundle__reader *r, char *const *label, size_t n)
{
    const char **kept = weft_arena_array(r->arena, n, sizeof *kept);
    for (size_t i = 0; i < n; i++)
        kept[i] = keep(r, label[i]);
    return kept;
}

static weft_err read_ports(weft_bundle__reader *r, Weft__Bundle__Port *const *m, size_t n,
                           bool input, const weft_bundle_port **out)
{
    weft_names *names = weft_names_create(r->scratch);
    weft_bundle_port *port = weft_arena_array(r->arena, n, sizeof *port);
    const char *what = input ? "input" : "output";
    for (size_t i = 0; i < n; i++) {
        uint32_t v = m[i]->value;
        if (!add_name(names, m[i]->name))
            return weft_bundle__refuse(r, "%s %zu has no name of its own", what, i);
        if (v == 0 || v > r->p->n_value || (r->defined[v] == UNDEFINED) != input)
            return weft_bundle__refuse(r, "%s \"%s\" is value %u, which %s", what, m[i]->name, v,
                                       input ? "is defined elsewhere" : "is not defined");
        if (r->p->value[v - 1].type.layout != WEFT_LAYOUT_PLAIN)
            return weft_bundle__refuse(r, "%s \"%s\" does not have the plain layout", what,
                                       m[i]->name);
        if (input)
            r->defined[v] = BY_INPUT;
        const char *format = m[i]->format;
        if (*format && (!input || (strcmp(format, "NCHW") != 0 && strcmp(format, "NHWC") != 0)))
            return weft_bundle__refuse(r, "%s \"%s\" has format \"%s\"", what, m[i]->name, format);
        if (input && m[i]->n_label)
            return weft_bundle__refuse(r, "input \"%s\" has labels", m[i]->name);
        port[i] = (weft_bundle_port){.name = keep_name(r, m[i]->name),
                                     .value = v,
                                     .format = keep(r, format),
                                     .label = keep_labels(r, m[i]->label, m[i]->n_label),
                                     .n_label = (uint32_t)m[i]->n_label};
    }
    *out = port;
    return WEFT_ERR_OK;
}

/* -- Launches --------------------------------------------------------------------------------- */

static weft_err read_list(weft_bundle__reader *r, const Weft__Bundle__Attr *m, weft_attr *a)
{
    if (a->kind == WEFT_KIND_FLOATS) {
        double *floats = weft_arena_array(r->arena, m->n_floats, sizeof *floats);
        a->n = (uint32_t)m->n_floats;
        for (uint32_t i = 0; i < a->n; i++)
            floats[i] = m->floats[i];
        a->u.floats = floats;
    } else if (a->kind == WEFT_KIND_STRS) {
        const char **strs = weft_arena_array(r->arena, m->n_strs, sizeof *strs);
        a->n = (uint32_t)m->n_strs;
        for (uint32_t i = 0; i < a->n; i++)
            strs[i] = keep(r, m->strs[i]);
        a->u.strs = strs;
    } else {
        int64_t *ints = weft_arena_array(r->arena, m->n_ints, sizeof *ints);
        a->n = (uint32_t)m->n_ints;
        for (uint32_t i = 0; i < a->n; i++) {
            ints[i] = m->ints[i];
            if (a->kind == WEFT_KIND_DIMS && !weft_bundle__get_dim(r, m->ints[i], &ints[i]))
                return weft_bundle__refuse(r, "an attribute has a wrong dimension");
        }
        a->u.ints = ints; /* dims are int64_t too */
    }
    return WEFT_ERR_OK;
}

static weft_err read_attr(weft_bundle__reader *r, const Weft__Bundle__Attr *m, weft_attr *a)
{
    if (m->key >= r->msg->n_key)
        return weft_bundle__refuse(r, "an attribute has key %u of %zu", m->key, r->msg->n_key);
    a->key = (uint16_t)r->key[m->key];
    /* The file format fixes the numbers of kinds to those of weft_attr_kind. */
    a->kind = m->kind >= WEFT__BUNDLE__KIND__INT && m->kind <= WEFT__BUNDLE__KIND__DIMS
                  ? (uint16_t)m->kind
                  : WEFT_KIND_NONE;
    switch (a->kind) {
    case WEFT_KIND_NONE:
        return weft_bundle__refuse(r, "an attribute has kind %d", (int)m->kind);
    case WEFT_KIND_INT:
        a->u.i = m->i;
        return WEFT_ERR_OK;
    case WEFT_KIND_FLOAT:
        memcpy(&a->u.f, &m->f, sizeof a->u.f);
        return WEFT_ERR_OK;
    case WEFT_KIND_STR:
        a->u.s = keep(r, m->s);
        return WEFT_ERR_OK;
    case WEFT_KIND_DTYPE:
        a->u.dtype = weft_dtype_parse(m->s);
        if (a->u.dtype == WEFT_DTYPE_NONE)
            return weft_bundle__refuse(r, "no element type is called \"%s\"", m->s);
        return WEFT_ERR_OK;
    default:
        return read_list(r, m, a);
    }
}

/* Sorts attributes by key: the writer may have had another table of keys. */
static void sort_attrs(weft_attr *at, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        weft_attr a = at[i];
        uint32_t k = i;
        for (; k > 0 && at[k - 1].key > a.key; k--)
            at[k] = at[k - 1];
        at[k] = a;
    }
}

static weft_err read_attrs(weft_bundle__reader *r, const Weft__Bundle__Launch *m, const weft_op *op,
                           weft_attrs *out)
{
    if (m->n_attr >= WEFT_ATTR_COUNT)
        return weft_bundle__refuse(r, "%s: %zu attributes", op->name, m->n_attr);
    weft_attr *at = weft_arena_array(r->arena, m->n_attr, sizeof *at);
    for (size_t i = 0; i < m->n_attr; i++)
        WEFT_TRY(read_attr(r, m->attr[i], &at[i]));
    sort_attrs(at, (uint32_t)m->n_attr);
    for (size_t i = 1; i < m->n_attr; i++)
        if (at[i].key == at[i - 1].key)
            return weft_bundle__refuse(r, "%s: attribute `%s` is given twice", op->name,
                                       weft_attr_key_name((weft_attr_key)at[i].key));
    *out = (weft_attrs){.at = at, .n = (uint32_t)m->n_attr};
    return weft_op_check_attrs(op, *out, r->diag, (weft_where){.file = r->path, .item = r->item});
}

static weft_err check_operands(weft_bundle__reader *r, const Weft__Bundle__Launch *m,
                               const weft_op *op)
{
    if (m->n_in < op->in_min || (op->in_max != WEFT_VARIADIC && m->n_in > op->in_max) ||
        m->n_out < op->out_min || (op->out_max != WEFT_VARIADIC && m->n_out > op->out_max))
        return weft_bundle__refuse(r, "%s: %zu operands and %zu results", op->name, m->n_in,
                                   m->n_out);
    for (size_t i = 0; i < m->n_in; i++) {
        uint32_t v = m->in[i];
        if ((v == 0 && i < op->in_min) || v > r->p->n_value || (v && r->defined[v] == UNDEFINED))
            return weft_bundle__refuse(r, "%s: operand %zu is value %u, which is not defined",
                                       op->name, i, v);
    }
    for (size_t i = 0; i < m->n_out; i++) {
        uint32_t v = m->out[i];
        if (v > r->p->n_value || (v && r->defined[v] != UNDEFINED))
            return weft_bundle__refuse(r, "%s: result %zu is value %u, which is defined elsewhere",
                                       op->name, i, v);
        if (v)
            r->defined[v] = BY_LAUNCH;
    }
    return WEFT_ERR_OK;
}

static const uint32_t *keep_indices(weft_bundle__reader *r, const uint32_t *at, size_t n)
{
    uint32_t *copy = weft_arena_array(r->arena, n, sizeof *copy);
    if (n)
        memcpy(copy, at, n * sizeof *copy);
    return copy;
}

static weft_err read_launches(weft_bundle__reader *r, const Weft__Bundle__Program *m)
{
    weft_bundle_launch *launch = weft_arena_array(r->arena, m->n_launch, sizeof *launch);
    for (size_t i = 0; i < m->n_launch; i++) {
        const Weft__Bundle__Launch *from = m->launch[i];
        weft_bundle_launch *l = &launch[i];
        if (from->op >= r->msg->n_op)
            return weft_bundle__refuse(r, "launch %zu has operator %u of %zu", i, from->op,
                                       r->msg->n_op);
        l->op = r->op[from->op];
        const weft_op *op = weft_op_get(l->op);
        if (op->traits & WEFT_T_GRAPH_ONLY)
            return weft_bundle__refuse(r, "%s cannot be launched", op->name);
        WEFT_TRY(check_operands(r, from, op));
        WEFT_TRY(read_attrs(r, from, op, &l->attrs));
        l->in = keep_indices(r, from->in, from->n_in);
        l->n_in = (uint32_t)from->n_in;
        l->out = keep_indices(r, from->out, from->n_out);
        l->n_out = (uint32_t)from->n_out;
        l->item = keep_name(r, from->item);
        WEFT_TRY(weft_bundle__read_commands(r, from, l));
    }
    r->p->launch = launch;
    r->p->n_launch = (uint32_t)m->n_launch;
    for (uint32_t v = 1; v <= r->p->n_value; v++)
        if (r->defined[v] == UNDEFINED)
            return weft_bundle__refuse(r, "value %u is not defined", v);
    return WEFT_ERR_OK;
}

/* -- Buckets ---------------------------------------------------------------------------------- */

/* `seen`: by value, 1 + the last bucket that has a buffer of it. */
static weft_err read_buffer(weft_bundle__reader *r, const Weft__Bundle__Buffer *m, uint32_t bucket,
                            const weft_bundle_bucket *b, uint32_t *seen)
{
    const weft_bundle_program *p = r->p;
    if (m->value == 0 || m->value > p->n_value || r->defined[m->value] != BY_LAUNCH ||
        seen[m->value] == bucket + 1)
        return weft_bundle__refuse(r, "bucket %u has a wrong buffer for value %u", bucket,
                                   m->value);
    seen[m->value] = bucket + 1;
    const weft_ttype *t = &p->value[m->value - 1].type;
    int64_t dim[WEFT_RANK_MAX];
    uint64_t need;
    bool known = true;
    for (uint32_t k = 0; k < t->rank && known; k++)
        known = weft_dim_eval(p->dims, t->dim[k], b->symbol, p->n_symbol, &dim[k]);
    if (!known ||
        !weft_layout_bytes((weft_dtype)t->dtype, (weft_layout)t->layout, dim, t->rank, &need) ||
        m->bytes < need)
        return weft_bundle__refuse(r, "bucket %u: the buffer of value %u has %llu bytes", bucket,
                                   m->value, (unsigned long long)m->bytes);
    if (m->offset > b->arena_bytes || m->bytes > b->arena_bytes - m->offset)
        return weft_bundle__refuse(r, "bucket %u: %llu bytes at %llu are outside the arena of %llu",
                                   bucket, (unsigned long long)m->bytes,
                                   (unsigned long long)m->offset,
                                   (unsigned long long)b->arena_bytes);
    return WEFT_ERR_OK;
}

static weft_err read_bucket(weft_bundle__reader *r, const Weft__Bundle__Bucket *m, uint32_t i,
                            weft_bundle_bucket *b, uint32_t *seen)
{
    if (m->n_symbol != r->p->n_symbol || m->arena_bytes > (uint64_t)INT64_MAX)
        return weft_bundle__refuse(r, "bucket %u has %zu symbols and %llu bytes", i, m->n_symbol,
                                   (unsigned long long)m->arena_bytes);
    int64_t *symbol = weft_arena_array(r->arena, m->n_symbol, sizeof *symbol);
    for (size_t k = 0; k < m->n_symbol; k++) {
        symbol[k] = m->symbol[k];
        if (symbol[k] < r->p->symbol[k].lo || symbol[k] > r->p->symbol[k].hi)
            return weft_bundle__refuse(r, "bucket %u: symbol \"%s\" is %lld", i,
                                       r->p->symbol[k].name, (long long)symbol[k]);
    }
    weft_bundle_buffer *buffer = weft_arena_array(r->arena, m->n_buffer, sizeof *buffer);
    b->symbol = symbol;
    b->arena_bytes = m->arena_bytes;
    b->buffer = buffer;
    b->n_buffer = (uint32_t)m->n_buffer;
    for (size_t k = 0; k < m->n_buffer; k++) {
        const Weft__Bundle__Buffer *f = m->buffer[k];
        WEFT_TRY(read_buffer(r, f, i, b, seen));
        buffer[k] = (weft_bundle_buffer){f->value, f->offset, f->bytes};
    }
    return WEFT_ERR_OK;
}

static weft_err read_buckets(weft_bundle__reader *r, const Weft__Bundle__Program *m)
{
    weft_bundle_bucket *bucket = weft_arena_array(r->arena, m->n_bucket, sizeof *bucket);
    uint32_t *seen = weft_arena_array(r->scratch, r->p->n_value + (size_t)1, sizeof *seen);
    for (size_t i = 0; i < m->n_bucket; i++)
        WEFT_TRY(read_bucket(r, m->bucket[i], (uint32_t)i, &bucket[i], seen));
    r->p->bucket = bucket;
    r->p->n_bucket = (uint32_t)m->n_bucket;
    return WEFT_ERR_OK;
}

/* -- Programs --------------------------------------------------------------------------------- */

static bool is_amount(double x)
{
    return isfinite(x) && x >= 0;
}

static bool copy_name(char *to, size_t size, const char *from)
{
    size_t len = strlen(from);
    if (len >= size)
        return false;
    memcpy(to, from, len + 1);
    return true;
}

/* false: neither 64 parts that sum to 255 nor nothing. */
static bool read_use(const ProtobufCBinaryData *m, weft_usehist *out)
{
    if (m->len == 0)
        return true;
    if (m->len != sizeof out->part)
        return false;
    memcpy(out->part, m->data, sizeof out->part);
    return weft_usehist_is_known(out);
}

static bool read_point(const Weft__Bundle__Point *m, weft_profile_point *p)
{
    p->share = m->share;
    p->batch = m->batch;
    p->procs = m->procs;
    p->throughput_per_s = m->throughput_per_s;
    p->idle_us = m->idle_us;
    p->cost = (weft_cost){.time_us = m->time_us,
                          .time_p5_us = m->time_p5_us,
                          .time_p95_us = m->time_p95_us,
                          .creq = m->creq,
                          .mreq_bytes = m->mreq_bytes,
                          .bandwidth_gbps = m->bandwidth_gbps,
                          .energy_j = m->energy_j,
                          .expected_error = m->expected_error};
    return copy_name(p->device, sizeof p->device, m->device) &&
           copy_name(p->slice, sizeof p->slice, m->slice) &&
           copy_name(p->cost.source, sizeof p->cost.source, m->source) && is_amount(p->share) &&
           is_amount(p->throughput_per_s) && is_amount(p->cost.time_us) &&
           is_amount(p->cost.creq) && is_amount(p->cost.bandwidth_gbps) &&
           is_amount(p->cost.energy_j) && is_amount(p->cost.expected_error) &&
           is_amount(p->cost.time_p5_us) && is_amount(p->cost.time_p95_us) &&
           is_amount(p->idle_us) && p->idle_us <= p->cost.time_us && read_use(&m->use, &p->use);
}

static weft_err read_profile(weft_bundle__reader *r, const Weft__Bundle__Program *m)
{
    weft_profile_point *point = weft_arena_array(r->arena, m->n_profile, sizeof *point);
    for (size_t i = 0; i < m->n_profile; i++)
        if (!read_point(m->profile[i], &point[i]))
            return weft_bundle__refuse(r, "point %zu of the profile is wrong", i);
    r->p->profile = (weft_profile){.point = point, .n = m->n_profile, .host_us = m->host_us};
    r->p->slo_us = m->slo_us;
    r->p->rate_per_s = m->rate_per_s;
    r->p->admit_by_slo = m->admit_by_slo;
    if (!is_amount(m->slo_us) || !is_amount(m->rate_per_s) || !is_amount(m->host_us))
        return weft_bundle__refuse(r, "SLO %g us, rate %g/s, host cost %g us", m->slo_us,
                                   m->rate_per_s, m->host_us);
    return WEFT_ERR_OK;
}

static weft_err read_batch_symbol(weft_bundle__reader *r, const Weft__Bundle__Program *m)
{
    weft_bundle_program *p = r->p;
    p->batch_symbol = m->batch_symbol ? m->batch_symbol - 1 : UINT32_MAX;
    if (!m->batch_symbol)
        return WEFT_ERR_OK;
    bool ok = p->batch_symbol < p->n_symbol;
    for (uint32_t i = 0; ok && i < p->n_input + p->n_output; i++) {
        uint32_t v = i < p->n_input ? p->input[i].value : p->output[i - p->n_input].value;
        const weft_ttype *t = &p->value[v - 1].type;
        ok = t->rank && weft_dim_as_symbol(p->dims, t->dim[0]) == p->batch_symbol;
    }
    return ok ? WEFT_ERR_OK
              : weft_bundle__refuse(r, "symbol %u is not dimension 0 of each input and output",
                                    m->batch_symbol);
}

/* Ports [first, first + n) have the element types and ranks of those of the model. */
static bool same_ports(const weft_bundle_program *p, const weft_bundle_port *port, uint64_t first,
                       const weft_bundle_program *model, const weft_bundle_port *own, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const weft_ttype *a = &p->value[port[first + i].value - 1].type;
        const weft_ttype *b = &model->value[own[i].value - 1].type;
        if (a->dtype != b->dtype || a->rank != b->rank)
            return false;
    }
    return true;
}

/* i64, a number for each row of the packed program. */
static bool is_of_rows(const weft_bundle_program *p, const weft_ttype *t)
{
    return t->dtype == WEFT_DTYPE_I64 && t->rank == 1 &&
           weft_dim_as_symbol(p->dims, t->dim[0]) == 0;
}

/* The last inputs of a packed program: position i64[rows], start i64[number] and, with several
 * parts, part i64[rows]; with one symbol. */
static bool takes_packed(const weft_bundle_program *p, uint32_t n_in)
{
    uint32_t extra = weft_bundle_packed_extra(p->n_part);
    if (p->n_symbol != 1 || p->n_input != (uint64_t)n_in + extra)
        return false;
    const weft_ttype *position = &p->value[p->input[n_in].value - 1].type;
    const weft_ttype *start = &p->value[p->input[n_in + 1].value - 1].type;
    const weft_ttype *part = &p->value[p->input[n_in + extra - 1].value - 1].type;
    return is_of_rows(p, position) && (p->n_part == 1 || is_of_rows(p, part)) &&
           start->dtype == WEFT_DTYPE_I64 && start->rank == 1 && weft_dim_is_const(start->dim[0]) &&
           start->dim[0] > 0;
}

static weft_err read_parts(weft_bundle__reader *r, const Weft__Bundle__Program *m)
{
    weft_bundle_program *p = r->p;
    weft_bundle_part *part = weft_arena_array(r->arena, m->n_part, sizeof *part);
    uint64_t n_in = 0, n_out = 0;
    bool ok = m->n_part <= r->b->n_program;
    bool is_joint =
        p >= r->b->program + r->b->n_program && p < r->b->program + r->b->n_program + r->b->n_joint;
    for (size_t i = 0; ok && i < m->n_part; i++) {
        part[i] = (weft_bundle_part){m->part[i]->program, m->part[i]->inputs, m->part[i]->outputs};
        ok = part[i].program < r->b->n_program;
        if (m->packed && i > 0) { /* all parts have the same inputs */
            ok = ok && part[i].n_in == part[0].n_in;
            n_in = 0;
        }
        const weft_bundle_program *model = &r->b->program[ok ? part[i].program : 0];
        ok = ok && model->batch_symbol != UINT32_MAX && part[i].n_in == model->n_input &&
             part[i].n_out == model->n_output && n_in + part[i].n_in <= p->n_input &&
             n_out + part[i].n_out <= p->n_output;
        for (size_t k = 0; ok && k < i; k++)
            ok = part[k].program != part[i].program;
        ok = ok && same_ports(p, p->input, n_in, model, model->input, part[i].n_in) &&
             same_ports(p, p->output, n_out, model, model->output, part[i].n_out);
        n_in += part[i].n_in;
        n_out += part[i].n_out;
    }
    p->part = part;
    p->n_part = (uint32_t)m->n_part;
    p->limit = m->limit;
    p->is_packed = m->packed;
    if (!is_joint && m->n_part == 0 && m->limit == 0 && !m->packed)
        return WEFT_ERR_OK;
    if (m->packed) {
        ok = ok && m->n_part > 0 && takes_packed(p, part[0].n_in);
        n_in += weft_bundle_packed_extra(p->n_part);
    }
    ok = ok && is_joint && m->n_part > 0 && n_in == p->n_input && n_out == p->n_output &&
         p->batch_symbol == UINT32_MAX;
    return ok ? WEFT_ERR_OK : weft_bundle__refuse(r, "its parts are not those of models");
}

/* Whether the program has inputs like those of the model, by name, and its outputs, called
 * MODEL/NAME, from number `first` on. */
static bool answers_for(const weft_bundle_program *p, const weft_bundle_program *model,
                        uint32_t first)
{
    size_t len = strlen(model->name);
    for (uint32_t i = 0; i < model->n_input; i++) {
        uint32_t k = weft_bundle_find_port(p->input, p->n_input, model->input[i].name);
        if (k == UINT32_MAX || !same_ports(p, p->input, k, model, &model->input[i], 1))
            return false;
    }
    for (uint32_t i = 0; i < model->n_output; i++) {
        const char *name = first + i < p->n_output ? p->output[first + i].name : "";
        if (strncmp(name, model->name, len) != 0 || name[len] != '/' ||
            strcmp(name + len + 1, model->output[i].name) != 0)
            return false;
    }
    return same_ports(p, p->output, first, model, model->output, model->n_output);
}

/* After the programs, to which heads refer. */
static weft_err read_heads(weft_bundle__reader *r, const Weft__Bundle__Program *m)
{
    weft_bundle_program *p = r->p;
    bool ok = m->n_head == 0 || p < r->b->program + r->b->n_program;
    uint32_t n_output = 0;
    for (size_t i = 0; ok && i < m->n_head; i++) {
        const weft_bundle_program *head =
            m->head[i] < r->b->n_program ? &r->b->program[m->head[i]] : p;
        ok = head != p && answers_for(p, head, n_output);
        n_output += head->n_output;
        for (size_t k = 0; ok && k < i; k++)
            ok = m->head[k] != m->head[i];
    }
    ok = ok && (m->n_head == 0 || n_output == p->n_output);
    p->head = keep_indices(r, m->head, m->n_head);
    p->n_head = (uint32_t)m->n_head;
    return ok ? WEFT_ERR_OK
              : weft_bundle__refuse(r, "its heads are not models that it answers for");
}

static weft_err read_outer(weft_bundle__reader *r, const Weft__Bundle__Program *m)
{
    bool is_body = r->p >= r->b->program + r->b->n_program + r->b->n_joint;
    if (m->n_outer != (is_body ? m->n_symbol : 0))
        return weft_bundle__refuse(r, "%zu outer symbols of %zu", m->n_outer, m->n_symbol);
    if (is_body)
        r->p->outer = keep_indices(r, m->outer, m->n_outer);
    return WEFT_ERR_OK;
}

/* Names that requests can have. */
static bool is_request_name(const char *s)
{
    size_t len = strlen(s);
    return len <= 128 &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == len;
}

static weft_err read_served(weft_bundle__reader *r, const Weft__Bundle__Program *m)
{
    size_t digits = strspn(m->version, "0123456789");
    bool is_model = r->p < r->b->program + r->b->n_program;
    bool ok = is_request_name(m->serves) && !m->version[digits] && digits <= VERSION_DIGITS_MAX &&
              m->version[0] != '0' && (is_model || (!*m->serves && !*m->version));
    if (!ok)
        return weft_bundle__refuse(r, "is to be served under another name or version");
    r->p->serves = *m->serves ? keep_name(r, m->serves) : NULL;
    r->p->version = *m->version ? keep_name(r, m->version) : NULL;
    return WEFT_ERR_OK;
}

static weft_err read_program(weft_bundle__reader *r, const Weft__Bundle__Program *m)
{
    weft_bundle_program *p = r->p;
    r->item = p->name = keep_name(r, m->name);
    WEFT_TRY(read_served(r, m));
    WEFT_TRY(read_symbols(r, m));
    WEFT_TRY(read_exprs(r, m));
    WEFT_TRY(read_requires(r, m));
    WEFT_TRY(read_values(r, m));
    WEFT_TRY(read_ports(r, m->input, m->n_input, true, &p->input));
    p->n_input = (uint32_t)m->n_input;
    WEFT_TRY(read_launches(r, m));
    WEFT_TRY(read_ports(r, m->output, m->n_output, false, &p->output));
    p->n_output = (uint32_t)m->n_output;
    WEFT_TRY(read_buckets(r, m));
    WEFT_TRY(read_batch_symbol(r, m));
    WEFT_TRY(read_parts(r, m));
    WEFT_TRY(read_outer(r, m));
    return read_profile(r, m);
}

/* The shortest SLO of the variants holds where the app has none. */
static weft_bundle_program face_of(const weft_bundle *b, const weft_bundle_app *app)
{
    weft_bundle_program face = b->program[app->variant[0].program];
    face.name = app->name;
    face.serves = face.version = NULL;
    face.slo_us = app->slo_us;
    face.rate_per_s = app->rate_per_s;
    for (uint32_t i = 0; i < app->n_variant && !(app->slo_us > 0); i++) {
        double own = b->program[app->variant[i].program].slo_us;
        if (own > 0 && (face.slo_us == 0 || own < face.slo_us))
            face.slo_us = own;
    }
    return face;
}

static weft_err read_apps(weft_bundle__reader *r, weft_names *names)
{
    weft_bundle_app *app = weft_arena_array(r->arena, r->msg->n_app, sizeof *app);
    for (size_t i = 0; i < r->msg->n_app; i++) {
        const Weft__Bundle__App *m = r->msg->app[i];
        if (!is_request_name(m->name) || !add_name(names, m->name))
            return weft_bundle__refuse(r, "app %zu has no name of its own", i);
        weft_bundle_variant *variant = weft_arena_array(r->arena, m->n_variant, sizeof *variant);
        bool ok = m->n_variant > 0 && m->n_variant <= r->b->n_program && is_amount(m->slo_us) &&
                  is_amount(m->rate_per_s) && is_amount(m->accuracy);
        for (size_t k = 0; ok && k < m->n_variant; k++) {
            variant[k] = (weft_bundle_variant){m->variant[k]->program, m->variant[k]->accuracy};
            ok = variant[k].program < r->b->n_program && is_amount(variant[k].accuracy);
            for (size_t j = 0; ok && j < k; j++)
                ok = variant[j].program != variant[k].program;
        }
        if (!ok)
            return weft_bundle__refuse(r, "app \"%s\": a variant or an amount is wrong", m->name);
        app[i] = (weft_bundle_app){.name = keep_name(r, m->name),
                                   .slo_us = m->slo_us,
                                   .rate_per_s = m->rate_per_s,
                                   .accuracy = m->accuracy,
                                   .variant = variant,
                                   .n_variant = (uint32_t)m->n_variant};
        app[i].face = face_of(r->b, &app[i]);
    }
    r->b->app = app;
    r->b->n_app = (uint32_t)r->msg->n_app;
    return WEFT_ERR_OK;
}

/* Whether the weight is f32 [rank, cols], of an adapter that kernels take. */
static bool is_factor(const weft_bundle *b, uint32_t w, int64_t rank, int64_t cols)
{
    const weft_bundle_weight *weight = w >= 1 && w <= b->n_weight ? &b->weight[w - 1] : NULL;
    return weight && weight->dtype == WEFT_DTYPE_F32 && weight->rank == 2 &&
           weight->dim[0] == rank && weight->dim[1] == cols && rank >= 1 &&
           rank <= WEFT_ADAPTER_RANK_MAX;
}

/* The site that the factor names; NULL: the program has none, or of other sizes. */
static const weft_bundle_site *find_site(const weft_bundle *b, const weft_bundle_site *site,
                                         weft_names *names, const Weft__Bundle__Factor *m)
{
    uint32_t id = weft_names_find(names, m->site, strlen(m->site));
    const weft_bundle_site *s = id ? &site[id - 1] : NULL;
    int64_t rank = m->a >= 1 && m->a <= b->n_weight ? b->weight[m->a - 1].dim[0] : 0;
    return s && is_factor(b, m->a, rank, s->k) && is_factor(b, m->b, rank, s->n) ? s : NULL;
}

static weft_err read_factors(weft_bundle__reader *r, const Weft__Bundle__Adapter *m,
                             weft_bundle_adapter *to)
{
    weft_arena_mark mark = weft_arena_get_mark(r->scratch);
    weft_names *names = weft_names_create(r->scratch), *used = weft_names_create(r->scratch);
    weft_bundle_factor *factor = weft_arena_array(r->arena, m->n_factor, sizeof *factor);
    const weft_bundle_site *site;
    uint32_t n = weft_bundle_sites(&r->b->program[m->program], r->scratch, &site);
    for (uint32_t i = 0; i < n; i++)
        weft_names_add(names, site[i].name, strlen(site[i].name));
    for (size_t i = 0; i < m->n_factor; i++) {
        const Weft__Bundle__Factor *f = m->factor[i];
        const weft_bundle_site *s = find_site(r->b, site, names, f);
        if (!s || !add_name(used, f->site))
            return weft_bundle__refuse(r, "adapter \"%s\": factors %zu do not fit", m->name, i);
        factor[i] = (weft_bundle_factor){.site = s->name, .a = f->a, .b = f->b};
    }
    weft_arena_reset(r->scratch, mark);
    to->factor = factor;
    to->n_factor = (uint32_t)m->n_factor;
    return WEFT_ERR_OK;
}

static weft_err read_adapters(weft_bundle__reader *r)
{
    size_t n = r->msg->n_adapter;
    weft_bundle_adapter *adapter = weft_arena_array(r->arena, n, sizeof *adapter);
    weft_names *names = weft_names_create(r->arena);
    for (size_t i = 0; i < n; i++) {
        const Weft__Bundle__Adapter *m = r->msg->adapter[i];
        const char *key = weft_arena_printf(r->arena, "%u:%s", m->program, m->name);
        if (!*m->name || !is_request_name(m->name) || m->program >= r->b->n_program ||
            !add_name(names, key))
            return weft_bundle__refuse(r, "adapter %zu has no name of its own, or no model", i);
        adapter[i] = (weft_bundle_adapter){.name = keep_name(r, m->name), .program = m->program};
        WEFT_TRY(read_factors(r, m, &adapter[i]));
    }
    r->b->adapter = adapter;
    r->b->n_adapter = (uint32_t)n;
    return WEFT_ERR_OK;
}

static weft_err read_programs(weft_bundle__reader *r)
{
    size_t n = r->msg->n_program, models = n + r->msg->n_joint, all = models + r->msg->n_body;
    weft_bundle_program *program = weft_arena_array(r->arena, all, sizeof *program);
    weft_names *names = weft_names_create(r->scratch);
    r->b->program = program;
    r->b->n_program = (uint32_t)n;
    r->b->n_joint = (uint32_t)r->msg->n_joint;
    r->b->n_body = (uint32_t)r->msg->n_body;
    for (size_t i = 0; i < all; i++) {
        const Weft__Bundle__Program *from = i < n        ? r->msg->program[i]
                                            : i < models ? r->msg->joint[i - n]
                                                         : r->msg->body[i - models];
        if (!add_name(names, from->name))
            return weft_bundle__refuse(r, "model %zu has no name of its own", i);
        r->p = &program[i];
        WEFT_TRY(read_program(r, from));
    }
    for (size_t i = 0; i < all; i++) {
        r->p = &program[i];
        r->item = r->p->name;
        WEFT_TRY(read_heads(r, i < n        ? r->msg->program[i]
                               : i < models ? r->msg->joint[i - n]
                                            : r->msg->body[i - models]));
    }
    r->item = NULL;
    WEFT_TRY(read_adapters(r));
    return read_apps(r, names);
}

static weft_err check_users(weft_bundle__reader *r)
{
    uint32_t *users = weft_arena_array(r->scratch, r->b->n_weight, sizeof *users);
    weft_bundle_count_users(r->b, r->scratch, users);
    for (uint32_t w = 0; w < r->b->n_weight; w++)
        if (users[w] != r->b->weight[w].n_users)
            return weft_bundle__refuse(r, "weight \"%s\" says it has %u users and has %u",
                                       r->b->weight[w].name, r->b->weight[w].n_users, users[w]);
    return WEFT_ERR_OK;
}

weft_err weft_bundle__read(weft_bundle *b, const Weft__Bundle__Bundle *msg,
                           const weft_file *weights, const weft_file *code, const char *path,
                           weft_arena *scratch, weft_diag *diag)
{
    weft_bundle__reader r = {
        .b = b, .msg = msg, .arena = b->arena, .scratch = scratch, .path = path, .diag = diag};
    b->tool = keep(&r, msg->tool);
    b->target = keep(&r, msg->target);
    b->plan_json = *msg->plan_json ? keep(&r, msg->plan_json) : NULL;
    WEFT_TRY(read_tables(&r));
    WEFT_TRY(read_weights(&r, weights));
    WEFT_TRY(weft_bundle__read_code(&r, code));
    WEFT_TRY(read_programs(&r));
    weft_err err = weft_bundle_link(b, diag);
    if (err != WEFT_ERR_OK)
        return weft_bundle__refuse(&r, "a body does not fit");
    return check_users(&r);
}
