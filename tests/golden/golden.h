/* What golden.c and golden_eval.c share. */
#ifndef WEFT_TESTS_GOLDEN_H
#define WEFT_TESTS_GOLDEN_H

#include "ir/ir.h"

#include <stdbool.h>

/* Evaluates every graph of both modules on the same seeded inputs, at a few values of the symbols.
 * true if the outputs agree or no graph of `before` can be evaluated; otherwise prints the
 * difference. */
bool golden_same_meaning(weft_module *before, weft_module *after);

#endif
