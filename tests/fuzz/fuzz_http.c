/* HTTP requests behind the parser of heads: bodies into tensors, and paths into routes.
 *
 * First byte of the input: 0 an infer body (model, length of the JSON as two bytes, body), 1 a raw
 * body (model, body), 2 a request (method, path, newline, body). Checked: all data of the tensors
 * read can be accessed, and the answer is JSON. */
#include "runtime/server/http_int.h"
#include "runtime/server/router_int.h"
#include "tests/support/oip_subject.h"

#include <jansson.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static oip_subject subject;

static void check_json(const char *text, size_t len)
{
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    if (!root)
        abort();
    json_decref(root);
}

static void check_error(const char *message)
{
    char *text = weft_oip__error(message);
    if (!message[0] || !text)
        abort();
    check_json(text, strlen(text));
    free(text);
}

/* Reads each byte of the inputs; the answer is zeros. */
static void check_infer(weft_oip_infer *infer)
{
    weft_request *r = infer->request;
    const weft_bundle_program *p = infer->program;
    uint64_t zeros[8] = {0};
    weft_buf sum = {0}, out = {0};
    weft_answer answer = WEFT_ANSWER_OK;
    char message[WEFT_REQUEST_MESSAGE_MAX] = "";
    size_t json_len = 0;
    for (uint32_t i = 0; i < p->n_input; i++)
        weft_buf_add(&sum, r->in[i].data, weft_tensor_bytes(&r->in[i]));
    for (uint32_t i = 0; i < p->n_output; i++) {
        const weft_ttype *t = &p->value[p->output[i].value - 1].type;
        r->out[i] = (weft_tensor){.dtype = t->dtype, .rank = t->rank, .data = zeros};
        for (uint32_t k = 0; k < t->rank; k++)
            r->out[i].dim[k] = 1;
    }
    if (infer->n_output == 0 || infer->n_output > p->n_output)
        abort();
    if (weft_oip__write_infer(infer, &out, &json_len, &answer, message))
        check_json(out.at, json_len);
    else
        check_error(message);
    weft_buf_finish(&sum);
    weft_buf_finish(&out);
}

/* A body in a block of exactly its size, so that a sanitizer detects reads past it. */
static void read_body(const uint8_t *data, size_t size, bool raw)
{
    size_t head = raw ? 1 : 3;
    if (size < head)
        return;
    uint32_t model = data[0] % OIP_MODELS;
    size_t len = size - head, json_len = raw ? 0 : (size_t)data[1] | (size_t)data[2] << 8;
    if (json_len == 0xffff)
        json_len = len;
    char *body = malloc(len ? len : 1);
    weft_oip_infer *infer = NULL;
    weft_answer answer = WEFT_ANSWER_OK;
    char message[WEFT_REQUEST_MESSAGE_MAX] = "";
    if (!body)
        return;
    memcpy(body, data + head, len);
    const weft_model_ref ref = {
        .at = model, .program = &subject.bundle.program[model], .version = "1"};
    bool ok = raw ? weft_oip__read_raw(&ref, body, len, &answer, message, &infer)
                  : weft_oip__read_infer(&ref, body, len, json_len, &answer, message, &infer);
    if (ok)
        check_infer(infer);
    else if (answer == WEFT_ANSWER_OK)
        abort();
    else
        check_error(message);
    weft_oip__destroy_infer(infer);
    free(body);
}

/* The worker does not start: accepted requests wait until the router gives up. */
static void route(const uint8_t *data, size_t size)
{
    static const http1_method methods[] = {HTTP1_GET, HTTP1_POST, HTTP1_PUT, HTTP1_HEAD};
    static const weft_serve_options options = {0};
    router_model model[OIP_MODELS] = {0};
    bool serves[OIP_MODELS];
    static char path[] = "models.weft";
    static const weft_serve_slice slice = {.name = "cpu"};
    router_bundle bundle = {.path = path, .bundle = &subject.bundle};
    router_worker worker = {.bundle = &bundle, .process.slice = &slice, .serves = serves};
    weft_router router = {.options = &options,
                          .model = model,
                          .n_model = OIP_MODELS,
                          .worker = &worker,
                          .n_worker = 1,
                          .timeout_ns = 1000000000};
    static weft_http http;
    http = (weft_http){
        .options = &options, .router = &router, .max_body = UINT32_MAX, .held_max = UINT32_MAX};
    http_exchange *x = calloc(1, sizeof *x);
    const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
    size_t url_len = end ? (size_t)(end - data) : size;
    if (!x || !url_len || url_len > HTTP1_HEAD_MAX) {
        free(x);
        return;
    }
    memset(serves, true, sizeof serves);
    for (int i = 0; i < OIP_MODELS; i++)
        model[i] = (router_model){.program = &subject.program[i],
                                  .version = "1",
                                  .shown = true,
                                  .weight = 1,
                                  .largest_bucket = 1};
    *x = (http_exchange){.http = &http, .method = methods[data[0] % 4]};
    if (end) {
        x->len = size - url_len - 1;
        x->body = malloc(x->len ? x->len : 1);
        if (x->body)
            memcpy(x->body, end + 1, x->len);
        else
            x->len = 0;
    }
    weft_http__find_route(x, HTTP_API, (const char *)data + 1, url_len - 1);
    if ((x->status == 0) != (x->route != NULL))
        abort();
    if (x->route)
        weft_http__run(x);
    if (x->waiting) {
        weft_router__give_up(&router); /* frees the exchange, which has no connection */
        return;
    }
    if (x->reply)
        check_json(x->reply, x->json_len ? x->json_len : x->reply_len);
    else
        check_error(x->error);
    weft_http__free_exchange(x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!subject.arena)
        oip_subject_open(&subject);
    if (size == 0)
        return 0;
    if (data[0] < 2)
        read_body(data + 1, size - 1, data[0] == 1);
    else if (data[0] == 2)
        route(data + 1, size - 1);
    return 0;
}
