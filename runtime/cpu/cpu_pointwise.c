/* Convolutions with a kernel of one pixel between values in blocks of channels.
 *
 * Weights are packed in panels of 32 output channels. A place is a block of pixels of an image; a
 * task is some places times some panels. It adds up input channels chunk by chunk: a chunk of the
 * places' values and one of a panel's weights stay in the L2 cache, and the weights are read from
 * behind it once a task. The inner loops (weft_cpu_vec.pointwise) keep 14 pixels times two vectors
 * in registers. A residual and a clip are computed there, any other epilogue by an element-wise
 * program while the results are in the cache. oneDNN's kernels are slower with costly activations
 * (silu, gelu) and for blocks of channels that are not full.
 *
 * Convolutions of images with strides become such ones: a chunk of their windows is unfolded into a
 * thread's scratch memory, [tap][channels/16][pixel][16], padding as zeros. The copy is small
 * beside the products of many output channels. */
#include "base/num.h"
#include "runtime/cpu/cpu_dnnl.h"
#include "runtime/cpu/cpu_ew_int.h"
#include "runtime/cpu/cpu_memory.h"
#include "runtime/cpu/cpu_window.h"

#include <math.h>

/* With fewer input channels, oneDNN's order of stores is faster. */
enum { CHANNELS_MIN = 24, FEW_PIXELS = 16 };
enum {
    BLOCK_BYTES = 192 << 10,
    PROGRAM_BYTES = 448 << 10,
    BLOCK_PIXELS = 392,
    PROGRAM_PIXELS = 1568,
    TILE_PIXELS = 14,
    STEP_PIXELS = 7,      /* the inner loops' smaller step */
    CHUNK_CHANNELS = 512, /* 64 KB of a panel */
    TASK_BYTES = 512 << 10,
    TASKS_PER_THREAD = 4,
};
/* Windows are unfolded for so many output channels. */
enum { UNFOLD_CHANNELS = 256, UNFOLD_BLOCKS_MAX = 1 << 20 };
/* A thread's speed, roughly; `read` from behind its own caches. */
static const double flops_per_ns = 200, copied_per_ns = 10, read_per_ns = 10;

typedef struct pointwise_kernel {
    const weft_cpu_vec *vec;
    weft_engine *engine;
    uint32_t threads, n_in;
    int64_t images, pixels, in, in_blocks, out_blocks, panels; /* of unfolded values */
    int64_t block, n_block;           /* pixels of a place; places of an image */
    int64_t chunk, n_chunk;           /* channels */
    int64_t task_places, place_tasks; /* places of a task; tasks of one panel */
    int64_t task_panels, panel_tasks; /* panels of a task; tasks of one place */
    weft_cpu_pack *pack;              /* [panels][in][32] */
    float *bias;                      /* panels * 32; owned */
    uint32_t add;                     /* operand that is added; 0: none */
    float lo, hi;
    int64_t unused; /* lanes of the last block */
    weft_cpu_ew *ew;
    /* Unfolding; taps 0: none. */
    int64_t taps, size[2], out_width;
    weft_cpu_window window;
    int64_t place_floats; /* of one place in scratch memory */
    void *const *arg;     /* of the current run */
} pointwise_kernel;

/* -- Runs ----------------------------------------------------------------------------------- */

static void clear_unused(const pointwise_kernel *k, float *y, int64_t pixels)
{
    int64_t lanes = (int64_t)k->vec->lanes;
    for (int64_t i = 0; i < pixels; i++)
        memset(y + (i + 1) * lanes - k->unused, 0, (size_t)k->unused * sizeof *y);
}

/* What a task reads for one chunk of channels. */
typedef struct pw_chunk {
    int64_t first, n; /* channels */
    int64_t number;
} pw_chunk;

static int64_t pixels_of(const pointwise_kernel *k, int64_t place)
{
    int64_t left = k->pixels - place % k->n_block * k->block;
    return left < k->block ? left : k->block;
}

/* Adds one chunk of channels to a panel of one place; x: the chunk's values there, whose blocks
 * are x_block apart. */
static void add_chunk(const pointwise_kernel *k, int64_t place, int64_t panel, const pw_chunk *c,
                      const float *x, int64_t x_block, weft_ew_part *part)
{
    static const float zeros[WEFT_VEC_PANEL];
    int64_t lanes = (int64_t)k->vec->lanes, per_panel = WEFT_VEC_PANEL / lanes;
    int64_t block = panel * per_panel, plane = k->pixels * lanes, n = pixels_of(k, place);
    int64_t first = place % k->n_block * k->block;
    int64_t from = ((place / k->n_block * k->out_blocks + block) * k->pixels + first) * lanes;
    int64_t blocks = k->out_blocks - block < per_panel ? k->out_blocks - block : per_panel;
    float *y = (float *)k->arg[k->n_in] + from;
    bool is_last = c->number + 1 == k->n_chunk;
    const float *residual = k->add ? (const float *)k->arg[k->add] + from : NULL;
    const weft_vec_pointwise s = {
        .in = (size_t)c->n,
        .pixels = (size_t)n,
        .blocks = (size_t)blocks,
        .x_block = (size_t)x_block,
        .y_block = (size_t)plane,
        .bias = c->number ? zeros : k->bias + panel * WEFT_VEC_PANEL,
        .add = c->number ? y : residual,
        .lo = is_last ? k->lo : -INFINITY,
        .hi = is_last ? k->hi : INFINITY,
    };
    const float *w = weft_cpu__pack_data(k->pack);
    k->vec->pointwise(y, x, w + (panel * k->in + c->first) * WEFT_VEC_PANEL, &s);
    if (!is_last)
        return;
    for (int64_t b = 0; k->ew && b < blocks; b++)
        weft_ew__run_range(k->ew, part, from + b * plane, n * lanes);
    if (k->unused && block + blocks == k->out_blocks)
        clear_unused(k, y + (blocks - 1) * plane, n);
}

/* One tap of one block of channels: the values that the tap meets, for the n pixels from `pixel`
 * of the result on. */
static void unfold_block(const pointwise_kernel *k, float *to, const float *from, int64_t tap,
                         int64_t pixel, int64_t n)
{
    const weft_cpu_window *w = &k->window;
    int64_t lanes = (int64_t)k->vec->lanes;
    size_t bytes = (size_t)lanes * sizeof *to;
    int64_t top = tap / w->kernel[1] * w->dilation[0] - w->before[0];
    int64_t left = tap % w->kernel[1] * w->dilation[1] - w->before[1];
    int64_t r = pixel / k->out_width, c = pixel % k->out_width;
    for (int64_t i = 0; i < n; i++, to += lanes) {
        int64_t y = top + r * w->stride[0], x = left + c * w->stride[1];
        if (y < 0 || y >= k->size[0] || x < 0 || x >= k->size[1])
            memset(to, 0, bytes);
        else
            memcpy(to, from + (y * k->size[1] + x) * lanes, bytes);
        if (++c == k->out_width) {
            c = 0;
            r++;
        }
    }
}

/* A chunk of the windows of one place: [block of the chunk][pixel][lanes]. */
static void unfold(const pointwise_kernel *k, float *to, int64_t place, const pw_chunk *c)
{
    int64_t lanes = (int64_t)k->vec->lanes, blocks = k->in_blocks / k->taps;
    int64_t size = k->size[0] * k->size[1] * lanes, n = pixels_of(k, place);
    const float *image = (const float *)k->arg[0] + place / k->n_block * blocks * size;
    int64_t pixel = place % k->n_block * k->block;
    for (int64_t i = c->first / lanes; i < (c->first + c->n) / lanes; i++, to += n * lanes)
        unfold_block(k, to, image + i % blocks * size, i / blocks, pixel, n);
}

/* Where a thread unfolds place number `i` of its task. */
static float *own_windows(const pointwise_kernel *k, int64_t i)
{
    return (float *)k->arg[k->n_in + 1] +
           ((int64_t)weft_par_self() * k->task_places + i) * k->place_floats;
}

/* The chunk's values of a place, which is number `i` of its task. */
static const float *values(const pointwise_kernel *k, int64_t place, int64_t i, const pw_chunk *c,
                           int64_t *out_block)
{
    int64_t lanes = (int64_t)k->vec->lanes;
    if (k->taps) {
        *out_block = pixels_of(k, place) * lanes;
        return own_windows(k, i);
    }
    *out_block = k->pixels * lanes;
    int64_t block = place / k->n_block * k->in_blocks + c->first / lanes;
    return (const float *)k->arg[0] + (block * k->pixels + place % k->n_block * k->block) * lanes;
}

static void run_task(const pointwise_kernel *k, int64_t task, weft_ew_part *part)
{
    int64_t places = k->images * k->n_block, place = task % k->place_tasks * k->task_places;
    int64_t panel = task / k->place_tasks * k->task_panels;
    int64_t n = places - place < k->task_places ? places - place : k->task_places;
    int64_t end = panel + k->task_panels < k->panels ? panel + k->task_panels : k->panels;
    for (pw_chunk c = {0}; c.number < k->n_chunk; c.number++, c.first += c.n) {
        c.n = k->in - c.first < k->chunk ? k->in - c.first : k->chunk;
        for (int64_t i = 0; k->taps && i < n; i++)
            unfold(k, own_windows(k, i), place + i, &c);
        for (int64_t p = panel; p < end; p++)
            for (int64_t i = 0; i < n; i++) {
                int64_t x_block;
                const float *x = values(k, place + i, i, &c, &x_block);
                add_chunk(k, place + i, p, &c, x, x_block, part);
            }
    }
}

static void run_tasks(void *cx, int64_t begin, int64_t end)
{
    const pointwise_kernel *k = cx;
    weft_ew_part part;
    if (k->ew)
        weft_ew__part_init(k->ew, &part);
    for (int64_t i = begin; i < end; i++)
        run_task(k, i, &part);
}

static weft_err run_pointwise(void *state, void *const *arg)
{
    pointwise_kernel *k = state;
    double flops = 2.0 * (double)(k->in * k->task_panels * WEFT_VEC_PANEL) *
                   (double)(k->task_places * k->block);
    k->arg = arg;
    if (k->ew)
        k->ew->arg = arg;
    weft_par_for(k->threads, k->place_tasks * k->panel_tasks, flops / flops_per_ns, run_tasks, k);
    return WEFT_ERR_OK;
}

static void destroy_pointwise(void *state)
{
    pointwise_kernel *k = state;
    if (k->pack)
        weft_cpu__put_pack(k->engine, k->pack);
    weft_cpu__ew_destroy(k->ew);
    free(k->bias);
    free(k);
}

/* -- Preparation ---------------------------------------------------------------------------- */

static bool in_blocks(const weft_slot *s, size_t lanes)
{
    return s->present && s->tensor.dtype == WEFT_DTYPE_F32 &&
           (s->layout == WEFT_LAYOUT_C16 || s->layout == WEFT_LAYOUT_C8) &&
           (size_t)weft_layout_block(s->layout) == lanes;
}

/* Whether windows are worth unfolding: oneDNN's kernels are as fast with one tap or few output
 * channels, and there are faster ones without strides. */
static bool unfolds(const weft_prep *p, const weft_cpu_window *w)
{
    const weft_tensor *x = &p->in[0].tensor, *y = &p->out[0].tensor;
    int64_t lanes = (int64_t)weft_cpu__of(p)->vec->lanes;
    return lanes == 16 && w->n == 2 && (w->stride[0] != 1 || w->stride[1] != 1) &&
           (w->kernel[0] != 1 || w->kernel[1] != 1) && x->dim[1] % lanes == 0 &&
           y->dim[1] >= UNFOLD_CHANNELS;
}

static bool is_pointwise(const weft_prep *p, weft_cpu_window *window, bool *out_unfolds)
{
    const weft_slot *x = &p->in[0], *w = &p->in[1], *y = &p->out[0];
    size_t lanes = weft_cpu__of(p)->vec->lanes;
    int32_t rank = x->tensor.rank;
    bool single = true;
    if (lanes == 0 || p->n_in < 2 || p->n_out != 1 || !in_blocks(x, lanes) ||
        !in_blocks(y, lanes) || !weft_slot_is(w, WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN) || !w->weight ||
        rank < 3 || x->tensor.dim[1] < CHANNELS_MIN || w->tensor.rank != rank ||
        y->tensor.rank != rank || !weft_cpu__window(p, w->tensor.dim + 2, window) ||
        weft_attrs_int(p->attrs, WEFT_ATTR_GROUP, 1) != 1)
        return false;
    for (uint32_t i = 0; i < window->n; i++)
        single = single && window->kernel[i] == 1 && window->stride[i] == 1 &&
                 window->before[i] == 0 && window->after[i] == 0;
    for (int32_t d = 0; d < rank; d++)
        if (d != 1 && (d == 0 || single) && x->tensor.dim[d] != y->tensor.dim[d])
            return false;
    *out_unfolds = !single;
    if (!single && !unfolds(p, window))
        return false;
    const weft_slot *bias = p->n_in > 2 && p->in[2].present ? &p->in[2] : NULL;
    return w->tensor.dim[0] == y->tensor.dim[1] && w->tensor.dim[1] == x->tensor.dim[1] &&
           (!bias || (weft_slot_is(bias, WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN) && bias->weight &&
                      weft_slot_numel(bias) == y->tensor.dim[1]));
}

/* The value before step s is its argument k. */
static bool is_before(const weft_step *step, uint32_t s, uint32_t k)
{
    return step[s].arg[k].kind == WEFT_ARG_ACC ||
           (s > 0 && step[s].arg[k].kind == WEFT_ARG_STEP && step[s].arg[k].idx == s - 1);
}

/* The operand that step 0 adds to the accumulator, of the result's dims and layout; 0: none. */
static uint32_t find_addend(const weft_prep *p, const weft_step *step)
{
    for (uint32_t k = 0; k < 2 && step->op == WEFT_STEP_ADD; k++) {
        uint32_t at = step->arg[1 - k].idx;
        if (is_before(step, 0, k) && step->arg[1 - k].kind == WEFT_ARG_INPUT && at < p->n_in &&
            weft_slot_is(&p->in[at], WEFT_DTYPE_F32, p->out[0].layout) &&
            weft_slot_same_dims(&p->in[at], &p->out[0]))
            return at;
    }
    return 0;
}

/* [lo, hi] if step s clips the value before it. */
static bool find_clip(const weft_step *step, uint32_t s, float *lo, float *hi)
{
    bool relu = step[s].op == WEFT_STEP_RELU;
    if ((!relu && step[s].op != WEFT_STEP_CLIP) || !is_before(step, s, 0))
        return false;
    for (uint32_t k = 1; k < step[s].n_args; k++)
        if (step[s].arg[k].kind != WEFT_ARG_NUMBER)
            return false;
    *lo = relu ? 0 : step[s].arg[1].number;
    *hi = relu ? INFINITY : step[s].arg[2].number;
    return *lo <= *hi;
}

/* Whether an element-wise program is faster than oneDNN's post-ops: for functions with a polynomial
 * and hard_swish, and for so few pixels that oneDNN's kernels unfold images. */
static bool gains(const pointwise_kernel *k, const weft_step *step, uint32_t n)
{
    for (uint32_t s = 0; s < n; s++)
        if ((step[s].op >= WEFT_STEP_SIGMOID && step[s].op <= WEFT_STEP_LOG) ||
            step[s].op == WEFT_STEP_HARD_SWISH)
            return true;
    return k->images * k->pixels <= FEW_PIXELS;
}

/* Sets the residual and the clip or, for any other epilogue, the program. *out_done: false if there
 * is no such program, or oneDNN is faster. */
static weft_err read_epilogue(weft_prep *p, pointwise_kernel *k, bool *out_done)
{
    const weft_attr *steps = weft_attrs_find(p->attrs, WEFT_ATTR_EPILOGUE);
    weft_step step[WEFT_STEPS_MAX];
    uint32_t n = 0;
    *out_done = !steps || steps->n == 0;
    if (*out_done || steps->kind != WEFT_KIND_STRS || steps->n > WEFT_STEPS_MAX)
        return WEFT_ERR_OK;
    WEFT_TRY(weft_steps_parse(steps->u.strs, steps->n, p->n_in, p->diag, p->where, step));
    *out_done = true;
    k->add = find_addend(p, step);
    n += k->add != 0;
    if (n < steps->n && find_clip(step, n, &k->lo, &k->hi))
        n++;
    if (n == steps->n)
        return WEFT_ERR_OK;
    *out_done = gains(k, step, steps->n);
    if (!*out_done)
        return WEFT_ERR_OK;
    k->add = 0;
    k->lo = -INFINITY;
    k->hi = INFINITY;
    WEFT_TRY(weft_cpu__ew_create(p, step, steps->n, true, &k->ew));
    *out_done = k->ew != NULL;
    return WEFT_ERR_OK;
}

static int64_t count_parts(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

/* Chunks of nearly equal size, whole blocks but for the last one; only the number of channels
 * decides, so that sums are added in one order at all batch sizes and numbers of threads. */
static void choose_chunk(pointwise_kernel *k)
{
    int64_t lanes = (int64_t)k->vec->lanes;
    k->n_chunk = count_parts(k->in, CHUNK_CHANNELS);
    k->chunk = count_parts(count_parts(k->in, k->n_chunk), lanes) * lanes;
    k->n_chunk = count_parts(k->in, k->chunk);
}

/* Pixels of a place: what is read and written fits the L2 cache, and all threads have work. An
 * element-wise program expands its operands for each place: places are larger then. Blocks of an
 * image have nearly the same size. */
static void choose_block(pointwise_kernel *k)
{
    int64_t room = k->ew ? PROGRAM_BYTES : BLOCK_BYTES;
    int64_t limit = k->ew ? PROGRAM_PIXELS : BLOCK_PIXELS;
    int64_t most = room / ((k->chunk + WEFT_VEC_PANEL) * (int64_t)sizeof(float));
    most = most < limit ? most : limit;
    most = most > TILE_PIXELS ? most / TILE_PIXELS * TILE_PIXELS : TILE_PIXELS;
    k->n_block = count_parts(k->pixels, most);
    if (k->threads > 1 && k->images * k->panels < TASKS_PER_THREAD * (int64_t)k->threads &&
        k->n_block < (int64_t)k->threads) {
        int64_t tiles = count_parts(k->pixels, TILE_PIXELS);
        k->n_block = tiles < (int64_t)k->threads ? tiles : (int64_t)k->threads;
    }
    k->block = count_parts(count_parts(k->pixels, k->n_block), STEP_PIXELS) * STEP_PIXELS;
    k->n_block = count_parts(k->pixels, k->block);
}

/* Roughly, the time in ns of all tasks: the thread with most of them, and what they read and
 * unfold. Every task reads its panels' weights and its places' values. */
static double task_ns(const pointwise_kernel *k, int64_t task_places, int64_t task_panels)
{
    int64_t places = k->images * k->n_block, threads = (int64_t)k->threads;
    int64_t place_tasks = count_parts(places, task_places),
            panel_tasks = count_parts(k->panels, task_panels);
    double column = (double)k->in * sizeof(float);
    double values = column * (double)(k->images * k->pixels) * (double)panel_tasks;
    double weights = column * (double)(k->panels * WEFT_VEC_PANEL) * (double)place_tasks;
    double busiest = (double)(count_parts(place_tasks * panel_tasks, threads) * task_panels) *
                     WEFT_VEC_PANEL * (double)(task_places * k->block);
    return busiest * 2 * (double)k->in / flops_per_ns +
           ((values + weights) / read_per_ns + (k->taps ? values / copied_per_ns : 0)) /
               (double)threads;
}

static void choose_tasks(pointwise_kernel *k)
{
    int64_t places = k->images * k->n_block;
    int64_t most = TASK_BYTES / (k->block * k->chunk * (int64_t)sizeof(float));
    most = most < 1 ? 1 : most < places ? most : places;
    k->task_places = 1;
    k->task_panels = 1;
    double least = task_ns(k, 1, 1);
    for (int64_t panel_tasks = 1; panel_tasks <= k->panels; panel_tasks++) {
        int64_t panels = count_parts(k->panels, panel_tasks);
        for (int64_t n = 1; n <= most; n++) {
            double ns = task_ns(k, n, panels);
            if (ns >= least)
                continue;
            least = ns;
            k->task_places = n;
            k->task_panels = panels;
        }
    }
    k->place_tasks = count_parts(places, k->task_places);
    k->panel_tasks = count_parts(k->panels, k->task_panels);
}

/* Weights [out][channels][taps] as [panels][tap][channel][32]. */
static void fill_taps(void *to, const void *weight, const weft_cpu_format *f)
{
    const float *w = weight;
    int64_t out = f->size[0], channels = f->size[1], taps = f->size[2];
    memset(to, 0, f->bytes);
    for (int64_t o = 0; o < out; o++) {
        float *panel = (float *)to + o / WEFT_VEC_PANEL * channels * taps * WEFT_VEC_PANEL;
        for (int64_t c = 0; c < channels; c++)
            for (int64_t t = 0; t < taps; t++)
                panel[(t * channels + c) * WEFT_VEC_PANEL + o % WEFT_VEC_PANEL] = *w++;
    }
}

static weft_err pack_weights(weft_prep *p, pointwise_kernel *k)
{
    int64_t out = p->out[0].tensor.dim[1], channels = p->in[0].tensor.dim[1];
    if (k->taps == 0)
        return weft_cpu__pack_panels(p, 1, 1, out, k->in, &k->pack);
    const weft_cpu_format f = {
        .fill = fill_taps,
        .bytes = (uint64_t)(k->panels * WEFT_VEC_PANEL * k->in) * sizeof(float),
        .size = {out, channels, k->taps},
    };
    return weft_cpu__pack_as(p, 1, &f, &k->pack);
}

/* false: the windows are too large. */
static bool set_unfolding(weft_prep *p, pointwise_kernel *k)
{
    const weft_tensor *x = &p->in[0].tensor;
    k->taps = k->window.kernel[0] * k->window.kernel[1];
    k->size[0] = x->dim[2];
    k->size[1] = x->dim[3];
    k->out_width = p->out[0].tensor.dim[3];
    if (k->taps > UNFOLD_BLOCKS_MAX / k->in_blocks)
        return false;
    k->in *= k->taps;
    k->in_blocks *= k->taps;
    return true;
}

static weft_err fill_pointwise(weft_prep *p, pointwise_kernel *k, bool unfolded, bool *out_done)
{
    const weft_tensor *x = &p->in[0].tensor, *y = &p->out[0].tensor;
    int64_t lanes = (int64_t)k->vec->lanes;
    k->images = x->dim[0];
    k->pixels = weft_slot_count(&p->out[0], 2, x->rank);
    k->in = x->dim[1];
    k->in_blocks = (k->in + lanes - 1) / lanes;
    k->out_blocks = (y->dim[1] + lanes - 1) / lanes;
    k->unused = k->out_blocks * lanes - y->dim[1];
    k->panels = (y->dim[1] + WEFT_VEC_PANEL - 1) / WEFT_VEC_PANEL;
    if (unfolded && !set_unfolding(p, k))
        return WEFT_ERR_UNSUP;
    k->lo = -INFINITY;
    k->hi = INFINITY;
    k->bias = weft_cpu__calloc((size_t)(k->panels * WEFT_VEC_PANEL), sizeof *k->bias);
    if (!k->bias)
        return WEFT_ERR_NOMEM;
    for (int64_t c = 0; p->n_in > 2 && p->in[2].present && c < y->dim[1]; c++)
        k->bias[c] = ((const float *)p->in[2].tensor.data)[c];
    WEFT_TRY(read_epilogue(p, k, out_done));
    choose_chunk(k);
    choose_block(k);
    choose_tasks(k);
    if (unfolded) {
        k->place_floats = k->block * k->chunk;
        p->scratch_bytes =
            (uint64_t)(k->threads * k->task_places * k->place_floats) * sizeof(float);
    }
    return *out_done ? pack_weights(p, k) : WEFT_ERR_OK;
}

weft_err weft_cpu__prepare_pointwise(weft_prep *p)
{
    bool done = false, unfolded = false;
    weft_cpu_window window;
    if (!is_pointwise(p, &window, &unfolded))
        return WEFT_ERR_OK;
    pointwise_kernel *k = weft_cpu__calloc(1, sizeof *k);
    if (!k)
        return WEFT_ERR_NOMEM;
    k->vec = weft_cpu__of(p)->vec;
    k->engine = p->engine;
    k->threads = weft_cpu__of(p)->threads;
    k->n_in = p->n_in;
    k->window = window;
    weft_err err = fill_pointwise(p, k, unfolded, &done);
    if (err != WEFT_ERR_OK || !done) {
        destroy_pointwise(k);
        p->scratch_bytes = 0;
        return err == WEFT_ERR_UNSUP ? WEFT_ERR_OK : err;
    }
    p->run = run_pointwise;
    p->state = k;
    p->destroy = destroy_pointwise;
    p->variant = unfolded ? k->ew ? "pointwise:unfolded+ew" : "pointwise:unfolded"
                 : k->ew  ? "pointwise+ew"
                          : "pointwise";
    return WEFT_ERR_OK;
}
