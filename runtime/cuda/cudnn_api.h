/* The part of cuDNN 9 (libcudnn.so.9) that Weft uses: its backend API, in which everything is a
 * descriptor with attributes. Declared here like the driver API in cuda_api.h; unit/cudnn_api
 * compares the declarations with cudnn_graph.h. */
#ifndef WEFT_RUNTIME_CUDA_CUDNN_API_H
#define WEFT_RUNTIME_CUDA_CUDNN_API_H

#include "runtime/cuda/cuda_api.h"

typedef unsigned weft_cudnn_status;             /* cudnnStatus_t */
typedef struct cudnnContext *weft_cudnn_handle; /* cudnnHandle_t */
typedef void *weft_cudnn_desc;                  /* cudnnBackendDescriptor_t */

/* X(name, value) */
#define WEFT_CUDNN_VALUES(X)                                         \
    X(CUDNN_STATUS_SUCCESS, 0)                                       \
    X(CUDNN_STATUS_NOT_INITIALIZED, 1001)                            \
    X(CUDNN_STATUS_SERIALIZATION_VERSION_MISMATCH, 1003)             \
    X(CUDNN_STATUS_BAD_PARAM, 2000)                                  \
    X(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, 2002)                     \
    X(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, 2003)               \
    X(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, 2004)                    \
    X(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, 2006)                \
    X(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, 2008)                   \
    X(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, 2010)                   \
    X(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, 2012)                  \
    X(CUDNN_STATUS_NOT_SUPPORTED, 3000)                              \
    X(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, 3001)                \
    X(CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH, 3007)                \
    X(CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING, 3008) \
    X(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, 4003)      \
    X(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, 4004)    \
    X(CUDNN_STATUS_EXECUTION_FAILED, 5000)                           \
    X(CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER, 5001)               \
    X(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, 0)                         \
    X(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, 1)                       \
    X(CUDNN_BACKEND_ENGINE_DESCRIPTOR, 2)                            \
    X(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, 3)                         \
    X(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, 4)                        \
    X(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5)                    \
    X(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, 10)    \
    X(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 13)              \
    X(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15)                   \
    X(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, 16)                     \
    X(CUDNN_BACKEND_TENSOR_DESCRIPTOR, 17)                           \
    X(CUDNN_BACKEND_MATMUL_DESCRIPTOR, 18)                           \
    X(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, 19)                 \
    X(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, 21)                        \
    X(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, 22)              \
    X(CUDNN_BACKEND_RESAMPLE_DESCRIPTOR, 24)                         \
    X(CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR, 25)           \
    X(CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR, 41)               \
    X(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, 2800)                     \
    X(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, 2801)                     \
    X(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, 2802)                     \
    X(CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, 2803)                     \
    X(CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, 2805)                 \
    X(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, 38)                       \
    X(CUDNN_TYPE_HANDLE, 0)                                          \
    X(CUDNN_TYPE_DATA_TYPE, 1)                                       \
    X(CUDNN_TYPE_BOOLEAN, 2)                                         \
    X(CUDNN_TYPE_INT64, 3)                                           \
    X(CUDNN_TYPE_DOUBLE, 5)                                          \
    X(CUDNN_TYPE_VOID_PTR, 6)                                        \
    X(CUDNN_TYPE_CONVOLUTION_MODE, 7)                                \
    X(CUDNN_TYPE_HEUR_MODE, 8)                                       \
    X(CUDNN_TYPE_NAN_PROPOGATION, 10)                                \
    X(CUDNN_TYPE_NUMERICAL_NOTE, 11)                                 \
    X(CUDNN_TYPE_POINTWISE_MODE, 14)                                 \
    X(CUDNN_TYPE_BACKEND_DESCRIPTOR, 15)                             \
    X(CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 18)                        \
    X(CUDNN_TYPE_BEHAVIOR_NOTE, 19)                                  \
    X(CUDNN_TYPE_RESAMPLE_MODE, 21)                                  \
    X(CUDNN_TYPE_PADDING_MODE, 22)                                   \
    X(CUDNN_TYPE_INT32, 23)                                          \
    X(CUDNN_TYPE_CHAR, 24)                                           \
    X(CUDNN_TYPE_FRACTION, 26)                                       \
    X(CUDNN_DATA_FLOAT, 0)                                           \
    X(CUDNN_DATA_HALF, 2)                                            \
    X(CUDNN_DATA_BFLOAT16, 9)                                        \
    X(CUDNN_CROSS_CORRELATION, 1)                                    \
    X(CUDNN_PROPAGATE_NAN, 1)                                        \
    X(CUDNN_POINTWISE_ADD, 0)                                        \
    X(CUDNN_POINTWISE_MUL, 1)                                        \
    X(CUDNN_POINTWISE_DIV, 6)                                        \
    X(CUDNN_POINTWISE_SUB, 9)                                        \
    X(CUDNN_POINTWISE_EXP, 13)                                       \
    X(CUDNN_POINTWISE_RELU_FWD, 100)                                 \
    X(CUDNN_REDUCE_TENSOR_ADD, 0)                                    \
    X(CUDNN_REDUCE_TENSOR_MAX, 3)                                    \
    X(CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING, 2)                     \
    X(CUDNN_RESAMPLE_MAXPOOL, 3)                                     \
    X(CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING, 4)                     \
    X(CUDNN_ZERO_PAD, 0)                                             \
    X(CUDNN_NEG_INF_PAD, 1)                                          \
    X(CUDNN_HEUR_MODE_A, 3)                                          \
    X(CUDNN_HEUR_MODE_FALLBACK, 2)                                   \
    X(CUDNN_NUMERICAL_NOTE_TENSOR_CORE, 0)                           \
    X(CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP, 9)                       \
    X(CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION, 0)                    \
    X(CUDNN_ATTR_POINTWISE_MODE, 0)                                  \
    X(CUDNN_ATTR_POINTWISE_MATH_PREC, 1)                             \
    X(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, 100)                         \
    X(CUDNN_ATTR_CONVOLUTION_CONV_MODE, 101)                         \
    X(CUDNN_ATTR_CONVOLUTION_DILATIONS, 102)                         \
    X(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 103)                    \
    X(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 104)                     \
    X(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 105)                      \
    X(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 106)                      \
    X(CUDNN_ATTR_ENGINEHEUR_MODE, 200)                               \
    X(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 201)                    \
    X(CUDNN_ATTR_ENGINEHEUR_RESULTS, 202)                            \
    X(CUDNN_ATTR_ENGINEHEUR_SM_COUNT_TARGET, 203)                    \
    X(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, 204)                         \
    X(CUDNN_ATTR_ENGINECFG_ENGINE, 300)                              \
    X(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 401)                  \
    X(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 402)                 \
    X(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, 405)            \
    X(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, 407)                     \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 700)           \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 701)            \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, 702)       \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, 703)               \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, 704)               \
    X(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, 705)               \
    X(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 750)             \
    X(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, 751)                     \
    X(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, 752)                     \
    X(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, 753)                     \
    X(CUDNN_ATTR_OPERATIONGRAPH_OPS, 801)                            \
    X(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 900)                         \
    X(CUDNN_ATTR_TENSOR_DATA_TYPE, 901)                              \
    X(CUDNN_ATTR_TENSOR_DIMENSIONS, 902)                             \
    X(CUDNN_ATTR_TENSOR_STRIDES, 903)                                \
    X(CUDNN_ATTR_TENSOR_UNIQUE_ID, 906)                              \
    X(CUDNN_ATTR_TENSOR_IS_VIRTUAL, 907)                             \
    X(CUDNN_ATTR_TENSOR_IS_BY_VALUE, 908)                            \
    X(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 1000)                      \
    X(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 1001)                   \
    X(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1003)                       \
    X(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 1301)                          \
    X(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, 1303)                        \
    X(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, 1305)                         \
    X(CUDNN_ATTR_MATMUL_COMP_TYPE, 1500)                             \
    X(CUDNN_ATTR_OPERATION_MATMUL_ADESC, 1520)                       \
    X(CUDNN_ATTR_OPERATION_MATMUL_BDESC, 1521)                       \
    X(CUDNN_ATTR_OPERATION_MATMUL_CDESC, 1522)                       \
    X(CUDNN_ATTR_OPERATION_MATMUL_DESC, 1523)                        \
    X(CUDNN_ATTR_REDUCTION_OPERATOR, 1600)                           \
    X(CUDNN_ATTR_REDUCTION_COMP_TYPE, 1601)                          \
    X(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, 1610)                    \
    X(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, 1611)                    \
    X(CUDNN_ATTR_OPERATION_REDUCTION_DESC, 1612)                     \
    X(CUDNN_ATTR_RESAMPLE_MODE, 1700)                                \
    X(CUDNN_ATTR_RESAMPLE_COMP_TYPE, 1701)                           \
    X(CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, 1702)                        \
    X(CUDNN_ATTR_RESAMPLE_POST_PADDINGS, 1703)                       \
    X(CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, 1704)                        \
    X(CUDNN_ATTR_RESAMPLE_STRIDES, 1705)                             \
    X(CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, 1706)                         \
    X(CUDNN_ATTR_RESAMPLE_NAN_PROPAGATION, 1707)                     \
    X(CUDNN_ATTR_RESAMPLE_PADDING_MODE, 1708)                        \
    X(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, 1710)                 \
    X(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, 1711)                 \
    X(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, 1716)                  \
    X(CUDNN_ATTR_DEVICEPROP_HANDLE, 2701)                            \
    X(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, 2702)

enum {
#define X(name, value) WEFT_##name = (value),
    WEFT_CUDNN_VALUES(X)
#undef X
};

/* Pointers to all functions, under their names in cudnn_graph.h. */
typedef struct weft_cudnn_api {
#define CUDNN_SYM(result, name, args) result(*name) args;
#include "runtime/cuda/cudnn_syms.def"
#undef CUDNN_SYM
} weft_cudnn_api;

#endif
