/* What the files of api/ share: handles, and errors from diagnostics.
 *
 * The public handles are called weft_bundle and weft_session, as the types of ir/ and runtime/ that
 * they wrap. Inside api/ the public ones are api_bundle and api_session. */
#ifndef WEFT_API_API_INT_H
#define WEFT_API_API_INT_H

#define weft_bundle  api_bundle
#define weft_session api_session
#include "include/weft/weft.h"
#undef weft_bundle
#undef weft_session

#include "runtime/runtime.h"

#include <pthread.h>
#include <stdatomic.h>

struct api_bundle {
    _Atomic uint32_t users; /* the handle itself, and each session */
    weft_bundle *bundle;
    weft_engine_options options;
    uint32_t *cpu; /* owned copies of texts and lists in `options` */
    char *driver;
    pthread_mutex_t lock;         /* of `engine`, and of opening and closing its sessions */
    weft_engine *engine;          /* opened by the first session */
    struct weft_model_info *info; /* of each model */
    void *info_memory;
};

/* One model of a session. */
typedef struct api_part {
    const weft_bundle_program *program;
    uint32_t model;         /* index in the bundle */
    weft_session *session;  /* NULL: not opened yet */
    uint32_t in_at, out_at; /* its first input and output among those of the session */
} api_part;

typedef struct api_job api_job;

struct api_session {
    api_bundle *bundle;
    api_part *part;
    uint32_t n_part;
    /* The joint program; NULL: none. Input k of it is input joint_in[k] of this session, output k
     * output joint_out[k]; UINT32_MAX: of a model that is not in this session, whose inputs are
     * empty. */
    weft_session *joint;
    uint32_t *joint_in, *joint_out;
    weft_tensor *joint_tensor; /* inputs, then outputs of the joint program */
    weft_tensor_info *input, *output;
    uint32_t n_input, n_output;
    weft_tensor *in, *out;
    weft_kernel_info *kernel;
    weft_diag *diag;
    pthread_mutex_t lock; /* held by the call that uses the session */

    pthread_mutex_t queue_lock; /* of what follows */
    pthread_cond_t changed;
    pthread_t thread;
    bool has_thread, is_stopping, is_busy;
    api_job *first, *last;
};

/* -- Errors ----------------------------------------------------------------------------------- */

/* Fills *error (may be NULL) from the messages of `diag` (may be NULL) and returns the status of
 * `err`. */
weft_status weft_embed__fail(weft_error *error, weft_err err, const weft_diag *diag);
weft_status weft_embed__say(weft_error *error, weft_status status, const char *fmt, ...)
    WEFT_PRINTF(3, 4);

/* -- Parts ------------------------------------------------------------------------------------ */

/* Makes descriptions of the bundle's models. NOMEM. */
WEFT_MUST_USE weft_err weft_embed__describe(api_bundle *b);
void weft_embed__release(api_bundle *b);

/* Opens the models that run without the joint program. The session is locked. */
WEFT_MUST_USE weft_err weft_embed__open_parts(api_session *s);
/* Copies the inputs' descriptions to s->in, after checks. The session is locked. */
weft_status weft_embed__take_inputs(api_session *s, const weft_array *in, uint32_t n_in,
                                    weft_error *error);
/* Part of the session that runs model `model` of the bundle; UINT32_MAX: none. */
uint32_t weft_embed__part_of(const api_session *s, uint32_t model);
/* Finds the joint program that runs the session's models, and opens it. */
WEFT_MUST_USE weft_err weft_embed__open_joint(api_session *s);
void weft_embed__disconnect(api_session *s); /* frees the connections with the joint program */
/* Whether the joint program is to run on s->in. */
bool weft_embed__is_joint(const api_session *s);
/* Inputs of the joint program, from s->in. */
void weft_embed__joint_inputs(api_session *s);
/* Ends all runs and the thread. */
void weft_embed__end_async(api_session *s);

#endif
