/* The table of merging strategies. */
#include "passes/merge/merge_int.h"

#include <string.h>

static const weft_merge_strategy *const strategies[] = {
#define S(file) &weft_merge_strategy_##file,
#include "passes/merge/strategies.def"
#undef S
    NULL};

const weft_merge_strategy *weft_merge_strategy_at(size_t i)
{
    return i < sizeof strategies / sizeof strategies[0] ? strategies[i] : NULL;
}

const weft_merge_strategy *weft_merge_strategy_find(const char *name)
{
    for (size_t i = 0; strategies[i]; i++)
        if (strcmp(strategies[i]->name, name) == 0)
            return strategies[i];
    return NULL;
}

const char *weft_merge_strategy_name(const weft_merge_strategy *strategy)
{
    return strategy->name;
}

const char *weft_merge_strategy_brief(const weft_merge_strategy *strategy)
{
    return strategy->brief;
}
