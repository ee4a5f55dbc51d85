/* Requests of the control socket: each line of the input is one. Checked: the answer is a JSON
 * object that says whether the request was done and, if not, why; no operation begins inside of a
 * request, and those that wait are bounded. */
#include "runtime/server/control_requests.h"
#include "runtime/server/router_int.h"
#include "tests/support/oip_subject.h"

#include <jansson.h>
#include <signal.h>
#include <stdlib.h>

enum { WAITING_MAX = 1000, MODELS = OIP_MODELS };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static oip_subject subject;
static router_model model[MODELS];
static bool serves[MODELS];
static char path[] = "/models.weft";
static const weft_serve_slice slice = {.name = "cpu"};
static router_bundle bundle = {.path = path, .file = path, .bundle = &subject.bundle};
static router_worker worker = {.bundle = &bundle, .process.slice = &slice, .serves = serves};
static uint32_t key[MODELS];
static weft_router router = {.model = model,
                             .key = key,
                             .n_model = MODELS,
                             .worker = &worker,
                             .n_worker = 1,
                             .timeout_ns = 1000000000};

/* A machine that can have no slices: a plan is read, and refused after that. */
static weft_err make_slices(void *user, const weft_plan *plan, weft_arena *arena, weft_diag *diag,
                            const weft_serve_slice **out, uint32_t *out_n)
{
    (void)user;
    (void)plan;
    (void)arena;
    (void)out;
    (void)out_n;
    return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0}, "there is no such slice");
}

static void open_subject(void)
{
    signal(SIGTERM, SIG_IGN); /* "drain" */
    oip_subject_open(&subject);
    for (int i = 0; i < MODELS; i++) {
        serves[i] = true;
        model[i] = (router_model){.program = &subject.program[i],
                                  .version = "1",
                                  .bundle = &bundle,
                                  .shown = true,
                                  .wanted = true,
                                  .weight = 1,
                                  .largest_bucket = 1};
        weft_router__set_key(&router, (uint32_t)i);
    }
}

static void check_answer(char *text)
{
    json_t *answer = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    const json_t *ok = json_object_get(answer, "ok");
    if (!json_is_boolean(ok) ||
        (json_is_false(ok) && !json_string_length(json_object_get(answer, "error"))))
        abort();
    json_decref(answer);
    free(text);
}

/* The line in a block of exactly its size, so that a sanitizer detects reads past it. */
static void answer_line(ctl_service *service, const uint8_t *line, size_t len)
{
    char *copy = malloc(len ? len : 1);
    if (!copy)
        return;
    memcpy(copy, line, len);
    check_answer(weft_ctl__answer(service, copy, len));
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const weft_serve_options options = {.control = {.make_slices = make_slices}};
    weft_serve_options got;
    if (!subject.arena)
        open_subject();
    weft_loop *loop = weft_loop__create();
    weft_diag *diag = weft_diag_create();
    ctl_service service = {.options = &options, .router = &router};
    router.options = &options;
    router.loop = loop;
    if (!loop || !diag ||
        weft_deployment__open(&options, diag, &got, &service.deployment) != WEFT_ERR_OK ||
        weft_deployment__start(service.deployment, &router, loop, diag) != WEFT_ERR_OK)
        abort();
    for (const uint8_t *at = data, *end = data + size; at < end;) {
        const uint8_t *line = memchr(at, '\n', (size_t)(end - at));
        line = line ? line : end;
        answer_line(&service, at, (size_t)(line - at));
        at = line + 1;
    }
    weft_operation_status status = weft_deployment__status(service.deployment);
    if (status.last || status.n_waiting > WAITING_MAX)
        abort();
    weft_deployment__close(service.deployment);
    free(service.note);
    weft_diag_destroy(diag);
    weft_loop__destroy(loop);
    return 0;
}
