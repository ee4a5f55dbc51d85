/* NumPy's .npy files: reads untrusted files, writes version 1.0 of the format (NumPy's NEP 1). */
#ifndef WEFT_TOOLS_NPY_H
#define WEFT_TOOLS_NPY_H

#include "base/arena.h"
#include "base/diag.h"
#include "base/tensor.h"

/* Reads an array in C order, little endian, of an element type of base/dtype.h that NumPy has.
 * The data lives in `arena`. */
WEFT_MUST_USE weft_err weft_npy_load(const char *path, weft_arena *arena, weft_diag *diag,
                                     weft_tensor *out);
/* Writes a tensor; types that NumPy has no name for as wider ones: bf16 and
 * smaller floats as f32, 4- and 2-bit integers as 8-bit ones. */
WEFT_MUST_USE weft_err weft_npy_save(const char *path, const weft_tensor *t, weft_diag *diag);

#endif
