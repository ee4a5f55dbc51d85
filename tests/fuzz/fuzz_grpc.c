/* ModelInfer messages: any bytes are decoded or refused with a text. Checked: all data of decoded
 * inputs can be accessed, and the packed answer can be decoded.
 *
 * The models have one input of each type and return their inputs. */
#include "runtime/server/grpc_int.h"

#include "grpc_service.pb-c.h"

#include <stdlib.h>
#include <string.h>

enum { N_TYPES = WEFT_DTYPE_COUNT - 1, DECODED_MAX_BYTES = 8 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned touch(const weft_tensor *t)
{
    unsigned sum = 0;
    for (size_t i = 0; i < weft_tensor_bytes(t); i++)
        sum += ((const uint8_t *)t->data)[i];
    return sum;
}

static void answer(weft_grpc_infer *infer)
{
    uint8_t *message = NULL;
    size_t len = 0;
    char text[WEFT_REQUEST_MESSAGE_MAX];
    memcpy(infer->request->out, infer->request->in,
           infer->program->n_input * sizeof *infer->request->in);
    if (weft_grpc__write_infer(infer, true, &message, &len, text) != WEFT_ANSWER_OK ||
        len < WEFT_GRPC_PREFIX_BYTES)
        abort();
    Inference__ModelStreamInferResponse *outer = inference__model_stream_infer_response__unpack(
        NULL, len - WEFT_GRPC_PREFIX_BYTES, message + WEFT_GRPC_PREFIX_BYTES);
    const Inference__ModelInferResponse *r = outer ? outer->infer_response : NULL;
    if (!r || r->n_outputs != infer->n_output || r->n_raw_output_contents != infer->n_output ||
        r->n_parameters != 1)
        abort();
    inference__model_stream_infer_response__free_unpacked(outer, NULL);
    free(message);
}

/* Model "raw" has inputs of all types, "typed" of those that typed contents can represent. */
static const weft_bundle *make_bundle(void)
{
    static weft_bundle_value value[N_TYPES];
    static weft_bundle_port port[2][N_TYPES];
    static weft_bundle_program program[2];
    static weft_bundle bundle = {.program = program, .n_program = 2};
    static const char *const names[2] = {"raw", "typed"};
    if (program[0].name)
        return &bundle;
    for (int k = 0; k < 2; k++) {
        uint32_t n = 0;
        for (int t = 1; t <= N_TYPES; t++)
            if (k == 0 || (t != WEFT_DTYPE_F16 && t != WEFT_DTYPE_BF16))
                port[k][n++] =
                    (weft_bundle_port){.name = weft_dtype_name((weft_dtype)t), .value = 1};
        program[k] = (weft_bundle_program){.name = names[k],
                                           .value = value,
                                           .n_value = N_TYPES,
                                           .input = port[k],
                                           .n_input = n,
                                           .output = port[k],
                                           .n_output = n,
                                           .batch_symbol = UINT32_MAX};
    }
    return &bundle;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static volatile unsigned sink;
    weft_answer why = WEFT_ANSWER_OK;
    char text[WEFT_REQUEST_MESSAGE_MAX] = "";
    weft_grpc_infer *infer = NULL;
    weft_grpc_names names;
    bool named = weft_grpc__scan_names(data, size, &names) == NULL;
    const weft_bundle *bundle = make_bundle();
    const weft_model_ref ref = {.program = &bundle->program[named && names.model.len == 5],
                                .version = "1"};
    if (!weft_grpc__read_infer(&ref, NULL, data, size, DECODED_MAX_BYTES, &why, text, &infer)) {
        if (why == WEFT_ANSWER_OK || text[0] == '\0')
            abort();
        return 0;
    }
    if (!named)
        abort(); /* what can be decoded has been scanned */
    for (uint32_t i = 0; i < infer->program->n_input; i++)
        sink = sink + touch(&infer->request->in[i]);
    answer(infer);
    weft_grpc__destroy_infer(infer);
    return 0;
}
