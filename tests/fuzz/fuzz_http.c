/* HTTP requests behind the parser of heads: bodies into tensors, and paths into routes.
 *
 * First byte of the input: 0 an infer body (model, length of the JSON as two bytes, body), 1 a raw
 * body (model, body), 2 a request (method, path, newline, body). Checked: all data of the tensors
 * read can be accessed, and the answer is JSON. */
#include "runtime/server/deployment_int.h"
#include "runtime/server/http_int.h"
#include "tests/support/oip_router.h"

#include <jansson.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static oip_subject subject;

static void check_json(const char *text, size_t len)
{
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, NULL);
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

/* An answer of any type with the bytes of the inputs; with the variant that an app chose where the
 * request asks for an accuracy. */
static void make_answer(weft_request *r, const weft_bundle_program *p, const weft_buf *bytes)
{
    static const weft_dtype types[] = {WEFT_DTYPE_F32, WEFT_DTYPE_F64,  WEFT_DTYPE_BOOL,
                                       WEFT_DTYPE_U64, WEFT_DTYPE_I8,   WEFT_DTYPE_I64,
                                       WEFT_DTYPE_F16, WEFT_DTYPE_BF16, WEFT_DTYPE_U32};
    static uint64_t data[8];
    memset(data, 0, sizeof data);
    if (bytes->len)
        memcpy(data, bytes->at, bytes->len < sizeof data ? bytes->len : sizeof data);
    size_t first = data[0] & 0xff;
    weft_dtype dtype = types[first % (sizeof types / sizeof types[0])];
    if (dtype == WEFT_DTYPE_BOOL)
        data[0] &= 0x0101010101010101u;
    for (uint32_t i = 0; i < p->n_output; i++)
        r->out[i] = (weft_tensor){
            .dtype = dtype, .rank = 2, .dim = {1, (int64_t)(first % 8)}, .data = data};
    if (r->need.min_accuracy > 0)
        r->chosen = (weft_app_choice){.name = "a \"variant\"", .reason = "fits"};
}

/* Reads each byte of the inputs. */
static void check_infer(weft_oip_infer *infer)
{
    weft_request *r = infer->request;
    const weft_bundle_program *p = infer->program;
    weft_buf sum = {0}, out = {0};
    weft_answer answer = WEFT_ANSWER_OK;
    char message[WEFT_REQUEST_MESSAGE_MAX] = "";
    size_t json_len = 0;
    for (uint32_t i = 0; i < p->n_input; i++)
        weft_buf_add(&sum, r->in[i].data, weft_tensor_bytes(&r->in[i]));
    make_answer(r, p, &sum);
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
                  : weft_oip__read_infer(&ref, NULL, body, len, json_len, &answer, message, &infer);
    if (ok)
        check_infer(infer);
    else if (answer == WEFT_ANSWER_OK)
        abort();
    else
        check_error(message);
    weft_oip__destroy_infer(infer);
    free(body);
}

/* Accepted requests wait until the router gives up. */
static void route(const uint8_t *data, size_t size)
{
    static const http1_method methods[] = {HTTP1_GET, HTTP1_POST, HTTP1_PUT, HTTP1_HEAD};
    static oip_router front;
    static weft_http http;
    static weft_deployment *deployment; /* without a repository */
    oip_router_open(&front, &subject);
    if (!deployment &&
        weft_deployment__open(&front.options, NULL, &front.options, &deployment) != WEFT_ERR_OK)
        abort();
    http = (weft_http){.options = &front.options,
                       .front = {.deployment = deployment},
                       .router = &front.router,
                       .max_body = UINT32_MAX,
                       .held_max = UINT32_MAX};
    http_exchange *x = calloc(1, sizeof *x);
    const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
    size_t url_len = end ? (size_t)(end - data) : size;
    if (!x || !url_len || url_len > HTTP1_HEAD_MAX) {
        free(x);
        return;
    }
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
        weft_router__give_up(&front.router); /* frees the exchange, which has no connection */
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
