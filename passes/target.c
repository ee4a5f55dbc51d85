/* What the name of a target tells. */
#include "passes/passes.h"

#include <string.h>

bool weft_target_is_gpu(const char *target)
{
    return target && strncmp(target, "sm_", 3) == 0;
}
