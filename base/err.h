/* Error values: the few codes that callers branch on. The text of an error goes to a weft_diag
 * (base/diag.h); a function may return a code without a message only if its caller adds one. */
#ifndef WEFT_BASE_ERR_H
#define WEFT_BASE_ERR_H

#define WEFT_ERR_MAP(X)                                                 \
    X(OK, "ok")                                                         \
    X(INPUT, "the model, the file or the text is wrong; fix the input") \
    X(UNSUP, "valid input that is not supported yet")                   \
    X(NOMEM, "out of memory, or over a stated limit")                   \
    X(NODEV, "device or driver library is not present")                 \
    X(IO, "the operating system refused an I/O request")                \
    X(INFEASIBLE, "no plan meets the demands")                          \
    X(BUG, "an invariant of ours is broken; please report")

typedef enum weft_err {
#define X(name, text) WEFT_ERR_##name,
    WEFT_ERR_MAP(X)
#undef X
        WEFT_ERR_COUNT
} weft_err;

#if defined(__GNUC__)
#define WEFT_MUST_USE        __attribute__((warn_unused_result))
#define WEFT_PRINTF(fmt, va) __attribute__((format(printf, fmt, va)))
#define WEFT_NORETURN        __attribute__((noreturn))
#else
#define WEFT_MUST_USE
#define WEFT_PRINTF(fmt, va)
#define WEFT_NORETURN
#endif

/* Returns from the enclosing function with the error of `expr`, if it is one. Never in a
 * function that frees at a label. */
#define WEFT_TRY(expr)           \
    do {                         \
        weft_err try_ = (expr);  \
        if (try_ != WEFT_ERR_OK) \
            return try_;         \
    } while (0)

/* "ok", "input", ... ; static storage. */
const char *weft_err_name(weft_err err);
/* One sentence; static storage. */
const char *weft_err_text(weft_err err);
/* Text of an errno. Unlike strerror, it may be called by several threads. */
const char *weft_errno_text(int code);

#endif
