/* Pictures of plans: where each slice lies on its device, for the terminal and for SVG. */
#ifndef WEFT_SCHEDULER_PLAN_DRAW_INT_H
#define WEFT_SCHEDULER_PLAN_DRAW_INT_H

#include "scheduler/input/input.h"
#include "scheduler/plan/plan.h"

/* One slice. From and to: parts of the device, 0..1, by memory slot (MIG) or share. */
typedef struct weft_box {
    double from, to;
    const weft_placement *const *place; /* in turns, by model */
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
    const char *const *model; /* by color: by name */
    uint32_t n_model;
} weft_drawing;

void weft_drawing__make(const weft_plan *plan, weft_arena *arena, weft_drawing *out);

#endif
