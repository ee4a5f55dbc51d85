/* The best option of a model on each MIG profile of a fleet row. */
#include "scheduler/mig/mig.h"

weft_mig_best weft_mig__best(const weft_builder *builder, const weft_mig_shape *shape,
                             const weft_fleet_device *row, uint32_t demand, uint32_t procs)
{
    weft_mig_best best = {{NULL}, {0}};
    for (uint32_t i = 0; i < builder->n_option[demand]; i++) {
        const weft_option *o = &builder->option[demand][i];
        if (o->row != row || o->spec.kind != WEFT_SLICE_MIG || o->spec.percent != 0 ||
            (procs && o->point->procs != procs))
            continue;
        size_t p = (size_t)(o->spec.mig - shape->type->mig);
        if (p < shape->n && o->peak_per_s > best.per_s[p]) {
            best.per_s[p] = o->peak_per_s;
            best.option[p] = o;
        }
    }
    return best;
}
