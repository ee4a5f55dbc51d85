/* Computes the position of each slice on its device for the pictures of a plan. The plan may be
 * illegal: slices are clipped at the edge of the device, and may overlap. */
#include "scheduler/plan/draw_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Lists the models sorted by name, each once. */
static void list_models(const weft_plan *plan, weft_arena *arena, weft_drawing *out)
{
    const char **name = weft_arena_array(arena, plan->n, sizeof *name);
    uint32_t n = 0;
    for (size_t i = 0; i < plan->n; i++)
        name[i] = plan->at[i].model;
    if (plan->n > 0)
        qsort(name, plan->n, sizeof *name, weft_str_order);
    for (size_t i = 0; i < plan->n; i++)
        if (n == 0 || strcmp(name[n - 1], name[i]) != 0)
            name[n++] = name[i];
    out->model = name;
    out->n_model = n;
}

static uint32_t color_of(const weft_drawing *d, const char *model)
{
    const char **hit = bsearch(&model, d->model, d->n_model, sizeof *d->model, weft_str_order);
    return hit ? (uint32_t)((const char *const *)hit - d->model) : 0;
}

/* Clips to 0..1. */
static double clip(double x)
{
    return x > 0 ? fmin(1, x) : 0;
}

/* Sum of the shares so far, of the device and of each MIG instance: where the next share starts. */
typedef struct offsets {
    double device;
    double instance[32];
} offsets;

/* Computes the position of a slice: by memory slots for MIG, else behind the slices before it. */
static void locate(const weft_placement *p, offsets *at, uint32_t *slots, weft_box *box)
{
    const weft_device_type *type = weft_device_type_find(p->type);
    weft_fleet_device any = {.type = p->type, .count = 1, .mig = true, .mps = true};
    weft_fleet_slice spec = {0};
    const char *why;
    bool known = type && !weft_device_type_is_cpu(p->type) &&
                 weft_fleet_slice__resolve(&any, p->slice, &spec, &why);
    if (known && spec.mig && type->mig_slots > 0 && p->mig_start >= 0 && p->mig_start < 32) {
        double from = (double)p->mig_start / type->mig_slots;
        double width = (double)spec.mig->slots / type->mig_slots;
        double *left = &at->instance[p->mig_start];
        *slots = type->mig_slots;
        box->from = clip(from + (spec.percent ? width * *left : 0));
        *left += spec.percent / 100.0;
        box->to = clip(from + (spec.percent ? width * *left : width));
        return;
    }
    double share = spec.kind == WEFT_SLICE_WHOLE && known ? 1 : p->share;
    box->from = clip(at->device);
    at->device += share;
    box->to = clip(at->device);
}

/* Draws the placements order[from .. to), which are on one device. */
static weft_drawn_device draw_device(const weft_plan *plan, const weft_drawing *d,
                                     const uint32_t *order, size_t from, size_t to,
                                     weft_arena *arena)
{
    const weft_placement *first = &plan->at[order[from]];
    weft_drawn_device device = {.type = first->type, .number = first->device};
    weft_box *box = weft_arena_array(arena, to - from, sizeof *box);
    const weft_placement **place = weft_arena_array(arena, to - from, sizeof *place);
    offsets at = {0};
    for (size_t i = from; i < to; i++)
        place[i - from] = &plan->at[order[i]];
    for (size_t i = 0; i < to - from;) {
        weft_box *b = &box[device.n_box++];
        *b = (weft_box){.place = &place[i], .color = color_of(d, place[i]->model)};
        locate(place[i], &at, &device.slots, b);
        while (i < to - from && place[i]->slice_id == b->place[0]->slice_id) {
            b->n_place++;
            i++;
        }
    }
    device.box = box;
    return device;
}

static void make_drawing(const weft_plan *plan, weft_arena *arena, weft_drawing *out)
{
    const uint32_t *order = weft_plan__order(plan, arena);
    weft_drawn_device *device = weft_arena_array(arena, plan->n, sizeof *device);
    weft_drawing d = {.device = device};
    list_models(plan, arena, &d);
    for (size_t i = 0; i < plan->n;) {
        size_t end = i;
        while (end < plan->n && plan->at[order[end]].device == plan->at[order[i]].device)
            end++;
        device[d.n_device++] = draw_device(plan, &d, order, i, end, arena);
        i = end;
    }
    *out = d;
}

weft_err weft_drawing__write(const weft_plan *plan, weft_drawing_write write,
                             const weft_draw_options *options, char **out)
{
    weft_arena *arena = weft_arena_create(0);
    weft_buf buf = {0};
    weft_drawing d;
    jmp_buf env;
    if (!arena)
        return WEFT_ERR_NOMEM;
    if (setjmp(env) != 0) {
        weft_arena_destroy(arena);
        return WEFT_ERR_NOMEM;
    }
    (void)weft_arena_guard(arena, &env);
    make_drawing(plan, arena, &d);
    write(&buf, plan, &d, options, arena);
    weft_arena_destroy(arena);
    if (buf.failed) {
        weft_buf_finish(&buf);
        return WEFT_ERR_NOMEM;
    }
    *out = buf.at;
    return WEFT_ERR_OK;
}
