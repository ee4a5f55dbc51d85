/* Shared by the files of the plan builder: the device pool, and loads of slices. */
#ifndef WEFT_SCHEDULER_BUILDER_BUILDER_INT_H
#define WEFT_SCHEDULER_BUILDER_BUILDER_INT_H

#include "scheduler/builder/builder.h"

/* -- Device pool (device_pool.c) -------------------------------------------------------------- */

/* Makes builder->pool, empty. A device is removed before what it has free changes, and inserted
 * again after. */
void weft_pool__init(weft_builder *builder);
void weft_pool__insert(weft_builder *builder, uint32_t device);
void weft_pool__remove(weft_builder *builder, uint32_t device);
/* The same for a MIG instance that is split into shares. */
void weft_pool__insert_instance(weft_builder *builder, uint32_t device, uint32_t start);
void weft_pool__remove_instance(weft_builder *builder, uint32_t device, uint32_t start);
/* The open device for one more slice of the option, by best fit (`best`) or first fit, among those
 * that `fits` accepts; UINT32_MAX: none. *start: for a share of an instance the start slot of an
 * instance with room; -1: an instance has to be created. */
typedef bool (*weft_pool_fits)(void *user, uint32_t device, int32_t start);
uint32_t weft_pool__find(const weft_builder *builder, const weft_option *option, bool best,
                         weft_pool_fits fits, void *user, int32_t *start);
/* Sum of the execution times of the members of a slice, us. */
double weft_builder__cycle_us(const weft_builder *builder, const weft_builder_slice *slice);
/* Capacity and latency of a member of a slice with this cycle. */
weft_slo_load weft_builder__load(const weft_builder *builder, const weft_builder_slice *slice,
                                 const weft_member *member, double cycle_us);
/* Whether every member of the slice, and of the slices that it slows down, is served at its rate
 * and within its SLO. */
bool weft_builder__keeps_slos(const weft_builder *builder, uint32_t slice);

/* -- Members and loads (plan_builder.c, slice_load.c) ----------------------------------------- */

/* Memory of all processes of the members, saturating. */
uint64_t weft_builder__sum_mem(const weft_member *member, uint32_t n);
/* Replaces the members of a slice, and updates the memory taken on its device. */
void weft_builder__set_members(weft_builder *builder, weft_builder_slice *slice,
                               const weft_member *member, uint32_t n);
/* Whether the device has room for a slice of the option at `start` (-1: anywhere); *out: the start
 * slot or the index of the CPU slice, -1 for other kinds. */
bool weft_builder__fits(const weft_builder *builder, const weft_builder_device *device,
                        const weft_option *option, int32_t start, int32_t *out);

#endif
