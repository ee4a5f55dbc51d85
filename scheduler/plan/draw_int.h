/* The geometry of a picture of a plan, shared by the terminal and the SVG picture. */
#ifndef WEFT_SCHEDULER_PLAN_DRAW_INT_H
#define WEFT_SCHEDULER_PLAN_DRAW_INT_H

#include "scheduler/input/input.h"
#include "scheduler/plan/plan.h"

#include "base/str.h"

/* One slice. */
typedef struct weft_box {
    double from, to;                    /* position on the device, 0..1: memory slots or shares */
    const weft_placement *const *place; /* its placements, by model */
    uint32_t n_place;
    uint32_t color; /* of the first model */
} weft_box;

typedef struct weft_drawn_device {
    const char *type;
    uint32_t number;
    uint32_t slots; /* MIG memory slots; 0: none */
    const weft_box *box;
    uint32_t n_box;
} weft_drawn_device;

typedef struct weft_drawing {
    const weft_drawn_device *device;
    uint32_t n_device;
    const char *const *model; /* by colour; sorted by name */
    uint32_t n_model;
} weft_drawing;

/* Writes one picture; `arena` is for temporary memory. */
typedef void (*weft_drawing_write)(weft_buf *buf, const weft_plan *plan, const weft_drawing *d,
                                   const weft_draw_options *options, weft_arena *arena);

/* Computes the geometry and runs `write` on it. *out is owned by the caller (free). */
weft_err weft_drawing__write(const weft_plan *plan, weft_drawing_write write,
                             const weft_draw_options *options, char **out);

#endif
