/* config.pbtxt of a model of a Triton repository. */
#ifndef WEFT_SCHEDULER_INPUT_MODEL_CONFIG_H
#define WEFT_SCHEDULER_INPUT_MODEL_CONFIG_H

#include "scheduler/scheduler.h"

/* A tensor of an ensemble and the port of a step's model that it is. */
typedef struct weft_model_tensor {
    const char *port, *tensor;
} weft_model_tensor;

typedef struct weft_model_step {
    const char *model;
    int64_t version; /* -1: the latest */
    const weft_model_tensor *input, *output;
    size_t n_input, n_output;
    uint32_t line;
} weft_model_step;

typedef enum weft_version_policy {
    WEFT_VERSIONS_LATEST,
    WEFT_VERSIONS_ALL,
    WEFT_VERSIONS_SPECIFIC
} weft_version_policy;

/* Zeroed: the configuration of a model without the file. */
typedef struct weft_model_config {
    const char *name, *platform, *backend; /* NULL: not given */
    const char *model_file;                /* in a version's folder; NULL: "model.onnx" */
    weft_set_config ports;
    weft_version_policy policy;
    int64_t n_latest;       /* 0: 1 */
    const int64_t *version; /* SPECIFIC */
    size_t n_version;
    bool is_ensemble;
    const weft_model_step *step;
    size_t n_step;
} weft_model_config;

/* Reads the text of such a file. INPUT with the line: wrong syntax, a value of the wrong kind. What
 * has no counterpart here is named in warnings. The result lives in `arena`. */
WEFT_MUST_USE weft_err weft_set__parse_config(const char *text, size_t len, const char *file,
                                              weft_arena *arena, weft_diag *diag,
                                              weft_model_config *out);

#endif
