/* NaN that kernels lose.
 *
 * oneDNN computes some post-ops (relu, clip, exp, minimum, maximum) and max pooling by instructions
 * that return the other operand if one is NaN; nothing as fast keeps NaN. But these instructions
 * raise the sticky flag of the floating-point unit for an invalid operation then. A kernel that
 * contains them clears the flag (weft_team_clear_invalid), runs, and calls weft_cpu__lose_nan if
 * the flag is raised. At the end of the run the session asks, and repeats the run with kernels that
 * are prepared with weft_prep.keep_nan. */
#include "runtime/cpu/cpu_int.h"

static _Thread_local bool lost;

void weft_cpu__lose_nan(void)
{
    lost = true;
}

bool weft_cpu__has_lost_nan(void)
{
    return lost;
}

void weft_cpu__forget_lost_nan(void)
{
    lost = false;
}
