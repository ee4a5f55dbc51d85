/* Draws a plan for the terminal: a line for each device, with MIG slots or shares from left to
 * right and dots for free room. Consecutive devices that look the same are one line with their
 * range of numbers.
 *
 *   a100-80 0-3   [resnet50 x2        ][bert   ][vgg16+vgg19]....... */
#include "scheduler/plan/draw_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH_DEFAULT = 100, WIDTH_MIN = 40, WIDTH_MAX = 400, HEAD = 24, CELL_MAX = 512 };

/* Those of the 256 ANSI colours on which black text is readable. */
static const uint8_t backgrounds[] = {151, 153, 180, 182, 187, 115, 117, 144, 146, 152,
                                      186, 188, 216, 217, 222, 223, 109, 110, 138, 150};

enum { BACKGROUNDS = sizeof backgrounds / sizeof backgrounds[0] };

/* "a+b" for two models that share a slice, "a x3" for three processes. */
static void label_of(const weft_box *box, char *out, size_t size)
{
    size_t len = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < box->n_place && len < size - 1; i++) {
        int n = snprintf(out + len, size - len, "%s%s", i ? "+" : "", box->place[i]->model);
        len = n < 0 || (size_t)n >= size - len ? size - 1 : len + (size_t)n;
    }
    if (box->n_place == 1 && box->place[0]->procs > 1 && len < size - 1)
        snprintf(out + len, size - len, " x%u", box->place[0]->procs);
}

/* Writes the label in brackets, truncated or padded to `width` columns. */
static void put_box(weft_buf *buf, const weft_box *box, size_t width, bool color)
{
    char label[CELL_MAX], cell[CELL_MAX];
    size_t inside = width - 2;
    label_of(box, label, sizeof label);
    if (width < 2) {
        weft_buf_printf(buf, "%.*s", (int)width, "|");
        return;
    }
    snprintf(cell, sizeof cell, "%-*.*s", (int)inside, (int)inside, label);
    if (color)
        weft_buf_printf(buf, "\033[48;5;%um\033[30m[%s]\033[0m",
                        backgrounds[box->color % BACKGROUNDS], cell);
    else
        weft_buf_printf(buf, "[%s]", cell);
}

static int compare_boxes(const void *a, const void *b)
{
    const weft_box *p = a, *q = b;
    return (p->from > q->from) - (p->from < q->from);
}

/* Writes the boxes from left to right; of overlapping boxes the later one is clipped. */
static void put_device(weft_buf *buf, const weft_drawn_device *d, size_t width, bool color,
                       weft_arena *arena)
{
    weft_box *box = weft_arena_array(arena, d->n_box, sizeof *box);
    size_t column = 0;
    memcpy(box, d->box, d->n_box * sizeof *box);
    qsort(box, d->n_box, sizeof *box, compare_boxes);
    for (uint32_t i = 0; i < d->n_box; i++) {
        size_t from = (size_t)(box[i].from * (double)width + 0.5);
        size_t to = (size_t)(box[i].to * (double)width + 0.5);
        for (; column < from; column++)
            weft_buf_printf(buf, ".");
        if (to > column)
            put_box(buf, &box[i], to - column, color);
        column = to > column ? to : column;
    }
    for (; column < width; column++)
        weft_buf_printf(buf, ".");
    weft_buf_printf(buf, "\n");
}

static bool looks_same(const weft_drawn_device *a, const weft_drawn_device *b)
{
    if (strcmp(a->type, b->type) != 0 || a->n_box != b->n_box)
        return false;
    for (uint32_t i = 0; i < a->n_box; i++) {
        const weft_box *p = &a->box[i], *q = &b->box[i];
        if (p->from != q->from || p->to != q->to || p->n_place != q->n_place)
            return false;
        for (uint32_t k = 0; k < p->n_place; k++)
            if (strcmp(p->place[k]->model, q->place[k]->model) != 0 ||
                p->place[k]->procs != q->place[k]->procs)
                return false;
    }
    return true;
}

static void put_drawing(weft_buf *buf, const weft_drawing *d, size_t width, bool color,
                        weft_arena *arena)
{
    for (uint32_t i = 0; i < d->n_device;) {
        char head[64], numbers[32];
        uint32_t last = i;
        while (last + 1 < d->n_device && looks_same(&d->device[i], &d->device[last + 1]))
            last++;
        if (last > i)
            snprintf(numbers, sizeof numbers, "%u-%u", d->device[i].number, d->device[last].number);
        else
            snprintf(numbers, sizeof numbers, "%u", d->device[i].number);
        snprintf(head, sizeof head, "%.10s %s", d->device[i].type, numbers);
        weft_buf_printf(buf, "%-*s ", HEAD - 1, head);
        weft_arena_mark mark = weft_arena_get_mark(arena);
        put_device(buf, &d->device[i], width, color, arena);
        weft_arena_reset(arena, mark);
        i = last + 1;
    }
}

static void draw_text(weft_buf *buf, const weft_plan *plan, const weft_drawing *d,
                      const weft_draw_options *options, weft_arena *arena)
{
    size_t width = options->width ? options->width : WIDTH_DEFAULT;
    width = width < WIDTH_MIN ? WIDTH_MIN : width > WIDTH_MAX ? WIDTH_MAX : width;
    (void)plan;
    put_drawing(buf, d, width - HEAD, options->color, arena);
    weft_buf_printf(buf, "%u device%s, %u model%s; . free\n", d->n_device,
                    d->n_device == 1 ? "" : "s", d->n_model, d->n_model == 1 ? "" : "s");
}

weft_err weft_plan_draw_text(const weft_plan *plan, const weft_draw_options *options, char **out)
{
    return weft_drawing__write(plan, draw_text, options, out);
}
