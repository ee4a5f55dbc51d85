/* NumPy's .npy files: reading hostile ones, writing version 1.0 (format: NumPy's NEP 1). */
#ifndef WEFT_TOOLS_NPY_H
#define WEFT_TOOLS_NPY_H

#include "base/arena.h"
#include "base/diag.h"
#include "base/tensor.h"

/* C order, little endian, the element types of base/dtype.h that NumPy has. Data in `arena`. */
WEFT_MUST_USE weft_err weft_npy_load(const char *path, weft_arena *arena, weft_diag *diag,
                                     weft_tensor *out);
/* bf16 is written as f32. */
WEFT_MUST_USE weft_err weft_npy_save(const char *path, const weft_tensor *t, weft_diag *diag);

#endif
