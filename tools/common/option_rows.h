/* Makes rows of weft_option from tools/options.def. A verb includes it like this:
 *
 *     #define OPTIONS_OF_bench
 *     #define OPTIONS options       the struct that the rows fill
 *     #include "tools/common/option_rows.h"
 *
 * and has the array `rows`. Each macro checks the type of the member it is given. */
#include "tools/common/options.h"

#include <math.h>

/* A wrong type is a compiler warning: the pointers that are compared have different types. */
#define OPTION_AT(type, member) \
    .at = offsetof(OPTIONS, member) + 0 * sizeof((type *)NULL == &((OPTIONS *)NULL)->member)

#define FLAG(member)           WEFT_OPTION_FLAG, OPTION_AT(bool, member)
#define TEXT(member)           WEFT_OPTION_TEXT, OPTION_AT(const char *, member)
#define READS(member)          TEXT(member), .reads = true
#define WRITES(member)         TEXT(member), .writes = true
#define COUNT(member, l, h)    WEFT_OPTION_COUNT, OPTION_AT(uint64_t, member), .lo = l, .hi = h
#define COUNT32(member, l, h)  WEFT_OPTION_COUNT32, OPTION_AT(uint32_t, member), .lo = l, .hi = h
#define NUMBER(member, l, h)   WEFT_OPTION_NUMBER, OPTION_AT(double, member), .lo = l, .hi = h
#define SECONDS(member)        WEFT_OPTION_SECONDS, OPTION_AT(double, member)
#define SECOND(member)         WEFT_OPTION_SECOND, OPTION_AT(bool, member)
#define CALL(function, member) WEFT_OPTION_CALL, .at = offsetof(OPTIONS, member), .take = function

/* The function gets a pointer to the whole struct. */
#define APPLY(function) WEFT_OPTION_CALL, .take = function

/* clang-format off */
#define BEGIN(verb)   static const weft_option rows[] = {
#define USAGE(text)   {.kind = WEFT_OPTION_USAGE, .help = text},
#define ABOUT(text)   {.kind = WEFT_OPTION_ABOUT, .help = text},
#define HEADING(text) {.kind = WEFT_OPTION_HEADING, .help = text},
#define OPTION(long_name, short_name, argument, action, text) \
    {.name = long_name, .letter = short_name, .arg = argument, .help = text, .kind = action},
#define END {.kind = WEFT_OPTION_END}};
/* clang-format on */
#include "tools/options.def"
