/* For passes that choose the layout of values (choose_layout.c, channels_last.c). */
#ifndef WEFT_PASSES_LAYOUTS_H
#define WEFT_PASSES_LAYOUTS_H

#include "passes/passes_int.h"

#include "base/map.h"

/* The values of a graph in other layouts. */
typedef struct weft_layouts {
    weft_graph *g;
    weft_module *m;
    weft_map *reordered; /* value and layout -> value in that layout */
    bool changed;
} weft_layouts;

weft_layouts weft_layouts__start(weft_passctx *cx, weft_graph *g);
weft_layout weft_layouts__layout_of(const weft_layouts *r, weft_val v);
/* Gives the node operand i in the layout `want`, by a reorder before it where there is none yet. */
void weft_layouts__ask(weft_layouts *r, weft_node n, uint32_t i, weft_layout want);
/* The same for all operands, with plain values. */
void weft_layouts__ask_plain(weft_layouts *r, weft_node n);
/* Sets the layout of result 0, and the attribute if it differs from that of operand 0. */
void weft_layouts__give(weft_layouts *r, weft_node n, weft_layout layout);
/* The same for all results. */
void weft_layouts__give_all(weft_layouts *r, weft_node n, weft_layout layout);
/* Outputs are plain: reorders behind the last node. */
void weft_layouts__finish(weft_layouts *r);

/* Whether v has the dims of `like`. */
bool weft_layouts__is_full(const weft_layouts *r, weft_val v, weft_val like);
/* Whether v has one element per image and channel of `like` ([n, c, 1, 1]), as in
 * squeeze-and-excite. */
bool weft_layouts__is_gate(const weft_layouts *r, weft_val v, weft_val like);
/* Whether a transposition moves dim 1 to the end, or with `back` the last dim to place 1. */
bool weft_layouts__moves_channels(const weft_module *m, weft_node n, bool back);

#endif
