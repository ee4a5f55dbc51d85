/* Slices of CPUs for policies whose papers know GPUs only (core_slices.c). */
#ifndef WEFT_SCHEDULER_POLICIES_CORE_SLICES_H
#define WEFT_SCHEDULER_POLICIES_CORE_SLICES_H

#include "scheduler/policies/policies_int.h"

/* Whether all devices of the fleet are CPUs. */
bool weft_cores__only(const weft_fleet *fleet);

/* The sizes of a row's slices as MIG profiles of one device, which fit as often as the builder has
 * free slices, but for `reserve` of them. */
weft_mig_shape weft_cores__shape(const weft_builder *builder, const weft_fleet_device *row,
                                 uint32_t reserve);
/* The option of a model with the highest capacity on each size. */
weft_mig_best weft_cores__best(const weft_builder *builder, const weft_mig_shape *shape,
                               const weft_fleet_device *row, uint32_t demand);

/* What is left of a policy on slices that cannot be cut. */
typedef struct weft_cores_rule {
    bool in_turn; /* models share slices in time */
    double (*weight)(const weft_builder *builder,
                     uint32_t demand); /* order of models, less first */
    /* Whether option a is preferred to b for the rest of the model's rate. */
    bool (*is_better)(const weft_builder *builder, uint32_t demand, const weft_option *a,
                      const weft_option *b, double rest_per_s);
} weft_cores_rule;

/* Places all demands of the builder, which is empty. */
WEFT_MUST_USE weft_err weft_cores__place(weft_builder *builder, const weft_cores_rule *rule);

#endif
