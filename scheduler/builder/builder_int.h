/* Shared by the files of the plan builder. */
#ifndef WEFT_SCHEDULER_BUILDER_BUILDER_INT_H
#define WEFT_SCHEDULER_BUILDER_BUILDER_INT_H

#include "scheduler/builder/builder.h"

/* -- Devices by what is free on them (device_pool.c) ------------------------------------------- */

/* A new pool for the builder; devices enter and leave it with each change. */
void weft_pool__init(weft_builder *builder);
void weft_pool__insert(weft_builder *builder, uint32_t device);
void weft_pool__remove(weft_builder *builder, uint32_t device);
/* Shares of MIG instances. */
void weft_pool__insert_instance(weft_builder *builder, uint32_t device, uint32_t start);
void weft_pool__remove_instance(weft_builder *builder, uint32_t device, uint32_t start);
/* The device with room for one more slice of the option: least left (best) or the first one, and
 * of a share the instance (*start; -1: to be made). UINT32_MAX: none is open. `fits` has the last
 * word. */
typedef bool (*weft_pool_fits)(void *user, uint32_t device, int32_t start);
uint32_t weft_pool__find(const weft_builder *builder, const weft_option *option, bool best,
                         weft_pool_fits fits, void *user, int32_t *start);
/* First free start slot of a profile, -1: none. */
int32_t weft_pool__mig_start(const weft_mig_profile *mig, uint32_t taken);
/* Sum of the execution times of the members of a slice, us. */
double weft_builder__cycle_us(const weft_builder *builder, const weft_builder_slice *slice);
/* Capacity and latency of a member, whose slice has that cycle. */
weft_slo_load weft_builder__load(const weft_builder *builder, const weft_builder_slice *slice,
                                 const weft_member *member, double cycle_us);
/* Whether every member of a slice, and of its neighbours, keeps its rate and its SLO. */
bool weft_builder__keeps_slos(const weft_builder *builder, uint32_t slice);
/* Bytes of all processes of the members together. */
uint64_t weft_builder__sum_mem(const weft_member *member, uint32_t n);
/* Replaces the members of a slice, and counts their memory anew. */
void weft_builder__set_members(weft_builder *builder, weft_builder_slice *slice,
                               const weft_member *member, uint32_t n);
/* Whether the device has room for the option at that start (-1: any); *out: where. */
bool weft_builder__fits(const weft_builder *builder, const weft_builder_device *device,
                        const weft_option *option, int32_t start, int32_t *out);

#endif
