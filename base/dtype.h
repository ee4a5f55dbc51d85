/* Element types of tensors. The table is the only list of them. */
#ifndef WEFT_BASE_DTYPE_H
#define WEFT_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(enum, text, bytes, class, Open Inference Protocol name, NumPy type string) */
#define WEFT_DTYPE_MAP(X)                       \
    X(F32, "f32", 4, FLOAT, "FP32", "<f4")      \
    X(F64, "f64", 8, FLOAT, "FP64", "<f8")      \
    X(F16, "f16", 2, FLOAT, "FP16", "<f2")      \
    X(BF16, "bf16", 2, FLOAT, "BF16", "")       \
    X(I8, "i8", 1, SIGNED, "INT8", "|i1")       \
    X(I16, "i16", 2, SIGNED, "INT16", "<i2")    \
    X(I32, "i32", 4, SIGNED, "INT32", "<i4")    \
    X(I64, "i64", 8, SIGNED, "INT64", "<i8")    \
    X(U8, "u8", 1, UNSIGNED, "UINT8", "|u1")    \
    X(U16, "u16", 2, UNSIGNED, "UINT16", "<u2") \
    X(U32, "u32", 4, UNSIGNED, "UINT32", "<u4") \
    X(U64, "u64", 8, UNSIGNED, "UINT64", "<u8") \
    X(BOOL, "bool", 1, BOOL, "BOOL", "|b1")

typedef enum weft_dtype {
    WEFT_DTYPE_NONE,
#define X(name, text, size, cls, oip, npy) WEFT_DTYPE_##name,
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

/* 0 for NONE or a value out of range. */
size_t weft_dtype_size(weft_dtype dtype);
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
static inline bool weft_dtype_is_int(weft_dtype d)
{
    return weft_dtype_get_class(d) == WEFT_CLASS_SIGNED ||
           weft_dtype_get_class(d) == WEFT_CLASS_UNSIGNED;
}

#endif
