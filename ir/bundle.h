/* Bundles: the files that the compiler writes and the runtime loads.
 *
 *   +--------------------------------------------------------------+
 *   | header, 64 bytes: magic, version, file length, table of      |
 *   |   sections at, count, checksum of header and table           |
 *   | metadata section   protobuf (bundle.proto), 64-byte aligned  |
 *   | weights section    raw bytes, once per distinct content,     |
 *   |   each 64-byte aligned                                       |
 *   | code section       for GPUs: images, each 64-byte aligned    |
 *   | section table      kind, offset, length, XXH3 checksum       |
 *   +--------------------------------------------------------------+
 *
 * docs/bundle.md specifies the bytes. Equal contents give equal bytes. The reader maps the file,
 * treats it as untrusted, and checks every offset, count, index and size before it returns a
 * structure; weft_bundle_check_weight checks weights, when they are first used. */
#ifndef WEFT_IR_BUNDLE_H
#define WEFT_IR_BUNDLE_H

#include "base/file.h"
#include "base/hash.h"
#include "ir/cost.h"
#include "ops/flow.h"

/* Plain data: the writer accepts what the reader returns. Values and weights are numbered from 1;
 * 0: none. */

typedef struct weft_bundle_weight {
    weft_dtype dtype;
    uint32_t rank;
    int64_t dim[WEFT_RANK_MAX];
    /* From the reader: aligned to 64 bytes; for the writer: any alignment. */
    const uint8_t *data;
    uint64_t bytes;
    uint64_t checksum; /* reader: as stored; writer: computed */
    const char *name;  /* "model:initialiser" of the first user */
    uint32_t n_users;  /* models and adapters that use it */
} weft_bundle_weight;

typedef struct weft_bundle_value {
    weft_ttype type; /* dims in the program's pool */
    uint32_t weight; /* when it is a weight */
} weft_bundle_value;

/* -- Device code: how a launch runs on a GPU. Bundles for the CPU have none. ------------------- */

/* Kernels are compiled in modules; there is an image of each module for each architecture. */
typedef struct weft_bundle_image {
    const char *arch; /* "sm_90": machine code; "compute_90": PTX, for later devices */
    uint32_t module;
    const uint8_t *data; /* as cuLibraryLoadData takes it */
    uint64_t bytes;
    uint64_t checksum; /* reader: as stored; writer: computed */
} weft_bundle_image;

/* Resources of a kernel on one architecture of machine code, as reported by the CUDA compiler. */
typedef struct weft_bundle_resource {
    uint32_t registers;    /* of a thread */
    uint32_t shared_bytes; /* static, of a block */
    uint32_t local_bytes;  /* of a thread: spilled registers among them */
} weft_bundle_resource;

typedef struct weft_bundle_kernel {
    const char *name; /* symbol in the images of its module */
    uint32_t module;
    uint32_t threads;                     /* of a block; blocks are one-dimensional */
    uint32_t shared_bytes;                /* dynamic, of a block */
    const weft_bundle_resource *resource; /* by architecture: n_arch */
} weft_bundle_kernel;

/* An argument of a kernel or of a library call. */
typedef enum weft_command_arg_kind {
    WEFT_COMMAND_ARG_NONE, /* absent, such as the bias of a GEMM */
    WEFT_COMMAND_ARG_IN,   /* address of operand `index` of the launch, `dim` bytes behind its start
                            */
    WEFT_COMMAND_ARG_OUT,  /* address of result `index`, likewise */
    WEFT_COMMAND_ARG_SCRATCH, /* address in the launch's scratch memory, `dim` bytes behind its
                               * start
                               */
    WEFT_COMMAND_ARG_INT,     /* `dim`, as int32_t */
    WEFT_COMMAND_ARG_FLOAT,   /* `f`, as float */
    WEFT_COMMAND_ARG_KINDS
} weft_command_arg_kind;

typedef struct weft_bundle_arg {
    uint8_t kind; /* weft_command_arg_kind */
    uint32_t index;
    weft_dim dim;
    float f;
} weft_bundle_arg;

typedef enum weft_gemm_act {
    WEFT_GEMM_ACT_NONE,
    WEFT_GEMM_ACT_RELU,
    WEFT_GEMM_ACT_GELU_TANH,
    WEFT_GEMM_ACTS
} weft_gemm_act;

/* d = act(alpha op(a) op(b) + beta c + bias), for each of `batch` matrices: op(a) m x k, op(b)
 * k x n, c and d m x n, all row-major, bias n; accumulated in f32. A leading dimension is
 * the distance of two rows in memory, a stride that of two matrices, both in elements.
 *
 * i8: a and b are i8, d is i32, and d = a b^T (trans_b alone), without c, bias, act, alpha and
 * beta; sums wrap around. m, n, k, leading dimensions and strides are multiples of
 * WEFT_GEMM_BYTES_STEP: what tensor cores ask of integers in cuBLASLt (CUBLAS_COMPUTE_32I). */
enum { WEFT_GEMM_BYTES_STEP = 4 };

typedef struct weft_bundle_gemm {
    weft_dtype dtype; /* f32, f16 or bf16, of all operands; i8 */
    uint8_t act;      /* weft_gemm_act */
    bool trans_a, trans_b;
    bool tf32; /* f32 operands may be rounded to TF32 */
    weft_dim m, n, k, batch;
    weft_bundle_arg a, b, c, d, bias; /* c and bias may be NONE */
    weft_dim lda, ldb, ldc, ldd;
    weft_dim stride_a, stride_b, stride_c, stride_d;
    float alpha, beta;
} weft_bundle_gemm;

/* Element type of c, d and bias. */
static inline weft_dtype weft_gemm_result(weft_dtype dtype)
{
    return dtype == WEFT_DTYPE_I8 ? WEFT_DTYPE_I32 : dtype;
}

/* Whether a GEMM of i8 uses nothing that other types have and it has not. */
static inline bool weft_gemm_is_bytes(const weft_bundle_gemm *g)
{
    return g->dtype == WEFT_DTYPE_I8 && g->act == WEFT_GEMM_ACT_NONE && !g->trans_a && g->trans_b &&
           !g->tf32 && g->alpha == 1 && g->beta == 0 && g->c.kind == WEFT_COMMAND_ARG_NONE &&
           g->bias.kind == WEFT_COMMAND_ARG_NONE;
}

/* Everything that cuBLASLt's choice of an algorithm for a GEMM depends on. No padding: compared
 * with memcmp. */
typedef struct weft_gemm_key {
    int64_t dim[12];   /* m n k batch lda ldb ldc ldd, strides of a b c d */
    uint32_t align[4]; /* addresses of a b c d are multiples of these */
    uint32_t dtype;    /* weft_dtype */
    uint32_t act;      /* weft_gemm_act */
    uint32_t flags;    /* weft_gemm_flag */
    uint32_t zero;
} weft_gemm_key;

typedef enum weft_gemm_flag {
    WEFT_GEMM_TRANS_A = 1,
    WEFT_GEMM_TRANS_B = 2,
    WEFT_GEMM_TF32 = 4,
    WEFT_GEMM_C = 8,
    WEFT_GEMM_BIAS = 16,
    WEFT_GEMM_FLAGS = 32
} weft_gemm_flag;

enum { WEFT_ALGO_BYTES = 64 };

/* The algorithm measured to be fastest for a GEMM: cublasLtMatmulAlgo_t. */
typedef struct weft_bundle_algo {
    weft_gemm_key gemm;
    uint8_t bytes[WEFT_ALGO_BYTES];
    double time_us;
} weft_bundle_algo;

/* Algorithms measured on one kind of GPU; ignored on others. */
typedef struct weft_bundle_tuning {
    const char *device; /* name given by the CUDA driver */
    uint32_t sms;       /* of the device or the slice measured */
    uint64_t version;   /* of cuBLASLt */
    const weft_bundle_algo *algo;
    uint32_t n_algo;
} weft_bundle_tuning;

/* Sizes of a convolution of images [n, c, d, h, w]; dims of which there are three begin there, and
 * leading ones are 1 (paddings 0) if the images have fewer. */
typedef enum weft_conv_dim {
    WEFT_CONV_IMAGES,
    WEFT_CONV_CHANNELS, /* of the images, and of the result, of all groups */
    WEFT_CONV_FEATURES,
    WEFT_CONV_GROUPS,
    WEFT_CONV_IN,
    WEFT_CONV_OUT = WEFT_CONV_IN + 3,
    WEFT_CONV_PAD = WEFT_CONV_OUT + 3, /* in front; behind as the sizes ask */
    WEFT_CONV_KERNEL = WEFT_CONV_PAD + 3,
    WEFT_CONV_STRIDE = WEFT_CONV_KERNEL + 3,
    WEFT_CONV_DILATION = WEFT_CONV_STRIDE + 3,
    WEFT_CONV_DIMS = WEFT_CONV_DILATION + 3
} weft_conv_dim;

typedef enum weft_conv_flag {
    WEFT_CONV_RELU = 1,
    WEFT_CONV_TF32 = 2, /* f32 operands may be rounded to TF32 */
    WEFT_CONV_Z = 4,
    WEFT_CONV_BIAS = 8,
    WEFT_CONV_LAST = 16, /* channels innermost: x, y, z [n, d, h, w, c], weights [m, d, h, w, c] */
    /* Pooling: y = the maximum, or the mean, over windows of x; no w. As many features as channels,
     * in one group. */
    WEFT_CONV_MAX_POOL = 32,
    WEFT_CONV_MEAN_POOL = 64,         /* of the elements inside the image */
    WEFT_CONV_MEAN_POOL_PADDED = 128, /* of all elements of a window, with zeros outside */
    WEFT_CONV_POOLS = 32 | 64 | 128,
    WEFT_CONV_ATTENTION = 256, /* y = softmax(scale x w^T + bias) z, see weft_attention_dim */
    WEFT_CONV_FLAGS = 512
} weft_conv_flag;

/* Sizes of attention: x (queries) and y [batch, rows, heads, head], w and z (keys and values)
 * [batch, keys, heads, head]; elements of a head are consecutive, the heads of a row, too. The mask
 * `bias` is [1 or batch, 1 or heads, 1 or rows, keys], dense. */
typedef enum weft_attention_dim {
    WEFT_ATTENTION_BATCH,
    WEFT_ATTENTION_HEADS,
    WEFT_ATTENTION_ROWS,
    WEFT_ATTENTION_KEYS,
    WEFT_ATTENTION_HEAD,
    WEFT_ATTENTION_STEP,                            /* elements from row to row of x, w, z, y */
    WEFT_ATTENTION_MASK = WEFT_ATTENTION_STEP + 4,  /* the first three dims of the mask */
    WEFT_ATTENTION_SCALE = WEFT_ATTENTION_MASK + 3, /* bits of an f32 */
    WEFT_ATTENTION_DIMS                             /* others are 0 */
} weft_attention_dim;

/* What cuDNN computes: y = act(conv(x, w) + z + bias), all dense, row-major unless LAST,
 * accumulated in f32: bias has one element for each channel of the result, z its shape. Or pooling,
 * or attention. */
typedef struct weft_bundle_conv {
    weft_dtype dtype; /* f32, f16 or bf16, of all operands; attention: no f32 */
    uint32_t flags; /* weft_conv_flag; z and ReLU only with a bias, as cuDNN's kernels have them */
    weft_dim dim[WEFT_CONV_DIMS];
    weft_bundle_arg x, w, y, z, bias; /* z and bias: NONE without their flag; w: NONE of pooling */
} weft_bundle_conv;

/* Whether cuDNN compiles the engines when they are needed, on the device: not for convolutions,
 * which have some that are ready. */
static inline bool weft_conv_is_late(uint32_t flags)
{
    return (flags & (WEFT_CONV_ATTENTION | WEFT_CONV_POOLS)) != 0;
}

/* Whether the type and the flags belong together. */
static inline bool weft_conv_is_sound(weft_dtype dtype, uint32_t flags)
{
    bool half = dtype == WEFT_DTYPE_F16 || dtype == WEFT_DTYPE_BF16;
    uint32_t pool = flags & WEFT_CONV_POOLS;
    if (flags & WEFT_CONV_ATTENTION)
        return half && (flags & ~(uint32_t)WEFT_CONV_BIAS) == (WEFT_CONV_ATTENTION | WEFT_CONV_Z);
    if (pool)
        return (half || dtype == WEFT_DTYPE_F32) && (pool & (pool - 1)) == 0 &&
               (flags & ~(uint32_t)WEFT_CONV_LAST) == pool;
    return flags < WEFT_CONV_FLAGS && (half || dtype == WEFT_DTYPE_F32) &&
           !(half && flags & WEFT_CONV_TF32) &&
           (flags & WEFT_CONV_BIAS || !(flags & (WEFT_CONV_Z | WEFT_CONV_RELU)));
}

/* Everything that cuDNN's choice of a plan for a convolution depends on. No padding: compared with
 * memcmp. */
typedef struct weft_conv_key {
    int64_t dim[WEFT_CONV_DIMS];
    uint32_t dtype; /* weft_dtype */
    uint32_t flags;
} weft_conv_key;

/* A plan of cuDNN: the engine for a convolution and its settings, in cuDNN's JSON. */
typedef struct weft_bundle_conv_plan {
    weft_conv_key conv;
    const char *json;
} weft_bundle_conv_plan;

/* Plans made for one architecture by one version of cuDNN; ignored by others. */
typedef struct weft_bundle_conv_plans {
    uint32_t arch;      /* of the bundle */
    const char *device; /* that the plans are chosen for, a row of base/devices.def */
    uint64_t version;   /* of cuDNN */
    const weft_bundle_conv_plan *plan;
    uint32_t n_plan;
    uint32_t n_none; /* convolutions that cuDNN has no plan for */
} weft_bundle_conv_plans;

typedef enum weft_command_kind {
    WEFT_COMMAND_KERNEL,
    WEFT_COMMAND_GEMM, /* a library's: cuBLASLt */
    WEFT_COMMAND_COPY, /* `bytes` from arg[1] to arg[0] */
    WEFT_COMMAND_FILL, /* `bytes` of zero at arg[0] */
    /* A kernel that does c, bias and act of the GEMM before it. It runs only if cuBLASLt has no
     * algorithm that fuses them; the GEMM then runs without them. */
    WEFT_COMMAND_FINISH,
    WEFT_COMMAND_CONV,    /* cuDNN's; kernels of the next two kinds follow */
    WEFT_COMMAND_AFTER,   /* does the rest of an epilogue, only if cuDNN computes the convolution */
    WEFT_COMMAND_INSTEAD, /* only if cuDNN does not */
    WEFT_COMMAND_KINDS
} weft_command_kind;

static inline bool weft_command_is_kernel(uint32_t kind)
{
    return kind == WEFT_COMMAND_KERNEL || kind == WEFT_COMMAND_FINISH ||
           kind == WEFT_COMMAND_AFTER || kind == WEFT_COMMAND_INSTEAD;
}

/* Whether a command of the kind may follow one of kind `before` (WEFT_COMMAND_KINDS: it is the
 * first). */
static inline bool weft_command_may_follow(uint32_t kind, uint32_t before)
{
    if (kind == WEFT_COMMAND_FINISH)
        return before == WEFT_COMMAND_GEMM;
    if (kind != WEFT_COMMAND_AFTER && kind != WEFT_COMMAND_INSTEAD)
        return true;
    return before == WEFT_COMMAND_CONV || before == WEFT_COMMAND_AFTER ||
           before == WEFT_COMMAND_INSTEAD;
}

/* One operation of the device. Commands of a launch run in order; one with an empty grid, matrix or
 * length is skipped. */
typedef struct weft_bundle_command {
    uint8_t kind;    /* weft_command_kind */
    uint32_t kernel; /* of the bundle, from 0 */
    weft_dim grid[3];
    const weft_bundle_arg *arg; /* in the kernel's order */
    uint32_t n_arg;
    const weft_bundle_gemm *gemm;
    const weft_bundle_conv *conv;
    weft_dim bytes;
} weft_bundle_command;

typedef struct weft_bundle_launch {
    weft_op_id op;
    const uint32_t *in; /* values; 0: omitted */
    uint32_t n_in;
    const uint32_t *out; /* values; 0: not wanted */
    uint32_t n_out;
    weft_attrs attrs;
    const char *item; /* name of its ONNX node; "": unknown */
    const weft_bundle_command
        *command; /* on a GPU; none if the result shares an operand's memory */
    uint32_t n_command;
    weft_dim scratch_bytes; /* of its commands */
    /* Of an operator with bodies: index + 1 of each in the bundle's programs; set by
     * weft_bundle_link. */
    uint32_t body[WEFT_FLOW_BODIES];
} weft_bundle_launch;

typedef struct weft_bundle_port {
    const char *name;
    uint32_t value;
    const char *format;       /* of an input that is an image: "NCHW", "NHWC", or "" */
    const char *const *label; /* of an output: names of its classes, "": none; n_label of them */
    uint32_t n_label;
} weft_bundle_port;

typedef struct weft_bundle_buffer {
    uint32_t value;
    uint64_t offset, bytes;
} weft_bundle_buffer;

typedef struct weft_bundle_bucket {
    const int64_t *symbol; /* n_symbol values */
    uint64_t arena_bytes;
    const weft_bundle_buffer *buffer;
    uint32_t n_buffer;
} weft_bundle_bucket;

typedef struct weft_bundle_symbol {
    const char *name; /* as in the ONNX file: "batch" */
    int64_t lo, hi;
} weft_bundle_symbol;

/* Dims that must agree for the sizes of a run's inputs, unless the guard is then 0. */
typedef struct weft_bundle_require {
    weft_require_kind kind;
    weft_dim a, b, guard;
    const char *item; /* node, or NULL */
    const char *what; /* "Reshape: number of elements" */
} weft_bundle_require;

/* A model that a joint program runs: its inputs and outputs follow those of the parts before. */
typedef struct weft_bundle_part {
    uint32_t program; /* index of the model's own */
    uint32_t n_in, n_out;
} weft_bundle_part;

/* Inputs of a packed program behind those of its first part: positions and starts; of several parts
 * also the part of each row. */
static inline uint32_t weft_bundle_packed_extra(uint32_t n_part)
{
    return n_part > 1 ? 3 : 2;
}

typedef struct weft_bundle_program {
    const char *name; /* of the model */
    /* What requests call a model that is a version of another, and that version, a decimal number;
     * NULL: `name`, and the version with which the bundle is loaded. */
    const char *serves, *version;
    weft_dimpool *dims; /* symbol i of `symbol` is symbol i of the pool; data symbols follow */
    const weft_bundle_symbol *symbol;
    uint32_t n_symbol;
    const weft_bundle_require *require;
    uint32_t n_require;
    const weft_bundle_value *value; /* value v is value[v - 1] */
    uint32_t n_value;
    const weft_bundle_launch *launch; /* in order of execution */
    uint32_t n_launch;
    const weft_bundle_port *input, *output;
    uint32_t n_input, n_output;
    const weft_bundle_bucket *bucket;
    uint32_t n_bucket;
    /* Symbol (index) that is dim 0 of every input and output: requests may be batched along it.
     * UINT32_MAX: the model cannot be batched. */
    uint32_t batch_symbol;
    /* Of a joint program: the models that one run executes together; a model's batch may be 0. */
    const weft_bundle_part *part;
    uint32_t n_part;
    bool is_packed; /* a joint program that runs packed sequences: weft_graph_is_packed */
    uint64_t limit; /* the joint program is used up to this total of input elements; 0: always */
    /* Models (indices of their own programs) whose answers to one input it gives: it has inputs of
     * their names, and their outputs, called MODEL/NAME, one model after the other. */
    const uint32_t *head;
    uint32_t n_head;
    /* Of a body: for each symbol, index + 1 in the pool of the program that runs it, whose value it
     * has; 0: the dims of the inputs tell it. */
    const uint32_t *outer;
    double slo_us, rate_per_s; /* from the set file, 0: none */
    bool admit_by_slo;         /* a request that would be answered after the SLO is refused */
    weft_profile profile;
} weft_bundle_program;

/* A GEMM of a program to which adapters may add: its name in their files, and its sizes. */
typedef struct weft_bundle_site {
    const char *name;
    int64_t k, n;
} weft_bundle_site;

/* What an adapter adds at a site: (x a^T) b. */
typedef struct weft_bundle_factor {
    const char *site;
    uint32_t a, b; /* weights of f32: [rank, k] and [rank, n] */
} weft_bundle_factor;

enum { WEFT_ADAPTER_NAME_MAX = 128 };

/* An adapter (LoRA) of a model. */
typedef struct weft_bundle_adapter {
    const char *name; /* differs from those of the model's other adapters */
    uint32_t program; /* index of the model's own */
    const weft_bundle_factor *factor;
    uint32_t n_factor;
} weft_bundle_adapter;

/* A task that each of its variants can do: requests name the app. */
typedef struct weft_bundle_variant {
    uint32_t program; /* index of the model's own */
    double accuracy;
} weft_bundle_variant;

typedef struct weft_bundle_app {
    const char *name;                    /* differs from those of models */
    double slo_us, rate_per_s, accuracy; /* from the set file, 0: none; accuracy: least mean */
    const weft_bundle_variant *variant;
    uint32_t n_variant;
    /* From the reader: what requests see, the first variant with the name of the app, its rate and
     * its SLO or, without one, the shortest of its variants. */
    weft_bundle_program face;
} weft_bundle_app;

typedef struct weft_bundle {
    weft_file file; /* zero when not read from a file */
    /* Checksum (XXH3) of header and section table, which have the checksums of all else: equal for
     * equal contents. 0: not read from a file. */
    uint64_t identity;
    const char *tool;                 /* "weft 0.1.0" */
    const char *target;               /* "cpu", "sm_90", "sm_80,sm_90" */
    const weft_bundle_weight *weight; /* weight w is weight[w - 1] */
    uint32_t n_weight;
    const weft_bundle_program *program; /* one a model, then the joint ones, then bodies */
    uint32_t n_program;                 /* models */
    uint32_t n_joint;
    uint32_t n_body;
    const weft_bundle_app *app; /* requests name models and apps, in this order */
    uint32_t n_app;
    const weft_bundle_adapter *adapter;
    uint32_t n_adapter;
    /* For GPUs: architectures of machine code, images of every module, kernels. */
    const char *const *arch;
    uint32_t n_arch;
    const weft_bundle_image *image;
    uint32_t n_image;
    const weft_bundle_kernel *kernel;
    uint32_t n_kernel;
    const weft_bundle_tuning *tuning;
    uint32_t n_tuning;
    const weft_bundle_conv_plans *conv_plans; /* by architecture */
    uint32_t n_conv_plans;
    const char *plan_json; /* placement, or NULL */
    weft_arena *arena;     /* owns what the reader made */
} weft_bundle;

/* Reads and checks everything but the weights' bytes. Close unmaps. */
WEFT_MUST_USE weft_err weft_bundle_open(const char *path, weft_diag *diag, weft_bundle **out);
/* The same from a descriptor, which stays open; `path` is for messages. */
WEFT_MUST_USE weft_err weft_bundle_open_fd(int fd, const char *path, weft_diag *diag,
                                           weft_bundle **out);
void weft_bundle_close(weft_bundle *bundle);
/* Sections of the file, in order: "metadata", "weights", and "code" for GPUs. Returns their number.
 */
typedef struct weft_bundle_section {
    const char *name;
    uint64_t offset, bytes;
} weft_bundle_section;

enum { WEFT_BUNDLE_SECTIONS_MAX = 8 };

uint32_t weft_bundle_sections(const weft_bundle *bundle,
                              weft_bundle_section out[WEFT_BUNDLE_SECTIONS_MAX]);
/* INPUT if the checksum of weight w (from 1) is wrong. OK for a bundle that was not read from a
 * file.
 */
WEFT_MUST_USE weft_err weft_bundle_check_weight(const weft_bundle *bundle, uint32_t w,
                                                weft_diag *diag);
/* Finds the bodies of launches and checks that they fit: INPUT if a body is missing, is run by two
 * launches, stands before its program, has ports that do not fit, or bodies nest too deep. `launch`
 * arrays are written to. */
WEFT_MUST_USE weft_err weft_bundle_link(weft_bundle *bundle, weft_diag *diag);
/* users[w - 1]: number of models that use weight w, themselves or in a body, and of adapters. After
 * weft_bundle_link; scratch memory from `arena`. */
void weft_bundle_count_users(const weft_bundle *bundle, weft_arena *arena, uint32_t *users);
/* bytes[i]: of the weights that model i uses, shared ones too, and of its largest bucket. `marked`:
 * zeros, one for each weight. After weft_bundle_link. */
void weft_bundle_count_memory(const weft_bundle *bundle, uint32_t *marked, uint64_t *bytes);
const weft_bundle_program *weft_bundle_find(const weft_bundle *bundle, const char *model);
/* The sites of a program, each name once, in `arena`; returns their number. */
uint32_t weft_bundle_sites(const weft_bundle_program *program, weft_arena *arena,
                           const weft_bundle_site **out);
/* Number, from 1, of the model's adapter in the bundle's list; 0: there is none of that name. */
uint32_t weft_bundle_find_adapter(const weft_bundle *bundle, uint32_t program, const char *name);
/* Bytes of the adapter's factors. */
uint64_t weft_bundle_adapter_bytes(const weft_bundle *bundle, const weft_bundle_adapter *adapter);
/* What requests may name: the i-th model or, after the models, the face of an app. */
uint32_t weft_bundle_faces(const weft_bundle *bundle);
const weft_bundle_program *weft_bundle_face(const weft_bundle *bundle, uint32_t i);
/* Whether requests to the app fit all its variants: inputs and outputs of equal names, types, ranks
 * and constant dims, in the same order. INPUT with a message that names the difference. */
WEFT_MUST_USE weft_err weft_bundle_check_app(const weft_bundle *bundle, const weft_bundle_app *app,
                                             weft_diag *diag);
/* What requests call the model. */
static inline const char *weft_bundle_served(const weft_bundle_program *p)
{
    return p->serves ? p->serves : p->name;
}
bool weft_tuning_is_for(const weft_bundle_tuning *tuning, const char *device, uint32_t sms,
                        uint64_t version);
/* Searches joint programs too. */
const weft_bundle_program *weft_bundle_find_any(const weft_bundle *bundle, const char *name);
/* Reports that no model has this name, and which one may be meant. Returns INPUT. `where`: no item.
 */
weft_err weft_bundle_refuse_model(const weft_bundle *bundle, const char *name, weft_where where,
                                  weft_diag *diag);
/* Index of the port called `name`; UINT32_MAX when there is none. */
uint32_t weft_bundle_find_port(const weft_bundle_port *port, uint32_t n, const char *name);
/* Checks the types of inputs (in the program's order) and computes the values of the program's
 * n_symbol symbols from their dims; a symbol that no dim determines gets its lower bound. INPUT
 * with a message on a mismatch. Does not read data. */
WEFT_MUST_USE weft_err weft_bundle_bind(const weft_bundle_program *program, const weft_tensor *in,
                                        uint32_t n_in, int64_t *out, weft_diag *diag);
/* The same for a body: `known` has values of symbols from the program around it, -1 where it has
 * none. A symbol that nothing determines keeps -1. */
WEFT_MUST_USE weft_err weft_bundle_bind_body(const weft_bundle_program *program,
                                             const int64_t *known, const weft_tensor *in,
                                             uint32_t n_in, int64_t *out, weft_diag *diag);
/* `path` "-" is standard output. Weights are not copied. */
WEFT_MUST_USE weft_err weft_bundle_write(const weft_bundle *bundle, const char *path,
                                         weft_diag *diag);

#endif
