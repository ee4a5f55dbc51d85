/* Nodes: the body of a graph or function, one node after the other. A node of a model-local
 * function is replaced by the function's body, in a scope of its own. Errors of nodes are
 * collected: results of a node with an error are marked broken, and nodes that use them are skipped
 * without a message. */
#include "frontend/onnx_int.h"

#include <string.h>

static const char *text(const char *s)
{
    return s ? s : "";
}

static bool is_default_domain(const char *domain)
{
    return weft_onnx__domain(domain) == WEFT_ONNX_DEFAULT;
}

/* -- Names ------------------------------------------------------------------------------------ */

/* Name for messages and locations: the node's, or that of its first result. */
static const char *node_item(weft_onnx_ctx *cx, const weft_onnx_scope *scope,
                             const Onnx__NodeProto *node)
{
    const char *name = text(node->name);
    for (size_t i = 0; !*name && i < node->n_output; i++)
        name = node->output[i];
    if (!*name)
        name = text(node->op_type);
    return *scope->prefix ? weft_arena_printf(cx->arena, "%s/%s", scope->prefix, name) : name;
}

static weft_where node_where(weft_onnx_ctx *cx, const weft_onnx_scope *scope,
                             const Onnx__NodeProto *node)
{
    return (weft_where){.file = cx->file, .item = node_item(cx, scope, node)};
}

/* -- Order ------------------------------------------------------------------------------------ */

/* INPUT: a result has two producers, or an operand has none. */
static weft_err link_names(weft_onnx_ctx *cx, weft_onnx_scope *scope, Onnx__NodeProto *const *node,
                           size_t n, const weft_onnx_reads *reads)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < node[i]->n_output; k++) {
            const char *name = node[i]->output[k];
            if (!*name)
                continue;
            weft_onnx_name *e = weft_onnx__scope_name(cx, scope, name);
            if (e->producer)
                return weft_diag_error(cx->diag, WEFT_ERR_INPUT, node_where(cx, scope, node[i]),
                                       "result \"%s\" is also the result of node \"%s\"", name,
                                       node_item(cx, scope, node[e->producer - 1]));
            if (e->bind != WEFT_ONNX_UNBOUND)
                return weft_diag_error(cx->diag, WEFT_ERR_INPUT, node_where(cx, scope, node[i]),
                                       "result \"%s\" is also an input or initialiser", name);
            e->producer = (uint32_t)i + 1;
        }
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < reads[i].n; k++) {
            const char *name = reads[i].name[k];
            if (*name && !weft_onnx__is_defined(cx, scope, name))
                return weft_diag_error(cx->diag, WEFT_ERR_INPUT, node_where(cx, scope, node[i]),
                                       "operand \"%s\" is no result, input or initialiser", name);
        }
    }
    return WEFT_ERR_OK;
}

/* Sorts nodes topologically; a valid order of the file is kept. Depth-first search with an explicit
 * stack, since a chain may have a million nodes. */
static weft_err sort_nodes(weft_onnx_ctx *cx, weft_onnx_scope *scope, Onnx__NodeProto *const *node,
                           size_t n, const weft_onnx_reads *reads, uint32_t *order)
{
    enum { NEW, OPEN, DONE };
    typedef struct frame {
        uint32_t node, next_in;
    } frame;
    uint8_t *state = weft_arena_alloc(cx->arena, n);
    frame *stack = weft_arena_array(cx->arena, n, sizeof *stack);
    size_t n_order = 0;
    for (size_t root = 0; root < n; root++) {
        size_t depth = 0;
        if (state[root] == NEW) {
            stack[depth++] = (frame){.node = (uint32_t)root};
            state[root] = OPEN;
        }
        while (depth > 0) {
            frame *f = &stack[depth - 1];
            const Onnx__NodeProto *p = node[f->node];
            if (f->next_in == reads[f->node].n) {
                state[f->node] = DONE;
                order[n_order++] = f->node;
                depth--;
                continue;
            }
            uint32_t from =
                weft_onnx__scope_name(cx, scope, reads[f->node].name[f->next_in++])->producer;
            if (!from || state[from - 1] == DONE)
                continue;
            if (state[from - 1] == OPEN)
                return weft_diag_error(cx->diag, WEFT_ERR_INPUT, node_where(cx, scope, p),
                                       "the nodes \"%s\" and \"%s\" are on a cycle",
                                       node_item(cx, scope, p),
                                       node_item(cx, scope, node[from - 1]));
            state[from - 1] = OPEN;
            stack[depth++] = (frame){.node = from - 1};
        }
    }
    return WEFT_ERR_OK;
}

/* -- Attributes ------------------------------------------------------------------------------- */

static const Onnx__AttributeProto *find_proto(const Onnx__AttributeProto *const *list, uint32_t n,
                                              const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(list[i]->name, name) == 0)
            return list[i];
    return NULL;
}

/* The node's attributes. References to attributes of the enclosing function are replaced by their
 * values, or omitted if the call does not have them. */
static weft_err resolve_attrs(weft_onnx_ctx *cx, const weft_onnx_scope *scope,
                              const Onnx__NodeProto *node, weft_where where,
                              const Onnx__AttributeProto *const **out, uint32_t *out_n)
{
    enum { ATTRS_MAX = 64 };
    if (node->n_attribute > ATTRS_MAX)
        return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where, "%zu attributes, over %d",
                               node->n_attribute, ATTRS_MAX);
    const Onnx__AttributeProto **list =
        weft_arena_array(cx->arena, node->n_attribute, sizeof *list);
    uint32_t n = 0;
    for (size_t i = 0; i < node->n_attribute; i++) {
        const Onnx__AttributeProto *a = node->attribute[i];
        if (!a->name || !*a->name)
            return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where, "an attribute has no name");
        if (find_proto(list, n, a->name))
            return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where, "attribute \"%s\" is repeated",
                                   a->name);
        if (a->ref_attr_name && *a->ref_attr_name) {
            if (!scope->fn)
                return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where,
                                       "attribute \"%s\" refers to a function's, outside of one",
                                       a->name);
            const Onnx__AttributeProto *to =
                find_proto(scope->binding, scope->n_binding, a->ref_attr_name);
            if (!to)
                continue;
            if (to->g)
                return weft_diag_error(cx->diag, WEFT_ERR_UNSUP, where,
                                       "attribute \"%s\": graphs as arguments of functions are not "
                                       "supported",
                                       a->name);
            Onnx__AttributeProto *copy = weft_arena_alloc(cx->arena, sizeof *copy);
            *copy = *to;
            copy->name = a->name;
            a = copy;
        }
        list[n++] = a;
    }
    *out = list;
    *out_n = n;
    return WEFT_ERR_OK;
}

/* -- Operators -------------------------------------------------------------------------------- */

weft_err weft_onnx__note_failure(weft_onnx_ctx *cx, weft_err err)
{
    if (cx->failed == WEFT_ERR_OK)
        cx->failed = err;
    return err == WEFT_ERR_NOMEM ? err : WEFT_ERR_OK;
}

/* For messages: "domain:operator", or the operator alone in the default domain. */
static const char *operator_name(weft_onnx_ctx *cx, const Onnx__NodeProto *node)
{
    const char *domain = text(node->domain), *op = text(node->op_type);
    return is_default_domain(domain) ? op : weft_arena_printf(cx->arena, "%s:%s", domain, op);
}

/* An unsupported operator is reported once by name, not for each node. */
static weft_err refuse_operator(weft_onnx_ctx *cx, const Onnx__NodeProto *node, weft_where where,
                                weft_err err, const char *what, long long opset)
{
    const char *name = operator_name(cx, node);
    if (weft_names_find(cx->refused, name, strlen(name)))
        return WEFT_ERR_OK;
    weft_names_add(cx->refused, name, strlen(name));
    return opset ? weft_diag_error(cx->diag, err, where, "operator %s of opset %lld %s", name,
                                   opset, what)
                 : weft_diag_error(cx->diag, err, where, "operator %s %s", name, what);
}

/* *out NULL with OK: the operator has been reported before. */
static weft_err find_row(weft_onnx_ctx *cx, const weft_onnx_scope *scope,
                         const Onnx__NodeProto *node, weft_where where, const weft_onnx_row **out,
                         int64_t *out_version)
{
    const char *op = text(node->op_type);
    weft_onnx_domain domain = weft_onnx__domain(text(node->domain));
    if (!*op)
        return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where, "the node has no operator");
    if (domain == WEFT_ONNX_DOMAINS)
        return refuse_operator(cx, node, where, WEFT_ERR_UNSUP,
                               "is not supported: the domain is unknown", 0);
    int last = weft_onnx__newest(domain);
    int64_t version = scope->opsets.of[domain];
    if (version == 0 && domain == WEFT_ONNX_DEFAULT)
        return refuse_operator(cx, node, where, WEFT_ERR_INPUT,
                               "needs the default domain, which is not imported", 0);
    if (version == 0)
        version = last; /* onnxruntime too reads files that do not import the other domains */
    const weft_onnx_row *row = weft_onnx__row(domain, op, version);
    if (!row) {
        const char *why = domain == WEFT_ONNX_DEFAULT ? weft_onnx__why_refused(op) : NULL;
        const char *what =
            why ? weft_arena_printf(cx->arena, "is not supported: %s", why) : "is not supported";
        return refuse_operator(cx, node, where, WEFT_ERR_UNSUP, what, 0);
    }
    if (version < row->first)
        return refuse_operator(cx, node, where, WEFT_ERR_UNSUP,
                               weft_arena_printf(cx->arena,
                                                 "is not supported: export with opset %d or newer",
                                                 row->first),
                               version);
    if (version > (row->last ? row->last : last))
        return refuse_operator(cx, node, where, WEFT_ERR_UNSUP, "is not supported", version);
    if (domain == WEFT_ONNX_DEFAULT && !weft_onnx__is_read(op, version)) {
        const char *what = weft_arena_printf(
            cx->arena, "has the meaning of opset %d, which is not supported: export with opset %d",
            weft_onnx__since(op, version), weft_onnx__since(op, version) - 1);
        return refuse_operator(cx, node, where, WEFT_ERR_UNSUP, what, version);
    }
    *out = row;
    *out_version = version;
    return WEFT_ERR_OK;
}

/* The values of the operands. The result is BROKEN when one of them is, else STRINGS when one is a
 * tensor of strings, else BOUND. */
static weft_onnx_bind read_operands(weft_onnx_ctx *cx, weft_onnx_scope *scope,
                                    const Onnx__NodeProto *node, weft_val *in)
{
    weft_onnx_bind all = WEFT_ONNX_BOUND;
    for (size_t i = 0; i < node->n_input; i++) {
        const weft_onnx_name *e = weft_onnx__read(cx, scope, node->input[i]);
        if (!*node->input[i] || e->bind == WEFT_ONNX_OMITTED)
            continue;
        if (e->bind == WEFT_ONNX_BOUND)
            in[i] = e->val;
        else if (e->bind != WEFT_ONNX_STRINGS)
            all = WEFT_ONNX_BROKEN;
        else if (all == WEFT_ONNX_BOUND)
            all = WEFT_ONNX_STRINGS;
    }
    return all;
}

/* A node that reads a tensor of strings. */
static weft_err import_strings(weft_onnx_ctx *cx, weft_onnx_scope *scope,
                               const Onnx__NodeProto *node, weft_where where)
{
    WEFT_TRY(weft_onnx__move_strings(cx, node, where));
    for (size_t i = 0; i < node->n_output; i++)
        weft_onnx__scope_name(cx, scope, node->output[i])->bind = WEFT_ONNX_STRINGS;
    return WEFT_ERR_OK;
}

static void bind_results(weft_onnx_ctx *cx, weft_onnx_scope *scope, const Onnx__NodeProto *node,
                         const weft_val *out, uint32_t n_out)
{
    for (size_t i = 0; i < node->n_output; i++) {
        if (!*node->output[i])
            continue;
        weft_onnx_name *e = weft_onnx__scope_name(cx, scope, node->output[i]);
        bool have = out && i < n_out && out[i].i;
        bool strings = have && out[i].i == weft_onnx__string_result().i;
        e->bind = strings ? WEFT_ONNX_STRINGS : have ? WEFT_ONNX_BOUND : WEFT_ONNX_BROKEN;
        e->val = have && !strings ? out[i] : (weft_val){0};
    }
}

static weft_err call_hook(weft_onnx_ctx *cx, weft_onnx_scope *scope, const Onnx__NodeProto *node,
                          const weft_onnx_row *row, int64_t version, weft_where where, weft_val *in)
{
    weft_onnx_call c = {.cx = cx,
                        .scope = scope,
                        .row = row,
                        .op_type = operator_name(cx, node),
                        .opset = version,
                        .where = where,
                        .in = in,
                        .n_in = (uint32_t)node->n_input,
                        .n_listed = (uint32_t)node->n_output};
    c.loc = (weft_loc){.file_id = cx->file_id,
                       .item = weft_arena_strdup(weft_module_arena(cx->m), where.item)};
    while (c.n_in > 0 && !in[c.n_in - 1].i)
        c.n_in--;
    bool *wanted = weft_arena_alloc(cx->arena, node->n_output);
    for (size_t i = 0; i < node->n_output; i++) {
        wanted[i] = *node->output[i] != '\0';
        if (wanted[i])
            c.n_out = (uint32_t)i + 1;
    }
    c.wanted = wanted;
    c.out_name = node->output;
    c.out = weft_arena_array(cx->arena, node->n_output, sizeof *c.out);
    WEFT_TRY(resolve_attrs(cx, scope, node, where, &c.proto, &c.n_proto));
    if (c.n_out == 0)
        return WEFT_ERR_OK; /* no result is wanted */
    bool loose;
    WEFT_TRY(weft_onnx__check_sequences(&c));
    WEFT_TRY(weft_onnx__check_loose(&c, &loose));
    WEFT_TRY(row->hook(&c));
    for (uint32_t i = 0; i < c.n_out && loose; i++)
        if (c.out[i].i)
            weft_onnx__set_loose(cx, c.out[i]);
    bind_results(cx, scope, node, c.out, c.n_out);
    return WEFT_ERR_OK;
}

/* -- Functions -------------------------------------------------------------------------------- */

/* The bytes of field `number` among the unknown fields: newer fields of the format that
 * protobuf-c's descriptors lack. */
static const ProtobufCMessageUnknownField *find_field(const ProtobufCMessage *msg, uint32_t number,
                                                      uint32_t from)
{
    for (uint32_t i = from; i < msg->n_unknown_fields; i++)
        if (msg->unknown_fields[i].tag == number)
            return &msg->unknown_fields[i];
    return NULL;
}

/* Field data begins with the length prefix: one to five bytes. */
static const uint8_t *field_bytes(const ProtobufCMessageUnknownField *f, size_t *out_len)
{
    size_t i = 0;
    while (i < f->len && f->data[i] & 0x80)
        i++;
    i = i < f->len ? i + 1 : i;
    *out_len = f->len - i;
    return f->data + i;
}

static const char *overload_of(weft_onnx_ctx *cx, const ProtobufCMessage *msg, uint32_t number)
{
    const ProtobufCMessageUnknownField *f = find_field(msg, number, 0);
    if (!f || f->wire_type != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)
        return "";
    size_t len;
    const uint8_t *at = field_bytes(f, &len);
    return weft_arena_strndup(cx->arena, (const char *)at, len);
}

enum { FIELD_NODE_OVERLOAD = 8, FIELD_FUNCTION_ATTR = 11, FIELD_FUNCTION_OVERLOAD = 13 };

/* Ids of functions count from 1 in the order of the file. */
static const char *function_key(weft_onnx_ctx *cx, const char *domain, const char *name,
                                const char *overload)
{
    return weft_arena_printf(cx->arena, "%s:%s:%s", is_default_domain(domain) ? "" : domain, name,
                             overload);
}

static weft_onnx_fn *find_function(weft_onnx_ctx *cx, const Onnx__NodeProto *node)
{
    if (cx->n_fn == 0)
        return NULL;
    const char *overload = overload_of(cx, &node->base, FIELD_NODE_OVERLOAD);
    const char *key = function_key(cx, text(node->domain), text(node->op_type), overload);
    uint32_t id = weft_names_find(cx->fn_names, key, strlen(key));
    return id ? &cx->fn[id - 1] : NULL;
}

weft_err weft_onnx__functions(weft_onnx_ctx *cx, const Onnx__ModelProto *model)
{
    cx->fn = weft_arena_array(cx->arena, model->n_functions, sizeof *cx->fn);
    cx->fn_names = weft_names_create(cx->arena);
    for (size_t i = 0; i < model->n_functions; i++) {
        const Onnx__FunctionProto *p = model->functions[i];
        weft_where where = {.file = cx->file, .item = text(p->name)};
        weft_onnx_fn fn = {.proto = p};
        if (!*text(p->name))
            return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where, "a function has no name");
        const char *key = function_key(cx, text(p->domain), p->name,
                                       overload_of(cx, &p->base, FIELD_FUNCTION_OVERLOAD));
        if (weft_names_find(cx->fn_names, key, strlen(key)))
            return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where,
                                   "function \"%s\" is defined twice", p->name);
        weft_names_add(cx->fn_names, key, strlen(key));
        WEFT_TRY(weft_onnx__opsets(cx, p->opset_import, p->n_opset_import, p->name, &fn.opsets));
        for (int d = 0; d < WEFT_ONNX_DOMAINS; d++)
            if (fn.opsets.of[d] == 0)
                fn.opsets.of[d] = cx->opsets.of[d];
        cx->fn[cx->n_fn++] = fn;
    }
    return WEFT_ERR_OK;
}

/* The call's attributes, then the function's defaults for attributes that the call omits. */
static weft_err bind_attrs(weft_onnx_ctx *cx, const weft_onnx_scope *caller,
                           const Onnx__NodeProto *node, const Onnx__FunctionProto *fn,
                           weft_where where, weft_onnx_scope *out)
{
    const Onnx__AttributeProto *const *given;
    uint32_t n;
    WEFT_TRY(resolve_attrs(cx, caller, node, where, &given, &n));
    WEFT_VEC(const Onnx__AttributeProto *) list = {0};
    for (uint32_t i = 0; i < n; i++)
        WEFT_VEC_PUSH(cx->arena, &list, given[i]);
    ProtobufCAllocator allocator;
    weft_onnx__allocator(cx->arena, &allocator);
    for (uint32_t i = 0; i < fn->base.n_unknown_fields; i++) {
        const ProtobufCMessageUnknownField *f = &fn->base.unknown_fields[i];
        if (f->tag != FIELD_FUNCTION_ATTR)
            continue;
        size_t len;
        const uint8_t *at = field_bytes(f, &len);
        const Onnx__AttributeProto *a = onnx__attribute_proto__unpack(&allocator, len, at);
        if (!a || !a->name)
            return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where,
                                   "a default attribute of function \"%s\" is malformed", fn->name);
        if (!find_proto(list.at, list.len, a->name))
            WEFT_VEC_PUSH(cx->arena, &list, a);
    }
    out->binding = list.at;
    out->n_binding = list.len;
    return WEFT_ERR_OK;
}

static weft_err bind_operands(weft_onnx_ctx *cx, weft_onnx_scope *caller,
                              const Onnx__NodeProto *node, const Onnx__FunctionProto *fn,
                              weft_where where, weft_onnx_scope *out)
{
    if (node->n_input > fn->n_input || node->n_output > fn->n_output)
        return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where,
                               "%zu inputs and %zu outputs, function \"%s\" has %zu and %zu",
                               node->n_input, node->n_output, fn->name, fn->n_input, fn->n_output);
    for (size_t i = 0; i < fn->n_input; i++) {
        weft_onnx_name name = {.bind = WEFT_ONNX_OMITTED};
        if (i < node->n_input && *node->input[i]) {
            const weft_onnx_name *from = weft_onnx__read(cx, caller, node->input[i]);
            name = (weft_onnx_name){.val = from->val, .bind = from->bind};
        }
        weft_onnx_name *to = weft_onnx__scope_name(cx, out, fn->input[i]);
        if (!*fn->input[i] || to->bind != WEFT_ONNX_UNBOUND)
            return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where,
                                   "function \"%s\": input \"%s\" is repeated or has no name",
                                   fn->name, fn->input[i]);
        *to = name;
    }
    return WEFT_ERR_OK;
}

static weft_err inline_function(weft_onnx_ctx *cx, weft_onnx_scope *scope,
                                const Onnx__NodeProto *node, weft_onnx_fn *fn, weft_where where)
{
    const Onnx__FunctionProto *p = fn->proto;
    if (fn->open)
        return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where, "function \"%s\" calls itself",
                               p->name);
    if (scope->depth == WEFT_ONNX_CALLS_MAX)
        return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where,
                               "functions and graphs are nested more than %d deep",
                               WEFT_ONNX_CALLS_MAX);
    weft_onnx_scope inner;
    weft_onnx__scope_init(cx, &inner);
    inner.opsets = fn->opsets;
    inner.depth = scope->depth + 1;
    inner.prefix = where.item;
    inner.fn = p;
    inner.nest = scope->nest;
    WEFT_TRY(bind_attrs(cx, scope, node, p, where, &inner));
    WEFT_TRY(bind_operands(cx, scope, node, p, where, &inner));
    fn->open = true;
    weft_err err = weft_onnx__body(cx, &inner, p->node, p->n_node);
    fn->open = false;
    WEFT_TRY(err);
    weft_val *out = weft_arena_array(cx->arena, node->n_output, sizeof *out);
    for (size_t i = 0; i < node->n_output; i++) {
        const weft_onnx_name *e = weft_onnx__scope_name(cx, &inner, p->output[i]);
        if (*node->output[i] && e->bind == WEFT_ONNX_UNBOUND)
            return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where,
                                   "function \"%s\": output \"%s\" is never computed", p->name,
                                   p->output[i]);
        out[i] = e->bind == WEFT_ONNX_STRINGS ? weft_onnx__string_result() : e->val;
    }
    bind_results(cx, scope, node, out, (uint32_t)node->n_output);
    return WEFT_ERR_OK;
}

/* -- Bodies ----------------------------------------------------------------------------------- */

static weft_err import_node(weft_onnx_ctx *cx, weft_onnx_scope *scope, const Onnx__NodeProto *node)
{
    weft_where where = node_where(cx, scope, node);
    weft_val *in = weft_arena_array(cx->arena, node->n_input, sizeof *in);
    weft_onnx_fn *fn = find_function(cx, node);
    bind_results(cx, scope, node, NULL, 0);
    if (fn)
        return inline_function(cx, scope, node, fn, where);
    const weft_onnx_row *row = NULL;
    int64_t version = 0;
    WEFT_TRY(find_row(cx, scope, node, where, &row, &version));
    if (!row)
        return WEFT_ERR_OK; /* refused before */
    weft_onnx_bind operands = read_operands(cx, scope, node, in);
    if (operands == WEFT_ONNX_BROKEN)
        return WEFT_ERR_OK;
    if (operands == WEFT_ONNX_STRINGS)
        return import_strings(cx, scope, node, where);
    return call_hook(cx, scope, node, row, version, where, in);
}

weft_err weft_onnx__body(weft_onnx_ctx *cx, weft_onnx_scope *scope, Onnx__NodeProto *const *node,
                         size_t n)
{
    /* A call counts as a node too, because its scope takes memory: this bounds chains of functions
     * that call each other repeatedly. */
    enum { NODES_PER_CALL = 16 };
    if (n <= WEFT_ONNX_NODES_MAX)
        cx->n_nodes += (uint32_t)n + (scope->depth ? NODES_PER_CALL : 0);
    if (n > WEFT_ONNX_NODES_MAX || cx->n_nodes > WEFT_ONNX_NODES_MAX)
        return weft_diag_error(cx->diag, WEFT_ERR_NOMEM, (weft_where){.file = cx->file},
                               "more than %d nodes after functions are inlined",
                               WEFT_ONNX_NODES_MAX);
    uint32_t *order = weft_arena_array(cx->arena, n, sizeof *order);
    weft_onnx_reads *reads = weft_arena_array(cx->arena, n, sizeof *reads);
    for (size_t i = 0; i < n; i++)
        reads[i] = weft_onnx__reads(cx, node[i]);
    scope->node = node;
    scope->n_node = n;
    WEFT_TRY(link_names(cx, scope, node, n, reads));
    WEFT_TRY(sort_nodes(cx, scope, node, n, reads, order));
    for (size_t i = 0; i < n; i++)
        WEFT_TRY(weft_onnx__note_failure(cx, import_node(cx, scope, node[order[i]])));
    return WEFT_ERR_OK;
}
