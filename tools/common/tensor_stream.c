/* Tensors in pipes; see tensor_stream.h. */
#include "tools/common/tensor_stream.h"

typedef struct header {
    int64_t dtype, rank, dim[WEFT_RANK_MAX];
} header;

bool weft_tool_write_tensor(const weft_tensor *t, FILE *to)
{
    header h = {.dtype = t->dtype, .rank = t->rank};
    size_t bytes = weft_tensor_bytes(t);
    for (int32_t i = 0; i < t->rank; i++)
        h.dim[i] = t->dim[i];
    return fwrite(&h, sizeof h, 1, to) == 1 &&
           (bytes == 0 || fwrite(t->data, 1, bytes, to) == bytes) && fflush(to) == 0;
}

weft_err weft_tool_read_tensor(FILE *from, const char *name, weft_arena *arena, weft_diag *diag,
                               weft_tensor *out)
{
    header h;
    weft_tensor t = {0};
    const weft_where where = {.file = name};
    if (fread(&h, sizeof h, 1, from) != 1 || h.rank < 0 || h.rank > WEFT_RANK_MAX ||
        h.dtype <= WEFT_DTYPE_NONE || h.dtype >= WEFT_DTYPE_COUNT)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "no tensor could be read");
    t.dtype = (weft_dtype)h.dtype;
    t.rank = (int32_t)h.rank;
    for (int32_t i = 0; i < t.rank; i++)
        t.dim[i] = h.dim[i];
    if (weft_numel(t.dim, t.rank) < 0)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "the tensor is too large");
    size_t bytes = weft_tensor_bytes(&t);
    t.data = weft_arena_alloc(arena, bytes);
    if (bytes > 0 && fread(t.data, 1, bytes, from) != bytes)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "the tensor is cut off");
    *out = t;
    return WEFT_ERR_OK;
}
