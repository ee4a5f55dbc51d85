/* Private to tests/ptx: decoded modules (ptx_parse.c), the state of a launch, memory and its shadow
 * (ptx_memory.c), instructions (ptx_exec.c). */
#ifndef WEFT_TESTS_PTX_INT_H
#define WEFT_TESTS_PTX_INT_H

#include "tests/ptx/ptx.h"

enum { PTX_LANES = 32, PTX_OPERANDS = 16, PTX_TYPES_MAX = 4, PTX_NAME = 640 };

typedef enum ptx_op {
#define OP(name) PTX_##name,
#include "tests/ptx/ptx_names.def"
    PTX_OP_COUNT
} ptx_op;

typedef enum ptx_type {
    PTX_NONE,
#define TYPE(name, bytes, kind) PTX_##name,
#include "tests/ptx/ptx_names.def"
} ptx_type;

unsigned ptx_type_bytes(ptx_type t);
char ptx_type_kind(ptx_type t);

enum {
#define FLAG(name) PTX_F_##name,
#include "tests/ptx/ptx_names.def"
    PTX_FLAG_COUNT
};

typedef enum ptx_space { PTX_GLOBAL, PTX_SHARED, PTX_LOCAL, PTX_PARAM, PTX_GENERIC } ptx_space;

/* One instruction. Operands are numbers of registers; constants, special registers and addresses of
 * variables are registers that are set before the kernel starts. */
typedef struct ptx_insn {
    ptx_op op;
    ptx_type type; /* the last one */
    ptx_type types[PTX_TYPES_MAX];
    unsigned n_type;
    ptx_space space;
    unsigned vec; /* of ld and st */
    int guard;    /* register of the predicate; -1: none */
    bool guard_not;
    int64_t offset[2]; /* of its addresses, in order */
    unsigned n_address;
    int target; /* of bra: an instruction; of call: a function of the module */
    unsigned n; /* operands */
    int a[PTX_OPERANDS];
    bool negated[PTX_OPERANDS]; /* !%p */
    unsigned group[5];          /* {}-lists and single operands: where the i-th begins */
    unsigned n_group;
    uint64_t flags[2]; /* bits PTX_F_ */
    int orders;        /* of setp: 1 less, 2 equal, 4 greater, 8 unordered */
    const char *text;  /* in the module's text, to the ';' */
} ptx_insn;

static inline bool ptx_has(const ptx_insn *i, unsigned flag)
{
    return i->flags[flag / 64] >> flag % 64 & 1;
}

typedef struct ptx_register {
    char name[PTX_NAME];
    unsigned width; /* bytes */
    enum { PTX_PLAIN, PTX_CONSTANT, PTX_SPECIAL, PTX_SHARED_ADDRESS, PTX_DYNAMIC_ADDRESS } kind;
    uint64_t value;
} ptx_register;

typedef struct ptx_param {
    char name[PTX_NAME];
    unsigned bytes, at; /* `at`: of a formal parameter */
} ptx_param;

/* A kernel or a function. A function's result and its parameters are variables in its local memory.
 */
typedef struct ptx_kernel {
    char name[PTX_NAME];
    ptx_param *param;
    unsigned n_param;
    bool is_function;
    ptx_param *formal; /* in local memory: results, then parameters */
    unsigned n_formal;
    ptx_register *reg;
    unsigned n_reg;
    ptx_insn *insn;
    unsigned n_insn;
    unsigned shared_bytes, local_bytes;
    unsigned threads; /* .maxntid */
} ptx_kernel;

/* A .global variable of the module with its initial bytes. */
typedef struct ptx_variable {
    char name[PTX_NAME];
    unsigned char *at;
    size_t bytes;
} ptx_variable;

struct ptx_module {
    char *text;
    ptx_kernel *kernel;
    unsigned n_kernel;
    ptx_variable *variable;
    unsigned n_variable;
    ptx_count count;
    char fault[1200];
};

/* -- A launch -------------------------------------------------------------------------------- */

/* The last accesses of a byte. An epoch is a stretch between two barriers of one block; numbers of
 * epochs grow over the whole launch, so that they also tell blocks apart. 0: none. */
typedef struct ptx_shadow {
    uint32_t write_epoch, read_epoch;
    uint16_t writer, reader; /* thread + 1; MANY: several threads, or several blocks */
    uint16_t pending;        /* thread + 1 whose cp.async is on its way */
    uint16_t unused;
} ptx_shadow;

typedef struct ptx_copy {
    uint32_t to; /* in shared memory */
    uint32_t bytes, given;
    uint64_t from;
} ptx_copy;

/* Asynchronous copies of one thread, in the order of their issue. */
typedef struct ptx_copies {
    ptx_copy *at;
    unsigned n, room;
    unsigned *group_end; /* committed groups: the end of each in `at` */
    unsigned n_group, group_room;
} ptx_copies;

typedef struct ptx_warp {
    uint64_t *reg; /* [register][lane] */
    bool filled;   /* registers have values */
    bool together; /* all lanes that are ready are at `at`; pc[] is not kept */
    int at, pc[PTX_LANES];
    uint32_t live, at_barrier;
    uint32_t waiting, named[PTX_LANES]; /* at an instruction for the lanes that it names */
    uint32_t carry;                     /* a lane's carry flag */
    unsigned first_thread;
    unsigned char *local; /* [lane][bytes] */
} ptx_warp;

typedef struct ptx_state {
    ptx_module *m;
    const ptx_kernel *k;
    const ptx_launch *launch;
    unsigned char *shared;
    ptx_shadow *shadow; /* of shared memory */
    unsigned shared_bytes;
    ptx_shadow **memory_shadow; /* [memory], made when first used */
    size_t last_memory;
    ptx_copies *copies;     /* [thread] */
    ptx_warp *warp, *frame; /* frame: the warp that runs, or its function */
    unsigned n_warp;
    unsigned block[3];
    uint32_t epoch, block_epoch; /* now; the first of this block */
    uint64_t random;
    const ptx_insn *insn; /* for messages */
    bool faulted;
} ptx_state;

uint64_t ptx_random(ptx_state *s);
/* Records the first fault of the launch, with place and instruction. thread: -1: none. */
void ptx_fail(ptx_state *s, int thread, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Shared memory in generic addresses. */
#define PTX_SHARED_WINDOW ((uint64_t)1 << 60)
#define PTX_LOCAL_WINDOW  ((uint64_t)1 << 61)

/* Checks an access and returns the bytes; NULL: a fault, recorded. `pending`: by cp.async. */
unsigned char *ptx_touch(ptx_state *s, unsigned thread, ptx_space space, uint64_t at,
                         unsigned bytes, bool write);
void ptx_copy_async(ptx_state *s, unsigned thread, uint64_t to, uint64_t from, unsigned bytes,
                    unsigned given);
void ptx_copy_commit(ptx_state *s, unsigned thread);
void ptx_copy_wait(ptx_state *s, unsigned thread, unsigned pending);
void ptx_count_banks(ptx_state *s, const uint32_t at[PTX_LANES], uint32_t mask, unsigned bytes);

/* Executes an instruction that is neither a branch nor a barrier for the lanes of `mask`. */
void ptx_execute(ptx_state *s, ptx_warp *w, const ptx_insn *i, uint32_t mask);

#endif
