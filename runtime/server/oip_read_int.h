/* Private to oip_read*.c: the state of the reader of infer requests. */
#ifndef WEFT_RUNTIME_SERVER_OIP_READ_INT_H
#define WEFT_RUNTIME_SERVER_OIP_READ_INT_H

#include "runtime/server/json_scan.h"
#include "runtime/server/oip_int.h"
#include "runtime/server/regions.h"

/* The members of `parameters` objects that are used. */
typedef struct weft_oip__parameters {
    bool has_size;
    uint64_t n_class; /* 0: none */
    bool shared;      /* in shared memory: */
    char region[WEFT_REGION_NAME_MAX];
    uint64_t region_offset, region_bytes;
    unsigned seen; /* bits, by parameter_names */
    uint64_t size, timeout_us;
    int binary, binary_output; /* -1: not given */
    char adapter[WEFT_ADAPTER_NAME_MAX + 1];
    weft_app_need need; /* latency_us: in ms, as given */
} weft_oip__parameters;

typedef struct weft_oip__reader {
    weft_oip_infer *infer;
    weft_regions *regions; /* NULL: shared memory is off */
    char *body;
    size_t len;
    weft_json json;
    size_t binary_at;    /* offset of the next binary tensor in the body */
    const char *outputs; /* the value of this member; NULL: none */
    weft_oip__parameters root;
    weft_answer *answer;
    char *message;
} weft_oip__reader;

/* -- oip_read_data.c ------------------------------------------------------------------------ */

/* Sets the answer and its message; false. */
bool weft_oip__refuse(weft_oip__reader *r, weft_answer answer, const char *fmt, ...)
    WEFT_PRINTF(3, 4);
/* The same for an answer that is not OK, whose message is there. */
bool weft_oip__accept(weft_oip__reader *r, weft_answer answer);
/* The same for the error of the JSON cursor. */
bool weft_oip__refuse_json(weft_oip__reader *r);

/* Whether the next value is of this kind (weft_json__peek); refused with this text otherwise, or
 * for what is no JSON. */
bool weft_oip__expect(weft_oip__reader *r, char kind, const char *fmt, ...) WEFT_PRINTF(3, 4);
/* The same for a bracket, which is read. */
bool weft_oip__enter(weft_oip__reader *r, char bracket, const char *text);
/* Reads the array at the cursor into input `at`, whose dtype and dims are set. */
bool weft_oip__read_json_data(weft_oip__reader *r, uint32_t at, const char *name);
/* Takes the next `bytes` of the body as its data. */
bool weft_oip__read_binary_data(weft_oip__reader *r, uint64_t bytes, uint32_t at, const char *name);
/* The same, whatever its dims say; copies what is not aligned. */
bool weft_oip__take_bytes(weft_oip__reader *r, uint32_t at, size_t bytes);

#endif
