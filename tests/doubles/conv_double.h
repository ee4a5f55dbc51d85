/* Convolutions, pooling and attention as in cuDNN, on the host; tensors have any strides. */
#ifndef WEFT_TESTS_DOUBLES_CONV_DOUBLE_H
#define WEFT_TESTS_DOUBLES_CONV_DOUBLE_H

#include "double.h"

enum { WEFT_CONV_RANK_MAX = 5 };

typedef struct weft_conv_tensor {
    int64_t id;    /* 0: absent */
    unsigned type; /* cudnnDataType_t */
    int rank;
    int64_t dim[WEFT_CONV_RANK_MAX], stride[WEFT_CONV_RANK_MAX];
    int64_t align;
    void *at;
} weft_conv_tensor;

typedef enum weft_conv_kind {
    WEFT_CONV_KIND_CONV,
    WEFT_CONV_KIND_MAX, /* pooling */
    WEFT_CONV_KIND_MEAN,
    WEFT_CONV_KIND_MEAN_PADDED,
    WEFT_CONV_KIND_ATTENTION /* y = softmax(scale x w + bias) z */
} weft_conv_kind;

/* y = act(conv(x, w) + z + bias), summed in f32; z and bias may be absent. */
typedef struct weft_conv {
    weft_conv_tensor x, w, y, z, bias;
    unsigned kind;
    bool relu;
    int spatial;
    int64_t pad[3], behind[3], stride[3], dilation[3];
    int64_t window[3]; /* of pooling */
    bool keeps_nan;    /* of a maximum: otherwise NaN is skipped */
    int64_t scale_id;  /* of attention */
    bool scale_on_host;
    float scale;
    void *scale_at; /* on the device */
    double time_us; /* simulated */
} weft_conv;

/* Bytes of an element; 0: unknown type. */
size_t weft_conv_bytes(unsigned type);
/* Bytes from the first element to the end of the last. */
size_t weft_conv_span(const weft_conv_tensor *t);

/* The convolution as text: appended to a JSON object that is open, and read again. */
enum { WEFT_CONV_TEXT = 4096 };
void weft_conv_print(const weft_conv *c, char text[WEFT_CONV_TEXT]);
bool weft_conv_parse(const char *text, weft_conv *out);
/* The number of a key; -1: there is none. */
int64_t weft_conv_number(const char *text, const char *key);

double weft_conv_run(void *conv); /* returns the simulated time */

#endif
