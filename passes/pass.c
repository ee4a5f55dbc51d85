/* The tables of passes and pipelines. */
#include "passes/passes_int.h"

#include <string.h>

#define PASS(file) extern const weft_pass weft_pass_##file;
#include "passes/passes.def"
#undef PASS

static const weft_pass *const passes[] = {
#define PASS(file) &weft_pass_##file,
#include "passes/passes.def"
#undef PASS
    NULL};

const weft_pass *weft_pass_at(size_t i)
{
    return i < sizeof passes / sizeof passes[0] ? passes[i] : NULL;
}

const weft_pass *weft_pass_find(const char *name)
{
    for (size_t i = 0; passes[i]; i++)
        if (strcmp(passes[i]->name, name) == 0)
            return passes[i];
    return NULL;
}

const char *weft_pass_name(const weft_pass *pass)
{
    return pass->name;
}

const char *weft_pass_brief(const weft_pass *pass)
{
    return pass->brief;
}

/* Each list takes the rows of its own pipeline. */
#define STEP(pipeline, file) STEP_##pipeline(file)

static const weft_pass *const pipeline_cpu[] = {
#define STEP_cpu(file) &weft_pass_##file,
#define STEP_gpu(file)
#define STEP_framework(file)
#include "passes/pipelines.def"
#undef STEP_cpu
#undef STEP_gpu
#undef STEP_framework
};

static const weft_pass *const pipeline_gpu[] = {
#define STEP_cpu(file)
#define STEP_gpu(file) &weft_pass_##file,
#define STEP_framework(file)
#include "passes/pipelines.def"
#undef STEP_cpu
#undef STEP_gpu
#undef STEP_framework
};

static const weft_pass *const pipeline_framework[] = {
#define STEP_cpu(file)
#define STEP_gpu(file)
#define STEP_framework(file) &weft_pass_##file,
#include "passes/pipelines.def"
#undef STEP_cpu
#undef STEP_gpu
#undef STEP_framework
};

#undef STEP

static const struct {
    const char *name;
    const weft_pass *const *pass;
    size_t n;
} pipelines[] = {
    {"cpu", pipeline_cpu, sizeof pipeline_cpu / sizeof pipeline_cpu[0]},
    {"gpu", pipeline_gpu, sizeof pipeline_gpu / sizeof pipeline_gpu[0]},
    {"framework", pipeline_framework, sizeof pipeline_framework / sizeof pipeline_framework[0]},
};

const weft_pass *const *weft_pipeline(const char *name, size_t *out_n)
{
    for (size_t i = 0; i < sizeof pipelines / sizeof pipelines[0]; i++) {
        if (strcmp(name, pipelines[i].name) != 0)
            continue;
        *out_n = pipelines[i].n;
        return pipelines[i].pass;
    }
    return NULL;
}

const weft_pass *const *weft_pipeline_for(const char *target, size_t *out_n)
{
    return weft_pipeline(weft_target_is_gpu(target) ? "gpu" : "cpu", out_n);
}
