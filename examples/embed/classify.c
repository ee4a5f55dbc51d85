/* Runs a model of a bundle on images and prints the scores, a line for each image.
 *
 *     cc classify.c $(pkg-config --cflags --libs weft) -o classify
 *     classify digits.weft digits < images.f32
 *
 * The model has one input of f32 whose first dim is the batch; standard input has its rows. */
#include <weft/weft.h>

#include <stdio.h>
#include <stdlib.h>

/* Floats of one row of the input. */
static size_t row_size(const weft_tensor_info *input)
{
    size_t n = 1;
    for (int32_t d = 1; d < input->rank; d++)
        n *= input->dim[d] > 0 ? (size_t)input->dim[d] : 0;
    return n;
}

static int classify(weft_session *session, weft_error *error)
{
    uint32_t n_in, n_out;
    const weft_tensor_info *input = weft_inputs(session, &n_in);
    weft_outputs(session, &n_out);
    if (n_in != 1 || n_out != 1 || input->type != WEFT_F32 || row_size(input) == 0) {
        snprintf(error->text, sizeof error->text, "the model is no classifier of f32 images");
        return 1;
    }
    size_t row = row_size(input);
    float *image = malloc(row * sizeof *image);
    weft_array in = {.type = WEFT_F32, .rank = input->rank, .data = image};
    for (int32_t d = 0; d < in.rank; d++)
        in.dim[d] = d == 0 ? 1 : input->dim[d];
    in.bytes = row * sizeof *image;
    int failed = image == NULL;
    while (!failed && fread(image, sizeof *image, row, stdin) == row) {
        weft_array out = {.data = NULL}; /* memory of the session */
        if (weft_run(session, &in, 1, &out, 1, error) != WEFT_OK) {
            failed = 1;
            break;
        }
        const float *score = out.data;
        for (size_t i = 0; i < out.bytes / sizeof *score; i++)
            printf("%s%.9g", i > 0 ? " " : "", (double)score[i]);
        putchar('\n');
    }
    free(image);
    return failed;
}

int main(int argc, char **argv)
{
    weft_error error = {.text = "out of memory"};
    if (argc != 3) {
        fprintf(stderr, "usage: %s BUNDLE.weft MODEL < images.f32\n", argv[0]);
        return 2;
    }
    weft_bundle *bundle = weft_open(argv[1], NULL, &error);
    weft_session *session = bundle ? weft_start(bundle, argv[2], &error) : NULL;
    int failed = session ? classify(session, &error) : 1;
    if (failed)
        fprintf(stderr, "%s: %s\n", argv[0], error.text);
    weft_stop(session);
    weft_close(bundle);
    return failed;
}
