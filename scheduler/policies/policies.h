/* Door of policies/: the rows of policies.def. */
#ifndef WEFT_SCHEDULER_POLICIES_POLICIES_H
#define WEFT_SCHEDULER_POLICIES_POLICIES_H

#include "scheduler/scheduler.h"

#define POLICY(name) extern const weft_policy weft_policy_##name;
#include "scheduler/policies/policies.def"
#undef POLICY

#endif
