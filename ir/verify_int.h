/* What verify.c and verify_plan.c share. */
#ifndef WEFT_IR_VERIFY_INT_H
#define WEFT_IR_VERIFY_INT_H

#include "ir/ir_int.h"

enum { WEFT_SAMPLES = 4 };

typedef struct weft_verifier {
    weft_module *m;
    weft_diag *diag;
    weft_arena *scratch;
    weft_dimpool *dims; /* a copy: verifying makes no symbols */
    weft_contents *contents;
    uint32_t *order; /* by value: 1 + number of the node that defines it; 0: not visited yet */
    int64_t *sample; /* WEFT_SAMPLES rows of values for the symbols */
    uint32_t n_sample;
    bool allowed[WEFT_SAMPLES]; /* the sample satisfies the requirements of the graph */
    weft_graph *g;
    weft_err err; /* the first one */
} weft_verifier;

/* Adds the error "RULE: text"; verification continues. */
void weft_verifier__report(weft_verifier *v, const char *rule, weft_where where, const char *fmt,
                           ...) WEFT_PRINTF(4, 5);
weft_where weft_verifier__where(const weft_verifier *v);
/* A name of the value for messages: "%x", "$w" or "result 0 of conv". */
const char *weft_verifier__val(weft_verifier *v, weft_val val);
/* Rules of the plan stage, on v->g. */
void weft_verifier__plan(weft_verifier *v);

#endif
