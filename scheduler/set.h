/* Sets: the models that are compiled or planned together, as set files and model repositories name
 * them. scheduler.h includes this header. */
#ifndef WEFT_SCHEDULER_SET_H
#define WEFT_SCHEDULER_SET_H

#include "base/arena.h"
#include "base/diag.h"
#include "base/dtype.h"

#include <stdbool.h>

/* What can fail as a whole, from small to large. */
typedef enum weft_domain {
    WEFT_DOMAIN_NONE,
    WEFT_DOMAIN_NODE,
    WEFT_DOMAIN_RACK,
    WEFT_DOMAIN_ZONE
} weft_domain;

enum { WEFT_DOMAINS = WEFT_DOMAIN_ZONE + 1 };

const char *weft_domain_name(weft_domain domain); /* "none", "node", "rack", "zone" */
bool weft_domain_parse(const char *text, weft_domain *out);

typedef struct weft_set_dim {
    const char *name;
    int64_t lo, hi;
} weft_set_dim;

typedef struct weft_set_value {
    const char *name; /* of an input */
    const double *x;
    size_t n;
    bool is_list; /* else one number */
} weft_set_value;

/* An input or output as clients are to see it. A dim of -1 varies. */
typedef struct weft_set_port {
    const char *name;
    weft_dtype dtype;
    const int64_t *dim; /* the batch's among them */
    size_t n_dim;
    const int64_t *inner_dim; /* as the file has it, if that is another shape; NULL: as `dim` */
    size_t n_inner_dim;
    const char *format;       /* of an input that is an image: "NCHW" or "NHWC"; NULL: not given */
    const char *label_file;   /* names of an output's classes, in the model's folder; NULL: none */
    const char *const *label; /* from there, by class; "": none */
    size_t n_label;
    uint32_t line;
} weft_set_port;

/* What a model repository's configuration says of a model. */
typedef struct weft_set_config {
    const char *file; /* for messages */
    const weft_set_port *input, *output;
    size_t n_input, n_output; /* 0: not listed */
    int64_t max_batch;        /* rows of a request; 0: no batches */
    const int64_t *batch;     /* sizes to plan for, ascending; n_batch 0: the default ones */
    size_t n_batch;
} weft_set_config;

/* A model of an ensemble, and the ensemble's tensors that are its inputs and outputs. */
typedef struct weft_set_tensor {
    const char *name; /* of the model's input or output */
    const char *of;   /* tensor of the ensemble */
} weft_set_tensor;

typedef struct weft_set_step {
    const struct weft_set_model *model; /* with a file */
    const weft_set_tensor *input, *output;
    size_t n_input, n_output;
} weft_set_step;

/* How the answers of the heads of a model become one. */
typedef enum weft_combine {
    WEFT_COMBINE_NONE,
    WEFT_COMBINE_MEAN,
    WEFT_COMBINE_SUM,
    WEFT_COMBINE_MAX,
    WEFT_COMBINE_MIN,
    WEFT_COMBINE_SOFTMAX, /* the mean of their softmax */
    WEFT_COMBINE_VOTE,    /* the share of the heads whose largest element it is */
    WEFT_COMBINE_KINDS
} weft_combine;

typedef struct weft_set_model {
    const char *name;
    /* Of a repository with several versions: the name and the version that clients ask for. NULL:
     * `name`, and whichever version the bundle is loaded as. */
    const char *serves, *version;
    const char *file;    /* ONNX file, resolved against the set file's folder; NULL: none */
    const char *profile; /* CSV file with measurements, resolved likewise; NULL: none */
    double slo_us;       /* p99 latency target; 0: none */
    double rate_per_s;   /* expected requests per second; 0: not given */
    bool admit_by_slo;   /* the server refuses requests that it would answer after the SLO */
    weft_domain spread;  /* it is to be in two of them; NONE: anywhere */
    const weft_set_dim *dim;
    size_t n_dim;
    const weft_set_value *value;
    size_t n_value;
    /* Models of the set with files, in place of a file: the model answers what they answer for one
     * input. */
    const struct weft_set_model *const *head;
    size_t n_head;
    weft_combine combine; /* of the heads; NONE: every one has outputs of its own */
    /* Models that run one after the other, in place of a file: each step has its inputs from the
     * ensemble's and from steps before. */
    const weft_set_step *step;
    size_t n_step;
    const weft_set_config *config; /* NULL: none */
    uint32_t line;                 /* in the set file, for messages */
    const char *const *adapter;    /* folders of adapters (LoRA), which may have wildcards */
    size_t n_adapter;
    const char *const *adapter_module; /* modules that adapters may change, by the ends of paths */
    size_t n_adapter_module;
} weft_set_model;

typedef struct weft_set_variant {
    const char *model;
    double accuracy;
} weft_set_variant;

typedef struct weft_set_app {
    const char *name;
    double rate_per_s; /* requests that any variant may serve, beside the models' own; 0: none */
    double slo_us;     /* also holds for the variants; 0: none */
    double accuracy;   /* least mean accuracy, weighted by requests; 0: any */
    const weft_set_variant *variant;
    size_t n_variant;
} weft_set_app;

typedef struct weft_set {
    const char *file;
    const char *profile_layout; /* "weft" or "parvagpu" */
    const weft_set_model *model;
    size_t n_model;
    const weft_set_app *app;
    size_t n_app;
} weft_set;

/* Reads a set file (YAML, docs/set-file.md), or a folder that is a model repository of Triton
 * (docs/triton.md). INPUT with file and line: unknown keys, duplicate or unusable names, wrong
 * units. The result lives in `arena`. */
WEFT_MUST_USE weft_err weft_set_load(const char *path, weft_arena *arena, weft_diag *diag,
                                     weft_set *out);
enum { WEFT_SET_NAME_MAX = 128, WEFT_FAMILY_NAME_MAX = 1 << 13 }; /* bytes */
/* Whether a name is safe in URLs, file names and labels: [A-Za-z0-9][A-Za-z0-9_.-]*. */
bool weft_set_name_valid(const char *name);

#endif
