/* The wire format: cuts the elements of tensors out of an ONNX message before it is unpacked.
 *
 * protobuf-c copies every byte it unpacks, recurses without a bound on depth, and truncates strings
 * at NUL. So the message is first filtered by the table below of the fields that the importer
 * reads. Fields that are not in the table are dropped. Elements of tensors are cut out and kept as
 * spans of the file, whose number goes into TensorProto.segment.begin (a field that ONNX does not
 * use). Types of sequences become empty, and graphs in attributes are nested at most
 * WEFT_ONNX_GRAPHS_MAX deep, so the depth of the result is bounded. Checked here: varints of at
 * most ten bytes, lengths, group wire types, UTF-8 and NUL in strings, repeated occurrences of
 * singular sub-messages. */
#include "frontend/onnx_int.h"

#include "base/file_guess.h"
#include "base/str.h"

#include <string.h>

typedef enum part {
    PART_MODEL,
    PART_GRAPH,
    PART_NODE,
    PART_ATTR,
    PART_TENSOR,
    PART_SPARSE,
    PART_VALUE,
    PART_TYPE,
    PART_TENSOR_TYPE,
    PART_SHAPE,
    PART_DIM,
    PART_FUNCTION,
    PART_OPSET,
    PART_ENTRY,
    PART_COUNT
} part;

static const char *const part_name[PART_COUNT] = {
    "ModelProto",         "GraphProto",
    "NodeProto",          "AttributeProto",
    "TensorProto",        "SparseTensorProto",
    "ValueInfoProto",     "TypeProto",
    "TypeProto.Tensor",   "TensorShapeProto",
    "Dimension",          "FunctionProto",
    "OperatorSetIdProto", "StringStringEntryProto",
};

typedef enum action {
    DROP,   /* not read by the importer */
    COPY,   /* as it stands */
    STRING, /* checked, then copied */
    SUB,    /* any number of sub-messages */
    ONE,    /* at most one sub-message */
    EMPTY,  /* at most one sub-message, whose content is dropped */
    DATA,   /* elements of a tensor */
    SEGMENT /* refused */
} action;

enum { FIELD_MAX = 32 };

static const struct rule {
    uint8_t action; /* enum action */
    uint8_t sub;    /* part */
} rules[PART_COUNT][FIELD_MAX] = {
    [PART_MODEL] = {[1] = {COPY, 0},
                    [7] = {ONE, PART_GRAPH},
                    [8] = {SUB, PART_OPSET},
                    [25] = {SUB, PART_FUNCTION}},
    [PART_GRAPH] = {[1] = {SUB, PART_NODE},
                    [2] = {STRING, 0},
                    [5] = {SUB, PART_TENSOR},
                    [11] = {SUB, PART_VALUE},
                    [12] = {SUB, PART_VALUE},
                    [15] = {SUB, PART_SPARSE}},
    [PART_NODE] = {[1] = {STRING, 0},
                   [2] = {STRING, 0},
                   [3] = {STRING, 0},
                   [4] = {STRING, 0},
                   [5] = {SUB, PART_ATTR},
                   [7] = {STRING, 0},
                   [8] = {STRING, 0}}, /* overload */
    [PART_ATTR] = {[1] = {STRING, 0},
                   [2] = {COPY, 0},
                   [3] = {COPY, 0},
                   [4] = {COPY, 0},
                   [5] = {ONE, PART_TENSOR},
                   [6] = {ONE, PART_GRAPH},
                   [7] = {COPY, 0},
                   [8] = {COPY, 0},
                   [9] = {COPY, 0},
                   [20] = {COPY, 0},
                   [21] = {STRING, 0},
                   [22] = {ONE, PART_SPARSE}},
    [PART_SPARSE] = {[1] = {ONE, PART_TENSOR}, [2] = {ONE, PART_TENSOR}, [3] = {COPY, 0}},
    [PART_TENSOR] = {[1] = {COPY, 0},
                     [2] = {COPY, 0},
                     [3] = {SEGMENT, 0},
                     [WEFT_ONNX_FLOAT_DATA] = {DATA, 0},
                     [WEFT_ONNX_INT32_DATA] = {DATA, 0},
                     [WEFT_ONNX_STRING_DATA] = {DATA, 0},
                     [WEFT_ONNX_INT64_DATA] = {DATA, 0},
                     [WEFT_ONNX_RAW_DATA] = {DATA, 0},
                     [WEFT_ONNX_DOUBLE_DATA] = {DATA, 0},
                     [WEFT_ONNX_UINT64_DATA] = {DATA, 0},
                     [8] = {STRING, 0},
                     [13] = {SUB, PART_ENTRY},
                     [14] = {COPY, 0}},
    [PART_VALUE] = {[1] = {STRING, 0}, [2] = {ONE, PART_TYPE}},
    [PART_TYPE] = {[1] = {ONE, PART_TENSOR_TYPE},
                   [4] = {EMPTY, 0},
                   [5] = {EMPTY, 0},
                   [8] = {EMPTY, 0},
                   [9] = {EMPTY, 0}},
    [PART_TENSOR_TYPE] = {[1] = {COPY, 0}, [2] = {ONE, PART_SHAPE}},
    [PART_SHAPE] = {[1] = {SUB, PART_DIM}},
    [PART_DIM] = {[1] = {COPY, 0}, [2] = {STRING, 0}},
    [PART_FUNCTION] = {[1] = {STRING, 0},
                       [4] = {STRING, 0},
                       [5] = {STRING, 0},
                       [6] = {STRING, 0},
                       [7] = {SUB, PART_NODE},
                       [9] = {SUB, PART_OPSET},
                       [10] = {STRING, 0},
                       [11] = {SUB, PART_ATTR}, /* attribute_proto */
                       [13] = {STRING, 0}},     /* overload */
    [PART_OPSET] = {[1] = {STRING, 0}, [2] = {COPY, 0}},
    [PART_ENTRY] = {[1] = {STRING, 0}, [2] = {STRING, 0}},
};

typedef enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 } wire;

typedef struct cursor {
    const uint8_t *at, *end;
} cursor;

typedef struct slimmer {
    weft_arena *arena;
    weft_diag *diag;
    weft_where where;
    const uint8_t *bytes;
    size_t n_bytes;
    uint8_t *out;
    size_t len, cap;
    WEFT_VEC(weft_onnx_payload) payload;
    uint32_t n_parts, n_nodes;
    uint32_t n_graphs; /* around the current message */
} slimmer;

/* One field of a message. */
typedef struct field {
    uint32_t number;
    wire type;
    const uint8_t *start; /* of the tag */
    const uint8_t *at;    /* of the value */
    uint64_t len;         /* of the value, without a length prefix */
} field;

/* -- Reading ---------------------------------------------------------------------------------- */

static bool read_varint(cursor *c, uint64_t *out)
{
    uint64_t x = 0;
    for (unsigned shift = 0; shift < 70 && c->at < c->end; shift += 7) {
        uint8_t b = *c->at++;
        if (shift == 63 && b > 1)
            return false;
        x |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) {
            *out = x;
            return true;
        }
    }
    return false;
}

bool weft_onnx__varints(const uint8_t *at, uint64_t len, uint64_t n, uint64_t *out)
{
    cursor c = {at, at + len};
    for (uint64_t i = 0; i < n; i++)
        if (!read_varint(&c, &out[i]))
            return false;
    return c.at == c.end;
}

static weft_err refuse(slimmer *s, const uint8_t *at, part p, const char *what)
{
    bool is_other = p == PART_MODEL && !weft_file_is_onnx(s->bytes, s->n_bytes);
    return weft_diag_error(s->diag, WEFT_ERR_INPUT, s->where, "%s%s at byte %llu: %s%s",
                           is_other ? "no ONNX file: " : "", part_name[p],
                           (unsigned long long)(at - s->bytes), what,
                           is_other ? weft_file_guess(s->bytes, s->n_bytes) : "");
}

static weft_err read_field(slimmer *s, cursor *c, part p, field *out)
{
    out->start = c->at;
    uint64_t tag = 0, len = 0;
    if (!read_varint(c, &tag) || tag >> 32 != 0 || tag >> 3 == 0)
        return refuse(s, out->start, p, "malformed tag");
    out->number = (uint32_t)(tag >> 3);
    out->type = (wire)(tag & 7);
    out->at = c->at;
    switch (tag & 7) {
    case WIRE_VARINT:
        if (!read_varint(c, &len))
            return refuse(s, out->start, p, "malformed varint");
        out->len = (uint64_t)(c->at - out->at);
        return WEFT_ERR_OK;
    case WIRE_64:
        len = 8;
        break;
    case WIRE_32:
        len = 4;
        break;
    case WIRE_BYTES:
        if (!read_varint(c, &len))
            return refuse(s, out->start, p, "malformed length");
        out->at = c->at;
        break;
    case 3:
    case 4:
        return refuse(s, out->start, p, "groups are not part of ONNX");
    default:
        return refuse(s, out->start, p, "unknown wire type");
    }
    if (len > (uint64_t)(c->end - c->at))
        return refuse(s, out->start, p, "a field ends behind the message");
    c->at += len;
    out->len = len;
    return WEFT_ERR_OK;
}

/* -- Writing ---------------------------------------------------------------------------------- */

static void put(slimmer *s, const void *bytes, size_t len)
{
    if (len > s->cap - s->len) {
        size_t cap = s->cap ? s->cap : 4096;
        while (len > cap - s->len)
            cap *= 2;
        s->out = weft_arena_grow(s->arena, s->out, s->cap, cap);
        s->cap = cap;
    }
    if (len)
        memcpy(s->out + s->len, bytes, len);
    s->len += len;
}

static size_t encode_varint(uint64_t x, uint8_t out[10])
{
    size_t n = 0;
    do {
        out[n++] = (uint8_t)((x & 0x7f) | (x > 0x7f ? 0x80 : 0));
        x >>= 7;
    } while (x);
    return n;
}

/* A tag and room for a length of five bytes, set by close_part. */
static size_t open_part(slimmer *s, uint32_t number)
{
    uint8_t tag[10];
    put(s, tag, encode_varint((uint64_t)number << 3 | WIRE_BYTES, tag));
    put(s, "\0\0\0\0", 5);
    return s->len;
}

static void close_part(slimmer *s, size_t start)
{
    size_t len = s->len - start;
    for (unsigned i = 0; i < 5; i++)
        s->out[start - 5 + i] = (uint8_t)((len >> (7 * i) & 0x7f) | (i < 4 ? 0x80 : 0));
}

/* -- Elements of tensors ---------------------------------------------------------------------- */

static void append_elements(slimmer *s, weft_onnx_payload *p, const uint8_t *at, uint64_t len)
{
    if (p->len + len > p->room) {
        uint64_t room = p->room ? p->room : 64;
        while (room < p->len + len)
            room *= 2;
        uint8_t *own = weft_arena_alloc(s->arena, room);
        if (p->len)
            memcpy(own, p->at, p->len);
        p->at = own;
        p->room = room;
    }
    if (len)
        memcpy((uint8_t *)p->at + p->len, at, len);
    p->len += len;
}

/* One packed run is a span of the file; single elements and several runs are collected in a copy.
 */
static weft_err take_data(slimmer *s, const field *f, uint32_t payload)
{
    weft_onnx_payload *p = &s->payload.at[payload];
    weft_onnx_field number = (weft_onnx_field)f->number;
    if (p->field != WEFT_ONNX_NO_DATA && p->field != number)
        return refuse(s, f->start, PART_TENSOR, "elements in two fields");
    if (number == WEFT_ONNX_STRING_DATA) {
        p->field = number;
        return WEFT_ERR_OK;
    }
    wire single = number == WEFT_ONNX_FLOAT_DATA    ? WIRE_32
                  : number == WEFT_ONNX_DOUBLE_DATA ? WIRE_64
                  : number == WEFT_ONNX_RAW_DATA    ? WIRE_BYTES
                                                    : WIRE_VARINT;
    if (f->type != WIRE_BYTES && f->type != single)
        return refuse(s, f->start, PART_TENSOR, "elements of another wire type");
    if (number == WEFT_ONNX_RAW_DATA && p->field == number)
        return refuse(s, f->start, PART_TENSOR, "raw_data is repeated");
    bool first = p->field == WEFT_ONNX_NO_DATA;
    p->field = number;
    if (first && f->type == WIRE_BYTES) {
        p->at = f->at;
        p->len = f->len;
    } else {
        append_elements(s, p, f->at, f->len);
    }
    return WEFT_ERR_OK;
}

/* -- Messages --------------------------------------------------------------------------------- */

static weft_err check_string(slimmer *s, const field *f, part p)
{
    if (f->type != WIRE_BYTES)
        return refuse(s, f->start, p, "a string of another wire type");
    if (f->len > WEFT_ONNX_NAME_MAX)
        return refuse(s, f->start, p, "a name of more than 65536 bytes");
    if (f->len && memchr(f->at, 0, f->len))
        return refuse(s, f->start, p, "a NUL byte in a string");
    if (!weft_utf8_is_text((const char *)f->at, f->len))
        return refuse(s, f->start, p, "a string that is not UTF-8");
    return WEFT_ERR_OK;
}

static weft_err count_part(slimmer *s, const field *f, part p, part sub)
{
    if (f->type != WIRE_BYTES)
        return refuse(s, f->start, p, "a message of another wire type");
    if (++s->n_parts > WEFT_ONNX_PARTS_MAX ||
        (sub == PART_NODE && ++s->n_nodes > WEFT_ONNX_NODES_MAX))
        return weft_diag_error(s->diag, WEFT_ERR_NOMEM, s->where, "more than %d %s messages",
                               sub == PART_NODE ? WEFT_ONNX_NODES_MAX : WEFT_ONNX_PARTS_MAX,
                               sub == PART_NODE ? "node" : "nested");
    return WEFT_ERR_OK;
}

static weft_err slim_message(slimmer *s, part p, const uint8_t *at, uint64_t len);

static weft_err slim_field(slimmer *s, part p, const field *f, uint32_t payload, uint32_t *seen)
{
    const struct rule *r = f->number < FIELD_MAX ? &rules[p][f->number] : &rules[p][0];
    if (r->action == ONE || r->action == EMPTY) {
        if (*seen >> f->number & 1)
            return refuse(s, f->start, p, "a field that may come once is repeated");
        *seen |= 1u << f->number;
    }
    switch ((action)r->action) {
    case DROP:
        return WEFT_ERR_OK;
    case STRING:
        WEFT_TRY(check_string(s, f, p));
        break;
    case COPY:
        break;
    case DATA:
        return take_data(s, f, payload);
    case SEGMENT:
        return weft_diag_error(s->diag, WEFT_ERR_UNSUP, s->where,
                               "tensors in segments are not supported");
    case EMPTY: {
        WEFT_TRY(count_part(s, f, p, PART_COUNT));
        close_part(s, open_part(s, f->number));
        return WEFT_ERR_OK;
    }
    case SUB:
    case ONE: {
        WEFT_TRY(count_part(s, f, p, (part)r->sub));
        size_t start = open_part(s, f->number);
        WEFT_TRY(slim_message(s, (part)r->sub, f->at, f->len));
        close_part(s, start);
        return WEFT_ERR_OK;
    }
    }
    put(s, f->start, (size_t)(f->at + f->len - f->start));
    return WEFT_ERR_OK;
}

/* The only cycle of `rules` goes through graphs. */
static weft_err slim_message(slimmer *s, part p, const uint8_t *at, uint64_t len)
{
    cursor c = {at, at + len};
    uint32_t seen = 0, payload = s->payload.len;
    if (p == PART_GRAPH && ++s->n_graphs > WEFT_ONNX_GRAPHS_MAX)
        return weft_diag_error(s->diag, WEFT_ERR_UNSUP, s->where,
                               "graphs nested more than %d deep are not supported",
                               WEFT_ONNX_GRAPHS_MAX);
    if (p == PART_TENSOR)
        WEFT_VEC_PUSH(s->arena, &s->payload, (weft_onnx_payload){.len = 0});
    while (c.at < c.end) {
        field f;
        WEFT_TRY(read_field(s, &c, p, &f));
        WEFT_TRY(slim_field(s, p, &f, payload, &seen));
    }
    if (p == PART_TENSOR) {
        size_t start = open_part(s, 3);
        uint8_t begin[11] = {1 << 3 | WIRE_VARINT};
        put(s, begin, 1 + encode_varint(payload, begin + 1));
        close_part(s, start);
    }
    s->n_graphs -= p == PART_GRAPH;
    return WEFT_ERR_OK;
}

weft_err weft_onnx__slim(const uint8_t *bytes, size_t len, weft_onnx_root root, weft_arena *arena,
                         weft_diag *diag, const char *file, weft_onnx_slim *out)
{
    slimmer s = {
        .arena = arena, .diag = diag, .where = {.file = file}, .bytes = bytes, .n_bytes = len};
    if (len > INT32_MAX)
        return weft_diag_error(diag, WEFT_ERR_NOMEM, s.where,
                               "%zu bytes: protobuf messages end at 2 GiB", len);
    WEFT_TRY(
        slim_message(&s, root == WEFT_ONNX_ROOT_TENSOR ? PART_TENSOR : PART_MODEL, bytes, len));
    if (s.len > INT32_MAX)
        return weft_diag_error(diag, WEFT_ERR_NOMEM, s.where, "too many nested messages");
    *out = (weft_onnx_slim){
        .at = s.out, .len = s.len, .payload = s.payload.at, .n_payload = s.payload.len};
    return WEFT_ERR_OK;
}

/* -- protobuf-c ------------------------------------------------------------------------------- */

static void *allocate(void *arena, size_t size)
{
    return weft_arena_alloc(arena, size);
}

static void release(void *arena, void *pointer)
{
    (void)arena;
    (void)pointer;
}

void weft_onnx__allocator(weft_arena *arena, ProtobufCAllocator *out)
{
    *out = (ProtobufCAllocator){.alloc = allocate, .free = release, .allocator_data = arena};
}
