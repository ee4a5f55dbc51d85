/* Looks at messages before they are decoded: counts what a ModelInferRequest holds, because
 * protobuf-c makes a structure of some 56 bytes of an empty entry of a map, which takes two bytes
 * in the message; and reads the strings of all, which protobuf-c cuts at a NUL: a proxy that
 * compares a name would see another one. */
#include "base/str.h"
#include "runtime/server/grpc_int.h"

#include <protobuf-c/protobuf-c.h>

enum {
    UNKNOWN_MAX = 64, /* fields that the schema does not have, in the whole message */
    PARAMETERS_MAX = 64,
    PORTS_MAX = 4096
};

typedef enum wire_type {
    WIRE_VARINT = 0,
    WIRE_8_BYTES = 1,
    WIRE_LENGTH = 2,
    WIRE_4_BYTES = 5
} wire_type;

/* A field of a message. Number 0 ends a list: `max` is then the last number of the schema; fields
 * up to it that are not listed may occur any number of times, others are unknown. */
typedef struct field_rule {
    uint32_t number, max;
    const struct field_rule *inside; /* its own fields, when it is a message whose parts count */
} field_rule;

enum {
    FIELDS_MAX = 8,                                                      /* of a list */
    FIELDS_IN_ALL_MAX = 3 * PORTS_MAX + PARAMETERS_MAX + UNKNOWN_MAX + 3 /* of a request */
};

static const field_rule parameter[] = {{0, 5, NULL}};
/* An entry of a map of parameters. */
static const field_rule entry[] = {{1, 1, NULL}, {2, 1, parameter}, {0, 2, NULL}};
/* bytes_contents: each element is a structure with a pointer. */
static const field_rule contents[] = {{8, PORTS_MAX, NULL}, {0, 8, NULL}};
static const field_rule output[] = {{1, 1, NULL}, {2, PARAMETERS_MAX, entry}, {0, 2, NULL}};
static const field_rule input[] = {
    {1, 1, NULL},     {2, 1, NULL}, {3, WEFT_RANK_MAX + 1, NULL}, {4, PARAMETERS_MAX, entry},
    {5, 1, contents}, {0, 5, NULL}};
static const field_rule request[] = {
    {1, 1, NULL},          {2, 1, NULL},           {3, 1, NULL},         {4, PARAMETERS_MAX, entry},
    {5, PORTS_MAX, input}, {6, PORTS_MAX, output}, {7, PORTS_MAX, NULL}, {0, 7, NULL}};

typedef struct scan {
    const uint8_t *at, *end;
    uint32_t *n_unknown;
} scan;

static bool read_varint(scan *s, uint64_t *out)
{
    uint64_t value = 0;
    for (uint32_t shift = 0; shift < 64 && s->at < s->end; shift += 7) {
        uint8_t b = *s->at++;
        value |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80) {
            *out = value;
            return true;
        }
    }
    return false;
}

/* Reads the value of a field; *out gets the bytes of one with a length. */
static bool read_value(scan *s, uint32_t type, scan *out)
{
    uint64_t size = 0;
    *out = (scan){.n_unknown = s->n_unknown};
    if (type == WIRE_VARINT)
        return read_varint(s, &size);
    if (type == WIRE_LENGTH ? !read_varint(s, &size) : type != WIRE_8_BYTES && type != WIRE_4_BYTES)
        return false;
    size = type == WIRE_8_BYTES ? 8 : type == WIRE_4_BYTES ? 4 : size;
    if (size > (uint64_t)(s->end - s->at))
        return false;
    out->at = s->at;
    s->at += size;
    out->end = s->at;
    return true;
}

/* NULL: within the limits; else what is wrong. Nests as deep as the rules. */
static const char *check(scan *s, const field_rule *rules)
{
    uint32_t count[FIELDS_MAX] = {0};
    while (s->at < s->end) {
        uint64_t tag = 0;
        scan inside;
        uint32_t i = 0;
        if (!read_varint(s, &tag) || tag >> 3 == 0 || tag > UINT32_MAX ||
            !read_value(s, tag & 7, &inside))
            return "is malformed";
        while (rules[i].number && rules[i].number != tag >> 3)
            i++;
        if (rules[i].number == 0) {
            if (tag >> 3 > rules[i].max && ++*s->n_unknown > UNKNOWN_MAX)
                return "takes too much memory: it has too many unknown fields";
            continue;
        }
        if (++count[i] > rules[i].max)
            return "takes too much memory: a field is repeated too often";
        const char *wrong = rules[i].inside && inside.at ? check(&inside, rules[i].inside) : NULL;
        if (wrong)
            return wrong;
    }
    return NULL;
}

const char *weft_grpc__scan_infer(const uint8_t *message, size_t len)
{
    uint32_t n_unknown = 0;
    scan s = {.at = message, .end = message ? message + len : NULL, .n_unknown = &n_unknown};
    return check(&s, request);
}

/* The walk nests as deep as the type, which refers to itself nowhere. */
static bool has_text(scan *s, const ProtobufCMessageDescriptor *type)
{
    while (s->at < s->end) {
        uint64_t tag = 0;
        scan inside;
        if (!read_varint(s, &tag) || !read_value(s, tag & 7, &inside))
            return true; /* malformed, as its decoder says */
        const ProtobufCFieldDescriptor *f =
            inside.at && tag >> 3 <= INT32_MAX
                ? protobuf_c_message_descriptor_get_field(type, (unsigned)(tag >> 3))
                : NULL;
        if (!f || (tag & 7) != WIRE_LENGTH)
            continue;
        if (f->type == PROTOBUF_C_TYPE_STRING &&
            !weft_utf8_is_text((const char *)inside.at, (size_t)(inside.end - inside.at)))
            return false;
        if (f->type == PROTOBUF_C_TYPE_MESSAGE && !has_text(&inside, f->descriptor))
            return false;
    }
    return true;
}

bool weft_grpc__has_text(const ProtobufCMessageDescriptor *type, const uint8_t *message, size_t len)
{
    scan s = {.at = message, .end = message ? message + len : NULL};
    return has_text(&s, type);
}

const char *weft_grpc__scan_names(const uint8_t *message, size_t len, weft_grpc_names *out)
{
    uint32_t n_unknown = 0, n = 0;
    scan s = {.at = message, .end = message ? message + len : NULL, .n_unknown = &n_unknown};
    const weft_grpc_name none = {.at = ""};
    *out = (weft_grpc_names){none, none, none};
    weft_grpc_name *const to[] = {&out->model, &out->version, &out->id};
    while (s.at < s.end) {
        uint64_t tag = 0;
        scan inside;
        if (++n > FIELDS_IN_ALL_MAX)
            return "takes too much memory: it has too many fields";
        if (!read_varint(&s, &tag) || !read_value(&s, tag & 7, &inside))
            return "is malformed";
        uint64_t number = tag >> 3;
        if (number >= 1 && number <= sizeof to / sizeof to[0] && (tag & 7) == WIRE_LENGTH)
            *to[number - 1] = (weft_grpc_name){.at = (const char *)inside.at,
                                               .len = (size_t)(inside.end - inside.at)};
    }
    return NULL;
}
