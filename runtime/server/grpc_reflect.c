/* gRPC's reflection: what services there are, and the descriptors of their messages, from the
 * FileDescriptorSet that the build makes of the .proto files. It is walked as it is, which takes
 * microseconds; it is the server's own, so that it need not be checked. */
#include "runtime/server/grpc_int.h"

#include "grpc_reflection.pb-c.h"

#include <string.h>

/* Fields of descriptor.proto. */
enum {
    SET_FILE = 1,
    FILE_NAME = 1,
    FILE_PACKAGE = 2,
    FILE_DEPENDENCY = 3,
    FILE_MESSAGE = 4,
    FILE_ENUM = 5,
    FILE_SERVICE = 6,
    ANY_NAME = 1,
    MESSAGE_NESTED = 3,
    MESSAGE_ENUM = 4,
    SERVICE_METHOD = 2
};

enum { FILES_MAX = 8, NAME_MAX_BYTES = 256 };

typedef struct span {
    const uint8_t *at;
    size_t len;
} span;

static uint64_t take_varint(span *m)
{
    uint64_t value = 0;
    for (uint32_t shift = 0; m->len; shift += 7) {
        uint8_t b = *m->at++;
        m->len--;
        value |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80)
            break;
    }
    return value;
}

/* Takes the next field of a message; *out gets its bytes (of a number: none). 0: there is none. */
static uint32_t next_field(span *m, span *out)
{
    uint64_t tag = take_varint(m);
    if (tag == 0)
        return 0; /* the end of the set */
    uint64_t value = take_varint(m);
    *out = (span){m->at, (tag & 7) == 2 ? (size_t)value : 0};
    m->at += out->len;
    m->len -= out->len;
    return (uint32_t)(tag >> 3);
}

/* The first field of this number; NULL: none. */
static span field_of(span m, uint32_t number)
{
    span got;
    for (uint32_t n; m.len && (n = next_field(&m, &got));)
        if (n == number)
            return got;
    return (span){0};
}

static bool equals(span a, const char *text, size_t len)
{
    return a.len == len && memcmp(a.at, text, len) == 0;
}

/* Behind its last file is a NUL, which is no tag. */
static span whole_set(void)
{
    return (span){(const uint8_t *)weft_grpc__descriptors[0].bytes, SIZE_MAX};
}

/* Whether the rest of a dotted name is that of a part of `m`, whose children of some field numbers
 * may have parts of their own. */
static bool has_part(span m, const char *rest, const uint32_t *children);

/* Whether `rest` begins with the name of `m`, and what follows is a part of it. */
static bool is_named(span m, const char *rest, const uint32_t *children)
{
    span name = field_of(m, ANY_NAME);
    size_t len = strcspn(rest, ".");
    if (!equals(name, rest, len))
        return false;
    return !rest[len] || has_part(m, rest + len + 1, children);
}

static bool has_part(span m, const char *rest, const uint32_t *children)
{
    span got;
    for (uint32_t n; m.len && (n = next_field(&m, &got));)
        for (const uint32_t *c = children; *c; c++)
            if (n == *c && is_named(got, rest, children))
                return true;
    return false;
}

/* Whether the file declares a symbol: "package.Message.Nested", "package.Service.Method". */
static bool declares(span file, const char *symbol)
{
    static const uint32_t in_message[] = {MESSAGE_NESTED, MESSAGE_ENUM, 0},
                          in_service[] = {SERVICE_METHOD, 0};
    span package = field_of(file, FILE_PACKAGE), got;
    if (strncmp(symbol, (const char *)package.at, package.len) != 0 || symbol[package.len] != '.')
        return false;
    const char *rest = symbol + package.len + 1;
    for (uint32_t n; file.len && (n = next_field(&file, &got));) {
        bool is_service = n == FILE_SERVICE, is_type = n == FILE_MESSAGE || n == FILE_ENUM;
        if ((is_service || is_type) && is_named(got, rest, is_service ? in_service : in_message))
            return true;
    }
    return false;
}

typedef Grpc__Reflection__V1__ServerReflectionResponse response;

static void put_error(response *r, weft_arena *arena, const char *what, const char *name)
{
    Grpc__Reflection__V1__ErrorResponse *e = weft_arena_alloc(arena, sizeof *e);
    grpc__reflection__v1__error_response__init(e);
    e->error_code = WEFT_GRPC_NOT_FOUND;
    e->error_message =
        weft_arena_printf(arena, "there is no %s '%.*s'", what, NAME_MAX_BYTES, name);
    r->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ERROR_RESPONSE;
    r->error_response = e;
}

/* No file imports another, so one is all that the client needs. */
static void put_file(response *r, weft_arena *arena, span file)
{
    Grpc__Reflection__V1__FileDescriptorResponse *f = weft_arena_alloc(arena, sizeof *f);
    grpc__reflection__v1__file_descriptor_response__init(f);
    f->n_file_descriptor_proto = 1;
    f->file_descriptor_proto = weft_arena_alloc(arena, sizeof *f->file_descriptor_proto);
    f->file_descriptor_proto[0] =
        (ProtobufCBinaryData){.data = (uint8_t *)file.at, .len = file.len};
    r->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE;
    r->file_descriptor_response = f;
}

/* The file of this name, or the one that declares this symbol; `name` is not both. */
static span find_file(const char *name, const char *symbol)
{
    span set = whole_set(), file;
    while (next_field(&set, &file) == SET_FILE)
        if (name ? equals(field_of(file, FILE_NAME), name, strlen(name)) : declares(file, symbol))
            return file;
    return (span){0};
}

static void list_services(response *r, weft_arena *arena)
{
    Grpc__Reflection__V1__ListServiceResponse *list = weft_arena_alloc(arena, sizeof *list);
    span set = whole_set(), file, got;
    grpc__reflection__v1__list_service_response__init(list);
    list->service = weft_arena_array(arena, FILES_MAX, sizeof *list->service);
    while (next_field(&set, &file) == SET_FILE) {
        span package = field_of(file, FILE_PACKAGE);
        for (uint32_t n; file.len && (n = next_field(&file, &got));) {
            if (n != FILE_SERVICE || list->n_service == FILES_MAX)
                continue;
            span name = field_of(got, ANY_NAME);
            Grpc__Reflection__V1__ServiceResponse *s = weft_arena_alloc(arena, sizeof *s);
            grpc__reflection__v1__service_response__init(s);
            s->name = weft_arena_printf(arena, "%.*s.%.*s", (int)package.len, package.at,
                                        (int)name.len, name.at);
            list->service[list->n_service++] = s;
        }
    }
    r->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE;
    r->list_services_response = list;
}

/* The request for the answer, without what the schema does not know: protobuf-c reads tags that it
 * cannot write. */
static Grpc__Reflection__V1__ServerReflectionRequest *
copy_known(weft_arena *arena, const Grpc__Reflection__V1__ServerReflectionRequest *request)
{
    Grpc__Reflection__V1__ServerReflectionRequest *copy = weft_arena_alloc(arena, sizeof *copy);
    *copy = *request;
    copy->base.n_unknown_fields = 0;
    if (request->message_request_case ==
        GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_EXTENSION) {
        Grpc__Reflection__V1__ExtensionRequest *inside = weft_arena_alloc(arena, sizeof *inside);
        *inside = *request->file_containing_extension;
        inside->base.n_unknown_fields = 0;
        copy->file_containing_extension = inside;
    }
    return copy;
}

ProtobufCMessage *weft_grpc__reflect(weft_grpc_call *call, weft_arena *arena,
                                     const ProtobufCMessage *in)
{
    Grpc__Reflection__V1__ServerReflectionRequest *request = (void *)in;
    response *r = weft_arena_alloc(arena, sizeof *r);
    span file = {0};
    grpc__reflection__v1__server_reflection_response__init(r);
    r->valid_host = request->host;
    r->original_request = copy_known(arena, request);
    switch (request->message_request_case) {
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES:
        list_services(r, arena);
        return &r->base;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_BY_FILENAME:
        file = find_file(request->file_by_filename, NULL);
        if (!file.at)
            put_error(r, arena, "file", request->file_by_filename);
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL:
        file = find_file(NULL, request->file_containing_symbol);
        if (!file.at)
            put_error(r, arena, "symbol", request->file_containing_symbol);
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_EXTENSION:
        put_error(r, arena, "extension of", request->file_containing_extension->containing_type);
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_ALL_EXTENSION_NUMBERS_OF_TYPE:
        put_error(r, arena, "extension of", request->all_extension_numbers_of_type);
        break;
    default:
        weft_grpc__fail_call(call, WEFT_GRPC_INVALID_ARGUMENT, "the request asks for nothing");
        return NULL;
    }
    if (file.at)
        put_file(r, arena, file);
    return &r->base;
}
