/* NaN and infinities that kernels lose or spread.
 *
 * oneDNN computes some post-ops (relu, clip, exp, minimum, maximum) and max pooling by instructions
 * that return the other operand if one is NaN; nothing as fast keeps NaN. But these instructions
 * raise the sticky flag of the floating-point unit for an invalid operation then. A kernel that
 * contains them clears the flag (weft_team_clear_invalid), runs, and calls weft_cpu__lose_nan if
 * the flag is raised. At the end of the run the session asks, and repeats the run with kernels that
 * are prepared with weft_prep.keep_nan.
 *
 * Unused lanes of a vector may hold anything and raise the flag, too. Therefore the kernel's
 * operands are looked at: sums of products of two tame numbers are finite.
 *
 * Winograd's convolutions compute all results of a tile from sums over all its inputs, which cancel
 * in exact arithmetic. NaN and infinities do not cancel, and large numbers leave errors: one such
 * pixel reaches results that do not depend on it. The input is looked at before each run
 * (weft_cpu__need_tame), which takes 1 % of the convolution's time; other algorithms are used for
 * weights that are not tame.
 *
 * The lanes after the last channel of a block are results with weights of zero: an infinity makes
 * them NaN, which the next convolution would add to all its results. It raises the flag, and the
 * repeated run clears these lanes.
 *
 * oneDNN's max pooling begins with the least finite number, which is then the maximum of a window
 * of -inf. Its result is looked at. */
#include "runtime/cpu/cpu_int.h"

#include <stdatomic.h>
#include <string.h>

static _Thread_local bool lost;

void weft_cpu__tame_init(const weft_prep *p, weft_cpu_tame *out)
{
    *out = (weft_cpu_tame){.cpu = weft_cpu__of(p)};
    for (uint32_t i = 0; i < p->n_in; i++) {
        weft_dtype dtype = p->in[i].tensor.dtype;
        if (!p->in[i].present || (dtype != WEFT_DTYPE_F32 && !weft_dtype_is_float(dtype)))
            continue;
        if (dtype != WEFT_DTYPE_F32 || out->n == WEFT_TAME_OPERANDS) {
            out->always = true;
            return;
        }
        out->at[out->n].arg = i;
        out->at[out->n].weight = p->in[i].weight != 0;
        out->at[out->n++].count = weft_cpu__slot_stored(&p->in[i]);
    }
}

enum { CHUNK = 4096 };
static const double chunk_ns = 100;

typedef struct look {
    const weft_cpu_vec *vec;
    const float *x;
    int64_t n;
    atomic_bool wild;
} look;

static void look_at_chunks(void *cx, int64_t begin, int64_t end)
{
    look *l = cx;
    int64_t from = begin * CHUNK, to = end * CHUNK < l->n ? end * CHUNK : l->n;
    if (!l->vec->are_tame(l->x + from, (size_t)(to - from)))
        atomic_store_explicit(&l->wild, true, memory_order_relaxed);
}

bool weft_cpu__are_tame(const weft_cpu *cpu, const float *x, int64_t n)
{
    look l = {.vec = cpu->vec, .x = x, .n = n};
    weft_par_for(cpu->threads, (n + CHUNK - 1) / CHUNK, chunk_ns, look_at_chunks, &l);
    return !l.wild;
}

static bool operands_are_tame(weft_cpu_tame *t, void *const *arg)
{
    bool weights = true;
    for (uint32_t i = 0; i < t->n && !t->always; i++) {
        if (t->at[i].weight && t->weights_tame)
            continue;
        if (!weft_cpu__are_tame(t->cpu, arg[t->at[i].arg], t->at[i].count)) {
            if (!t->at[i].weight)
                return false;
            t->always = true; /* a weight with NaN or infinities */
        }
        weights = weights && !t->always;
    }
    t->weights_tame = weights;
    return !t->always;
}

void weft_cpu__lose_nan(weft_cpu_tame *tame, void *const *arg)
{
    lost = lost || !operands_are_tame(tame, arg);
}

void weft_cpu__need_tame(const weft_cpu *cpu, const float *x, int64_t n)
{
    lost = lost || !weft_cpu__are_tame(cpu, x, n);
}

bool weft_cpu__has_lost_nan(void)
{
    return lost;
}

void weft_cpu__forget_lost_nan(void)
{
    lost = false;
}

weft_cpu_lanes weft_cpu__lanes(const weft_slot *s)
{
    const weft_tensor *t = &s->tensor;
    int64_t block = weft_layout_block(s->layout);
    if (block == 1 || t->rank < 2 || t->dim[1] % block == 0)
        return (weft_cpu_lanes){0};
    int64_t plane = weft_slot_count(s, 2, t->rank) * block;
    return (weft_cpu_lanes){.unused = block - t->dim[1] % block,
                            .block = block,
                            .plane = plane,
                            .image = plane * ((t->dim[1] + block - 1) / block),
                            .all = weft_cpu__slot_stored(s),
                            .size = weft_dtype_size((weft_dtype)t->dtype)};
}

void weft_cpu__clear_lanes(const weft_cpu_lanes *l, void *value)
{
    char *at = value;
    if (l->unused == 0)
        return;
    for (int64_t end = l->image; end <= l->all; end += l->image)
        for (int64_t i = end - l->plane + l->block; i <= end; i += l->block)
            memset(at + (size_t)(i - l->unused) * l->size, 0, (size_t)l->unused * l->size);
}
