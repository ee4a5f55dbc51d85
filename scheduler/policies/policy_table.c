/* The table of policies. */
#include "scheduler/policies/policies.h"

#include <string.h>

static const weft_policy *const policy_table[] = {
#define POLICY(name) &weft_policy_##name,
#include "scheduler/policies/policies.def"
#undef POLICY
};

enum { POLICY_COUNT = sizeof policy_table / sizeof policy_table[0] };

const weft_policy *weft_policy_at(size_t i)
{
    return i < POLICY_COUNT ? policy_table[i] : NULL;
}

const weft_policy *weft_policy_find(const char *name)
{
    for (size_t i = 0; i < POLICY_COUNT; i++) {
        const weft_policy *row = policy_table[i];
        if (strcmp(row->name, name) == 0 || (row->alias && strcmp(row->alias, name) == 0))
            return row;
    }
    return NULL;
}
