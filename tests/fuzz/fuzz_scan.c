/* The scan that counts the parts of a ModelInferRequest, beside protobuf-c.
 *
 * Corpus: grpc. Checked: what the scan accepts and protobuf-c decodes is within the limits, by
 * counting the decoded message; and protobuf-c's own encoding of it is accepted. */
#include "runtime/server/grpc_int.h"

#include "grpc_service.pb-c.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The limits of grpc_scan.c. */
enum { PARAMETERS = 64, PORTS = 4096, UNKNOWN = 64 };

typedef Inference__ModelInferRequest message;

/* Unknown fields of entries of maps. */
#define ADD_ENTRIES(unknown, m)                                                \
    do {                                                                       \
        for (size_t k = 0; k < (m)->n_parameters; k++) {                       \
            (unknown) += (m)->parameters[k]->base.n_unknown_fields;            \
            if ((m)->parameters[k]->value)                                     \
                (unknown) += (m)->parameters[k]->value->base.n_unknown_fields; \
        }                                                                      \
    } while (0)

static bool are_few(const message *m, size_t *out_unknown)
{
    size_t unknown = m->base.n_unknown_fields;
    ADD_ENTRIES(unknown, m);
    bool few = m->n_parameters <= PARAMETERS && m->n_inputs <= PORTS && m->n_outputs <= PORTS &&
               m->n_raw_input_contents <= PORTS;
    for (size_t i = 0; i < m->n_inputs; i++) {
        const Inference__ModelInferRequest__InferInputTensor *in = m->inputs[i];
        unknown += in->base.n_unknown_fields;
        ADD_ENTRIES(unknown, in);
        few = few && in->n_parameters <= PARAMETERS;
        if (in->contents) {
            unknown += in->contents->base.n_unknown_fields;
            few = few && in->contents->n_bytes_contents <= PORTS;
        }
    }
    for (size_t i = 0; i < m->n_outputs; i++) {
        unknown += m->outputs[i]->base.n_unknown_fields;
        ADD_ENTRIES(unknown, m->outputs[i]);
        few = few && m->outputs[i]->n_parameters <= PARAMETERS;
    }
    *out_unknown = unknown;
    return few && unknown <= UNKNOWN;
}

/* Whether protobuf-c's encoding has a field that the scan limits by its occurrences. */
static bool ranks_are_small(const message *m)
{
    bool small = true;
    for (size_t i = 0; i < m->n_inputs; i++)
        small = small && m->inputs[i]->n_shape <= WEFT_RANK_MAX;
    return small;
}

static void check_encoded(const message *m)
{
    size_t len = inference__model_infer_request__get_packed_size(m);
    uint8_t *bytes = malloc(len + 1);
    if (!bytes)
        return;
    inference__model_infer_request__pack(m, bytes);
    const char *wrong = weft_grpc__scan_infer(bytes, len);
    size_t unknown;
    /* Numbers of unknown fields may be beyond what the scan takes. */
    if (are_few(m, &unknown) && unknown == 0 && ranks_are_small(m) && wrong)
        abort();
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *block = malloc(size + 1); /* reads past the end are seen by the sanitizer */
    if (!block)
        return 0;
    for (size_t i = 0; i < size; i++)
        block[i] = data[i];
    const char *wrong = weft_grpc__scan_infer(block, size);
    message *m =
        wrong && size > 1 << 16 ? NULL : inference__model_infer_request__unpack(NULL, size, block);
    size_t unknown;
    if (m && !wrong && !are_few(m, &unknown))
        abort();
    if (m)
        check_encoded(m);
    if (m)
        inference__model_infer_request__free_unpacked(m, NULL);
    free(block);
    return 0;
}
