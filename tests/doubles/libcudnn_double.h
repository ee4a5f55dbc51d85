/* Private to the double of cuDNN: its objects, their attributes, and the graphs that they describe
 * (libcudnn_graph.c). */
#ifndef WEFT_TESTS_DOUBLES_LIBCUDNN_DOUBLE_H
#define WEFT_TESTS_DOUBLES_LIBCUDNN_DOUBLE_H

#include "conv_double.h"

#include "runtime/cuda/cudnn_api.h"

enum { ATTRS_MAX = 12 };

#define D(name) WEFT_CUDNN_BACKEND_##name##_DESCRIPTOR

typedef struct engine {
    int64_t index;
    unsigned numerical[2], behavior[2];
    int n_numerical, n_behavior;
    int64_t workspace;
    double time_us;
} engine;

typedef struct attr {
    unsigned name;
    int64_t n;
    char *value;
} attr;

typedef struct object {
    struct object *next;
    unsigned type; /* cudnnBackendDescriptorType_t, or HANDLE */
    bool dead, final;
    attr attr[ATTRS_MAX];
    int n_attr;
    /* Of a handle: its stream. */
    void *stream;
    /* Of a graph, and of what is made of one. */
    weft_conv conv;
    const engine *engine;
    /* Of a device, and of plans. */
    int arch;
} object;

enum { HANDLE = 1000 };

const attr *weft_dnn_attr(const object *o, unsigned name);
int64_t weft_dnn_count(const object *o, unsigned name);
int64_t weft_dnn_int64(const object *o, unsigned name, int64_t i);
unsigned weft_dnn_enum(const object *o, unsigned name);
double weft_dnn_double(const object *o, unsigned name);
object *weft_dnn_desc(const object *o, unsigned name, int64_t i);
bool weft_dnn_is_operation(unsigned type);
/* Reports a mistake; returns false. */
bool weft_dnn_refuse(const char *what);
/* Finalises a tensor, an operation or what describes one; false: a mistake. */
bool weft_dnn_check(object *o);
/* Finalises a graph of operations: finds out what it computes. */
weft_cudnn_status weft_dnn_read_graph(object *o);

#endif
