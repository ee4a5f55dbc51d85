/* One tensor in a pipe between two programs of the same build: a header, then the elements. NumPy's
 * format cannot be used, as it has no bf16. */
#ifndef WEFT_TOOLS_TENSOR_STREAM_H
#define WEFT_TOOLS_TENSOR_STREAM_H

#include "base/arena.h"
#include "base/diag.h"
#include "base/tensor.h"

#include <stdio.h>

/* `weft-compiler --tensor FILE` reads an ONNX tensor and writes it in this form. */
#define WEFT_TENSOR_STREAM "--tensor"

/* False: an output error. */
bool weft_tool_write_tensor(const weft_tensor *t, FILE *to);
/* Elements are in `arena`. INPUT: the stream does not hold a complete tensor. */
WEFT_MUST_USE weft_err weft_tool_read_tensor(FILE *from, const char *name, weft_arena *arena,
                                             weft_diag *diag, weft_tensor *out);

#endif
