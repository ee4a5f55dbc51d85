/* NaN that kernels lose.
 *
 * oneDNN computes some post-ops (relu, clip, exp, minimum, maximum) and max pooling by instructions
 * that return the other operand if one is NaN; nothing as fast keeps NaN. But these instructions
 * raise the sticky flag of the floating-point unit for an invalid operation then. A kernel that
 * contains them clears the flag (weft_team_clear_invalid), runs, and calls weft_cpu__lose_nan if
 * the flag is raised. At the end of the run the session asks, and repeats the run with kernels that
 * are prepared with weft_prep.keep_nan.
 *
 * Unused lanes of a vector may hold anything and raise the flag, too. Therefore the kernel's
 * operands are looked at: sums of products of two tame numbers are finite. */
#include "runtime/cpu/cpu_int.h"

static _Thread_local bool lost;

void weft_cpu__tame_init(const weft_prep *p, weft_cpu_tame *out)
{
    *out = (weft_cpu_tame){.always = false};
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

/* By the bits of the numbers. */
static bool are_tame(const float *x, int64_t n)
{
    static const float most = WEFT_TAME_MOST;
    uint32_t limit, bits, above = 0;
    memcpy(&limit, &most, sizeof limit);
    for (int64_t i = 0; i < n; i++) {
        memcpy(&bits, &x[i], sizeof bits);
        above |= (bits & 0x7fffffff) > limit;
    }
    return !above;
}

static bool operands_are_tame(weft_cpu_tame *t, void *const *arg)
{
    bool weights = true;
    for (uint32_t i = 0; i < t->n && !t->always; i++) {
        if (t->at[i].weight && t->weights_tame)
            continue;
        if (!are_tame(arg[t->at[i].arg], t->at[i].count)) {
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

bool weft_cpu__has_lost_nan(void)
{
    return lost;
}

void weft_cpu__forget_lost_nan(void)
{
    lost = false;
}
