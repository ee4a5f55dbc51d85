/* The table of models, and the choice of one for a kernel. */
#include "estimator/models/models.h"

#include "estimator/device/device.h"

#include <math.h>
#include <string.h>

static const weft_model *const model_table[] = {
#define MODEL(name) &weft_model_##name,
#include "estimator/models/models.def"
#undef MODEL
};

enum { MODEL_COUNT = sizeof model_table / sizeof model_table[0] };

static bool is_number(double x)
{
    return isfinite(x) && x >= 0;
}

static weft_err check_kernel(const weft_kernel *k, weft_diag *diag)
{
    if (is_number(k->work.flops) && is_number(k->work.bytes_read) &&
        is_number(k->work.bytes_written) && is_number(k->work.weight_bytes) &&
        is_number(k->batch) && is_number(k->m) && is_number(k->n) && is_number(k->k) &&
        is_number(k->flop_saving))
        return WEFT_ERR_OK;
    return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                           "kernel: sizes and work must be finite and not negative");
}

const char *weft_model_name_at(size_t i)
{
    return i < MODEL_COUNT ? model_table[i]->name : NULL;
}

static const weft_model *choose_model(const weft_kernel *kernel, const weft_slice *slice,
                                      bool exact_f32, const char *name)
{
    for (size_t i = 0; i < MODEL_COUNT; i++)
        if ((!name || strcmp(name, model_table[i]->name) == 0) &&
            model_table[i]->supports(kernel, slice, exact_f32))
            return model_table[i];
    return NULL;
}

weft_err weft_model__predict(const weft_kernel *kernel, const weft_slice *slice,
                             const weft_estimate_options *options, weft_diag *diag,
                             weft_timing *out, const weft_model **out_model)
{
    bool exact_f32 = options && options->exact_f32;
    WEFT_TRY(check_kernel(kernel, diag));
    const char *name = options ? options->model : NULL;
    const weft_model *model = choose_model(kernel, slice, exact_f32, name);
    if (!model && name)
        return weft_diag_error(diag, WEFT_ERR_UNSUP, (weft_where){.item = slice->gpu->name},
                               "model %s does not support kernels of kind %s in %s", name,
                               weft_kernel_kind_name(kernel->kind), weft_dtype_name(kernel->dtype));
    if (!model)
        return weft_diag_error(diag, WEFT_ERR_UNSUP, (weft_where){.item = slice->gpu->name},
                               "no model supports kernels of kind %s in %s",
                               weft_kernel_kind_name(kernel->kind), weft_dtype_name(kernel->dtype));
    weft_timing t = model->predict(kernel, slice, exact_f32);
    t.time_us += weft_traffic__staging_us(kernel, slice);
    if (slice->gpu->is_cpu)
        weft_band__cpu(slice->gpu, &t);
    else if (!(t.edge[1] > 0))
        weft_band__analytic(slice->gpu, &t);
    if (!isfinite(t.time_us) || !(t.time_us > 0))
        return weft_diag_error(diag, WEFT_ERR_BUG, (weft_where){.item = model->name},
                               "the predicted time is %g us", t.time_us);
    *out = t;
    *out_model = model;
    return WEFT_ERR_OK;
}
