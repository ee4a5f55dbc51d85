/* Entry points of the importer: memory, names, versions. onnx_int.h lists the phases of an import.
 */
#include "frontend/onnx_int.h"

#include <string.h>

/* -- Versions --------------------------------------------------------------------------------- */

static weft_err check_version(weft_onnx_ctx *cx, const Onnx__ModelProto *model)
{
    weft_where where = {.file = cx->file};
    if (!model->graph)
        return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where, "the file holds no ONNX graph");
    if (model->ir_version < WEFT_ONNX_IR_FIRST || model->ir_version > WEFT_ONNX_IR_LAST)
        return weft_diag_error(cx->diag, WEFT_ERR_UNSUP, where,
                               "ONNX IR version %lld is not supported: %d to %d are",
                               (long long)model->ir_version, WEFT_ONNX_IR_FIRST, WEFT_ONNX_IR_LAST);
    return weft_onnx__opsets(cx, model->opset_import, model->n_opset_import, NULL, &cx->opsets);
}

/* -- Names ------------------------------------------------------------------------------------ */

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
}

/* "models/resnet50.onnx" gives "resnet50"; characters that are invalid in names become '_'. */
static char *name_of_file(weft_arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    size_t len = strlen(base);
    if (len > 5 && strcmp(base + len - 5, ".onnx") == 0)
        len -= 5;
    char *name = weft_arena_strndup(arena, base, len);
    for (char *c = name; *c; c++)
        if (!is_name_char(*c))
            *c = '_';
    bool starts_well =
        (name[0] >= 'a' && name[0] <= 'z') || (name[0] >= 'A' && name[0] <= 'Z') || name[0] == '_';
    return starts_well ? name : weft_arena_printf(arena, "m%s", name);
}

static weft_err create_graph(weft_onnx_ctx *cx)
{
    cx->g = cx->options ? cx->options->into : NULL;
    if (cx->g) {
        cx->n_earlier = weft_graph_symbol_count(cx->g);
        return WEFT_ERR_OK;
    }
    const char *given = cx->options ? cx->options->graph_name : NULL;
    const char *base = given ? given : name_of_file(cx->arena, cx->file);
    const char *name = base;
    for (unsigned i = 2; weft_graph_find(cx->m, name); i++) {
        if (given)
            return weft_diag_error(cx->diag, WEFT_ERR_INPUT, (weft_where){.file = cx->file},
                                   "two models are called \"%s\"", given);
        name = weft_arena_printf(cx->arena, "%s_%u", base, i);
    }
    cx->g = weft_graph_create(cx->m, name);
    return WEFT_ERR_OK;
}

/* -- Import ----------------------------------------------------------------------------------- */

/* Gives the mapped file to the module; external data is searched in the file's folder. */
static void adopt_file(weft_onnx_ctx *cx)
{
    if (!cx->is_file) {
        cx->file_id = weft_module_name_file(cx->m, cx->file);
        return;
    }
    const char *slash = strrchr(cx->file, '/');
    size_t len = slash ? (size_t)(slash - cx->file) + (slash == cx->file) : 1;
    cx->dir = weft_arena_strndup(cx->arena, slash ? cx->file : ".", len);
    cx->file_id = weft_module_own_file(cx->m, cx->file, (weft_file){cx->bytes, cx->len});
}

static weft_err run_import(weft_onnx_ctx *cx);

static weft_err import_model(weft_onnx_ctx *cx)
{
    weft_where where = {.file = cx->file};
    adopt_file(cx);
    WEFT_TRY(weft_onnx__slim(cx->bytes, cx->len, WEFT_ONNX_ROOT_MODEL, cx->arena, cx->diag,
                             cx->file, &cx->slim));
    ProtobufCAllocator allocator;
    weft_onnx__allocator(cx->arena, &allocator);
    const Onnx__ModelProto *model =
        onnx__model_proto__unpack(&allocator, cx->slim.len, cx->slim.at);
    if (!model)
        return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where, "malformed protobuf message");
    WEFT_TRY(check_version(cx, model));
    weft_onnx__probe(cx, model, run_import);
    WEFT_TRY(create_graph(cx));
    cx->contents = weft_contents_create(cx->m, cx->arena);
    cx->refused = weft_names_create(cx->arena);
    cx->known = weft_map_create(cx->arena);
    cx->loose = weft_map_create(cx->arena);
    WEFT_TRY(weft_onnx__functions(cx, model));
    WEFT_TRY(weft_onnx__graph(cx, model->graph));
    cx->related = cx->apart && weft_onnx__relates_names(cx);
    return WEFT_ERR_OK;
}

/* Owns the scratch arena and the recovery point. */
static weft_err run_import(weft_onnx_ctx *cx)
{
    /* Memory is bounded by a multiple of the file's size: messages do not unpack to more. */
    enum { GROWTH = 400 };
    size_t limit = cx->len < SIZE_MAX / GROWTH - ((size_t)1 << 26)
                       ? cx->len * GROWTH + ((size_t)1 << 28)
                       : SIZE_MAX;
    cx->arena = weft_arena_create(limit);
    if (!cx->arena)
        return weft_diag_error(cx->diag, WEFT_ERR_NOMEM, (weft_where){.file = cx->file},
                               "no memory to import");
    jmp_buf env;
    weft_err err;
    if (setjmp(env) == 0) {
        weft_arena_guard(cx->arena, &env);
        weft_module_guard(cx->m, &env);
        err = import_model(cx);
    } else {
        err = weft_diag_error(cx->diag, WEFT_ERR_NOMEM, (weft_where){.file = cx->file},
                              "the model needs more memory than is allowed");
    }
    weft_module_guard(cx->m, NULL);
    weft_arena_destroy(cx->arena);
    return err;
}

weft_err weft_import_onnx_bytes(weft_module *m, const uint8_t *bytes, size_t len, const char *dir,
                                const char *file, const weft_import_options *options,
                                weft_diag *diag, weft_graph **out)
{
    weft_onnx_ctx cx = {.m = m,
                        .diag = diag,
                        .file = file ? file : "model.onnx",
                        .dir = dir,
                        .bytes = bytes,
                        .len = len,
                        .options = options};
    WEFT_TRY(run_import(&cx));
    *out = cx.g;
    return WEFT_ERR_OK;
}

weft_err weft_import_onnx(weft_module *m, const char *path, const weft_import_options *options,
                          weft_diag *diag, weft_graph **out)
{
    weft_file file;
    WEFT_TRY(weft_file_map(path, diag, &file));
    weft_onnx_ctx cx = {.m = m,
                        .diag = diag,
                        .file = path,
                        .is_file = true,
                        .bytes = file.at,
                        .len = (size_t)file.len,
                        .options = options};
    weft_err err = run_import(&cx);
    if (cx.file_id)
        weft_file_drop(&file, file.at, file.len); /* weights are read again later, one at a time */
    else
        weft_file_unmap(&file); /* failed before the module owned it */
    WEFT_TRY(err);
    *out = cx.g;
    return WEFT_ERR_OK;
}

/* -- Single tensors --------------------------------------------------------------------------- */

static weft_err import_tensor(weft_onnx_ctx *cx, weft_arena *arena, weft_tensor *out)
{
    weft_where where = {.file = cx->file};
    WEFT_TRY(weft_onnx__slim(cx->bytes, cx->len, WEFT_ONNX_ROOT_TENSOR, cx->arena, cx->diag,
                             cx->file, &cx->slim));
    ProtobufCAllocator allocator;
    weft_onnx__allocator(cx->arena, &allocator);
    const Onnx__TensorProto *t = onnx__tensor_proto__unpack(&allocator, cx->slim.len, cx->slim.at);
    if (!t)
        return weft_diag_error(cx->diag, WEFT_ERR_INPUT, where, "malformed protobuf message");
    weft_onnx_data data;
    WEFT_TRY(weft_onnx__tensor(cx, t, cx->arena, where, &data));
    weft_tensor tensor = {.dtype = data.dtype, .rank = data.rank};
    memcpy(tensor.dim, data.dim, sizeof tensor.dim);
    tensor.data = weft_arena_alloc(arena, data.bytes);
    if (data.bytes)
        memcpy(tensor.data, data.at, data.bytes);
    *out = tensor;
    return WEFT_ERR_OK;
}

weft_err weft_import_tensor(const char *path, weft_arena *arena, weft_diag *diag, weft_tensor *out)
{
    weft_file file;
    WEFT_TRY(weft_file_map(path, diag, &file));
    weft_onnx_ctx cx = {.diag = diag, .file = path, .bytes = file.at, .len = (size_t)file.len};
    cx.arena = weft_arena_create(0);
    weft_err err;
    jmp_buf env;
    jmp_buf *before = weft_arena_guard(arena, &env);
    if (cx.arena && setjmp(env) == 0) {
        weft_arena_guard(cx.arena, &env);
        err = import_tensor(&cx, arena, out);
    } else {
        err = weft_diag_error(diag, WEFT_ERR_NOMEM, (weft_where){.file = path},
                              "no memory to read a tensor");
    }
    weft_arena_guard(arena, before);
    weft_arena_destroy(cx.arena);
    weft_file_unmap(&file);
    return err;
}
