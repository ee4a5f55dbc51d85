/* Element types of tensors. The table is the only list of them. */
#ifndef WEFT_BASE_DTYPE_H
#define WEFT_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(enum, text, bits, class, Open Inference Protocol name, NumPy type string). Types of fewer than
 * 8 bits take a byte for each element in memory, in bundles and in requests, in its low bits; files
 * of ONNX pack them (base/narrow.h). The names of the types behind BOOL are not in the protocol's
 * text; they follow ONNX's. */
#define WEFT_DTYPE_MAP(X)                                    \
    X(F32, "f32", 32, FLOAT, "FP32", "<f4")                  \
    X(F64, "f64", 64, FLOAT, "FP64", "<f8")                  \
    X(F16, "f16", 16, FLOAT, "FP16", "<f2")                  \
    X(BF16, "bf16", 16, FLOAT, "BF16", "")                   \
    X(I8, "i8", 8, SIGNED, "INT8", "|i1")                    \
    X(I16, "i16", 16, SIGNED, "INT16", "<i2")                \
    X(I32, "i32", 32, SIGNED, "INT32", "<i4")                \
    X(I64, "i64", 64, SIGNED, "INT64", "<i8")                \
    X(U8, "u8", 8, UNSIGNED, "UINT8", "|u1")                 \
    X(U16, "u16", 16, UNSIGNED, "UINT16", "<u2")             \
    X(U32, "u32", 32, UNSIGNED, "UINT32", "<u4")             \
    X(U64, "u64", 64, UNSIGNED, "UINT64", "<u8")             \
    X(BOOL, "bool", 8, BOOL, "BOOL", "|b1")                  \
    X(F8E4M3FN, "f8e4m3fn", 8, FLOAT, "FP8E4M3FN", "")       \
    X(F8E4M3FNUZ, "f8e4m3fnuz", 8, FLOAT, "FP8E4M3FNUZ", "") \
    X(F8E5M2, "f8e5m2", 8, FLOAT, "FP8E5M2", "")             \
    X(F8E5M2FNUZ, "f8e5m2fnuz", 8, FLOAT, "FP8E5M2FNUZ", "") \
    X(F8E8M0, "f8e8m0", 8, FLOAT, "FP8E8M0", "")             \
    X(F6E2M3, "f6e2m3", 6, FLOAT, "FP6E2M3", "")             \
    X(F6E3M2, "f6e3m2", 6, FLOAT, "FP6E3M2", "")             \
    X(F4E2M1, "f4e2m1", 4, FLOAT, "FP4E2M1", "")             \
    X(I4, "i4", 4, SIGNED, "INT4", "")                       \
    X(U4, "u4", 4, UNSIGNED, "UINT4", "")                    \
    X(I2, "i2", 2, SIGNED, "INT2", "")                       \
    X(U2, "u2", 2, UNSIGNED, "UINT2", "")

typedef enum weft_dtype {
    WEFT_DTYPE_NONE,
#define X(name, text, bits, cls, oip, npy) WEFT_DTYPE_##name,
    WEFT_DTYPE_MAP(X)
#undef X
        WEFT_DTYPE_COUNT
} weft_dtype;

typedef enum weft_dtype_class {
    WEFT_CLASS_NONE,
    WEFT_CLASS_FLOAT,
    WEFT_CLASS_SIGNED,
    WEFT_CLASS_UNSIGNED,
    WEFT_CLASS_BOOL
} weft_dtype_class;

/* Bytes of an element in memory, and bits of its value. 0 for NONE or a value out of range. */
size_t weft_dtype_size(weft_dtype dtype);
unsigned weft_dtype_bits(weft_dtype dtype);
weft_dtype_class weft_dtype_get_class(weft_dtype dtype);
const char *weft_dtype_name(weft_dtype dtype);
const char *weft_dtype_oip_name(weft_dtype dtype);
const char *weft_dtype_npy_name(weft_dtype dtype);
/* NONE when unknown. */
weft_dtype weft_dtype_parse(const char *text);
weft_dtype weft_dtype_from_oip(const char *text);
weft_dtype weft_dtype_from_npy(const char *text);

static inline bool weft_dtype_is_float(weft_dtype d)
{
    return weft_dtype_get_class(d) == WEFT_CLASS_FLOAT;
}
/* Types behind BOOL: quantised or stored, converted and moved, but not computed with. */
static inline bool weft_dtype_is_narrow(weft_dtype d)
{
    return d > WEFT_DTYPE_BOOL && d < WEFT_DTYPE_COUNT;
}
static inline bool weft_dtype_is_int(weft_dtype d)
{
    return weft_dtype_get_class(d) == WEFT_CLASS_SIGNED ||
           weft_dtype_get_class(d) == WEFT_CLASS_UNSIGNED;
}

#endif
