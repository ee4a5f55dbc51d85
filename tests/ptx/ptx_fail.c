/* Faults of a launch, and its random numbers. */
#include "tests/ptx/ptx_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

uint64_t ptx_random(ptx_state *s)
{
    uint64_t x = s->random += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

void ptx_fail(ptx_state *s, int thread, const char *format, ...)
{
    char what[300];
    va_list ap;
    if (s->faulted)
        return;
    s->faulted = true;
    va_start(ap, format);
    vsnprintf(what, sizeof what, format, ap);
    va_end(ap);
    int len = s->insn ? (int)strcspn(s->insn->text, ";\n") : 0;
    snprintf(s->m->fault, sizeof s->m->fault, "%.300s, block %u,%u,%u, thread %d: %s: %.*s",
             s->k->name, s->block[0], s->block[1], s->block[2], thread, what, len < 200 ? len : 200,
             s->insn ? s->insn->text : "");
}
