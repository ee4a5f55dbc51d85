/* Reports of broken rules, and the names of graphs and values in them. */
#include "ir/verify_int.h"

#include <stdarg.h>
#include <stdio.h>

void weft_verifier__report(weft_verifier *v, const char *rule, weft_where where, const char *fmt,
                           ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    weft_diag_error(v->diag, WEFT_ERR_INPUT, where, "%s: %s", rule, text);
    if (v->err == WEFT_ERR_OK)
        v->err = WEFT_ERR_INPUT;
}

weft_where weft_verifier__where(const weft_verifier *v)
{
    return (weft_where){.item = weft_graph_name(v->g)};
}

const char *weft_verifier__val(weft_verifier *v, weft_val val)
{
    weft_module *m = v->m;
    weft_weight w = weft_val_weight(m, val);
    if (w.i)
        return weft_arena_printf(v->scratch, "$%s", weft_weight_get(m, w)->name);
    weft_node n = weft_val_node(m, val);
    if (n.i)
        return weft_arena_printf(v->scratch, "result %u of %s", weft_val_index(m, val),
                                 weft_node_opdef(m, n)->name);
    uint32_t i = weft_val_index(m, val);
    bool ours = i < weft_graph_input_count(v->g) && weft_graph_input(v->g, i).i == val.i;
    return ours ? weft_arena_printf(v->scratch, "%%%s", weft_graph_input_name(v->g, i))
                : "an input of another graph";
}
