/* Commands of launches on GPUs: valid commands pass, and each kind of invalid command is refused
 * with its message. Runs on the null driver, so no GPU is needed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/kernel/kernel.h"

#include <stdlib.h>
#include <string.h>

/* y = relu(x), x [n, 4], for two architectures: a kernel, then a GEMM, a copy and a fill that use
 * scratch memory. */
typedef struct fixture {
    weft_arena *arena;
    weft_diag *diag;
    weft_bundle bundle;
    weft_bundle_program program;
    weft_bundle_value value[2];
    weft_bundle_launch launch;
    weft_bundle_port input, output;
    weft_bundle_symbol symbol;
    weft_bundle_kernel kernel;
    weft_bundle_resource resource[2];
    weft_bundle_command command[4];
    weft_bundle_arg arg[4], move[2], zero[1];
    weft_bundle_gemm gemm;
    weft_bundle_conv conv;
    uint32_t operand, result;
    weft_attr attr;
    const char *steps[1];
    const char *arch[2];
    weft_dim n;
} fixture;

static void init_commands(fixture *f)
{
    weft_dimpool *pool = f->program.dims;
    weft_dim bytes = weft_dim_mul(pool, f->n, 16);
    f->arg[0] = (weft_bundle_arg){.kind = WEFT_COMMAND_ARG_IN, .index = 0};
    f->arg[1] = (weft_bundle_arg){.kind = WEFT_COMMAND_ARG_OUT, .index = 0};
    f->arg[2] = (weft_bundle_arg){.kind = WEFT_COMMAND_ARG_INT, .dim = weft_dim_mul(pool, f->n, 4)};
    f->arg[3] = (weft_bundle_arg){.kind = WEFT_COMMAND_ARG_FLOAT, .f = 0.5f};
    f->move[0] = (weft_bundle_arg){.kind = WEFT_COMMAND_ARG_OUT, .index = 0};
    f->move[1] = (weft_bundle_arg){.kind = WEFT_COMMAND_ARG_SCRATCH, .dim = 256};
    f->zero[0] = (weft_bundle_arg){.kind = WEFT_COMMAND_ARG_SCRATCH};
    /* scratch[n, 4] = x * transpose(first four rows of x) */
    f->gemm = (weft_bundle_gemm){.dtype = WEFT_DTYPE_F32,
                                 .trans_b = true,
                                 .m = f->n,
                                 .n = 4,
                                 .k = 4,
                                 .batch = 1,
                                 .a = f->arg[0],
                                 .b = f->arg[0],
                                 .d = f->move[1],
                                 .lda = 4,
                                 .ldb = 4,
                                 .ldc = 4,
                                 .ldd = 4,
                                 .alpha = 1};
    f->command[0] = (weft_bundle_command){
        .kind = WEFT_COMMAND_KERNEL, .grid = {f->n, 1, 1}, .arg = f->arg, .n_arg = 4};
    f->command[1] = (weft_bundle_command){.kind = WEFT_COMMAND_GEMM, .gemm = &f->gemm};
    f->command[2] = (weft_bundle_command){
        .kind = WEFT_COMMAND_COPY, .arg = f->move, .n_arg = 2, .bytes = bytes};
    f->command[3] =
        (weft_bundle_command){.kind = WEFT_COMMAND_FILL, .arg = f->zero, .n_arg = 1, .bytes = 256};
    f->launch.command = f->command;
    f->launch.n_command = 4;
    f->launch.scratch_bytes = weft_dim_add(pool, bytes, 256);
}

static void init(fixture *f)
{
    memset(f, 0, sizeof *f);
    f->arena = weft_arena_create(0);
    f->diag = weft_diag_create();
    f->program.dims = weft_dimpool_create(f->arena);
    f->n = weft_dim_symbol(f->program.dims, "n", 0, 1 << 20);
    for (int v = 0; v < 2; v++) {
        f->value[v].type = (weft_ttype){.dtype = WEFT_DTYPE_F32, .rank = 2};
        f->value[v].type.dim[0] = f->n;
        f->value[v].type.dim[1] = 4;
    }
    f->operand = 1;
    f->result = 2;
    f->steps[0] = "relu i0";
    f->attr = (weft_attr){.key = WEFT_ATTR_STEPS, .kind = WEFT_KIND_STRS, .n = 1};
    f->attr.u.strs = f->steps;
    f->launch = (weft_bundle_launch){.op = WEFT_OP_EW,
                                     .in = &f->operand,
                                     .n_in = 1,
                                     .out = &f->result,
                                     .n_out = 1,
                                     .attrs = {&f->attr, 1},
                                     .item = "node"};
    f->input = (weft_bundle_port){.name = "x", .value = 1};
    f->output = (weft_bundle_port){.name = "y", .value = 2};
    f->symbol = (weft_bundle_symbol){.name = "n", .lo = 0, .hi = 1 << 20};
    f->resource[0] = f->resource[1] = (weft_bundle_resource){.registers = 64, .shared_bytes = 1024};
    f->kernel = (weft_bundle_kernel){
        .name = "k", .threads = 128, .shared_bytes = 65536, .resource = f->resource};
    f->arch[0] = "sm_80";
    f->arch[1] = "sm_90";
    init_commands(f);
    f->program.name = "m";
    f->program.symbol = &f->symbol;
    f->program.n_symbol = 1;
    f->program.value = f->value;
    f->program.n_value = 2;
    f->program.launch = &f->launch;
    f->program.n_launch = 1;
    f->program.input = &f->input;
    f->program.n_input = 1;
    f->program.output = &f->output;
    f->program.n_output = 1;
    f->bundle = (weft_bundle){.target = "sm_80,sm_90",
                              .program = &f->program,
                              .n_program = 1,
                              .arch = f->arch,
                              .n_arch = 2,
                              .kernel = &f->kernel,
                              .n_kernel = 1};
}

static void finish(fixture *f)
{
    weft_diag_destroy(f->diag);
    weft_arena_destroy(f->arena);
}

/* One run with n rows on the null driver. */
static weft_err run(fixture *f, int64_t n)
{
    weft_engine *engine;
    weft_session *session;
    float *x = calloc(4 * (size_t)n + 1, sizeof *x);
    weft_tensor in = {.dtype = WEFT_DTYPE_F32, .rank = 2, .dim = {n, 4}, .data = x}, out;
    assert_int_equal(weft_engine_open_bundle(&f->bundle, &(weft_engine_options){.driver = "null"},
                                             f->diag, &engine),
                     WEFT_ERR_OK);
    assert_int_equal(weft_session_open(engine, "m", f->diag, &session), WEFT_ERR_OK);
    weft_err err = weft_session_run(session, &in, 1, f->diag, &out, 1);
    weft_session_close(session);
    weft_engine_close(engine);
    free(x);
    return err;
}

/* x taken for queries, keys and values of f16: one head of eight columns, n rows; instead of the
 * GEMM. */
static void put_attention(fixture *f)
{
    f->conv = (weft_bundle_conv){.dtype = WEFT_DTYPE_F16,
                                 .flags = WEFT_CONV_ATTENTION | WEFT_CONV_Z,
                                 .dim = {1, 1, f->n, f->n, 8, 8, 8, 8, 8},
                                 .x = f->arg[0],
                                 .w = f->arg[0],
                                 .y = f->arg[1],
                                 .z = f->arg[0]};
    f->command[1] = (weft_bundle_command){.kind = WEFT_COMMAND_CONV, .conv = &f->conv};
}

/* The same with a mask of one row for each. */
static void put_masked(fixture *f)
{
    put_attention(f);
    f->conv.flags |= WEFT_CONV_BIAS;
    f->conv.bias = f->move[1];
    f->conv.dim[WEFT_ATTENTION_MASK] = f->conv.dim[WEFT_ATTENTION_MASK + 1] = 1;
    f->conv.dim[WEFT_ATTENTION_MASK + 2] = f->n;
}

/* x taken for an image of n pixels and four channels of f32. */
static void put_pool(fixture *f)
{
    f->conv = (weft_bundle_conv){.dtype = WEFT_DTYPE_F32,
                                 .flags = WEFT_CONV_MAX_POOL | WEFT_CONV_LAST,
                                 .dim = {1, 4, 4, 1},
                                 .x = f->arg[0],
                                 .y = f->arg[1]};
    for (int i = 0; i < 3; i++) {
        f->conv.dim[WEFT_CONV_IN + i] = f->conv.dim[WEFT_CONV_OUT + i] = i < 2 ? 1 : f->n;
        f->conv.dim[WEFT_CONV_KERNEL + i] = f->conv.dim[WEFT_CONV_STRIDE + i] = 1;
        f->conv.dim[WEFT_CONV_DILATION + i] = 1;
    }
    f->command[1] = (weft_bundle_command){.kind = WEFT_COMMAND_CONV, .conv = &f->conv};
}

static void test_command__valid_convolutions_pass(void **state)
{
    (void)state;
    static void (*const put[])(fixture * f) = {put_attention, put_masked, put_pool};
    for (size_t i = 0; i < sizeof put / sizeof *put; i++) {
        fixture f;
        init(&f);
        put[i](&f);
        assert_int_equal(run(&f, 4), WEFT_ERR_OK);
        assert_int_equal(run(&f, 0), WEFT_ERR_OK);
        finish(&f);
    }
}

static void test_command__valid_commands_pass(void **state)
{
    (void)state;
    fixture f;
    init(&f);
    assert_int_equal(run(&f, 4), WEFT_ERR_OK);
    assert_int_equal(run(&f, 1000), WEFT_ERR_OK);
    assert_int_equal(run(&f, 0), WEFT_ERR_OK);
    finish(&f);
}

/* -- What is refused -------------------------------------------------------------------------- */

#define BREAK(name, statement)   \
    static void name(fixture *f) \
    {                            \
        statement;               \
    }

BREAK(no_commands, f->launch.n_command = 0)
BREAK(no_kernel, f->command[0].kernel = 1)
BREAK(wide_grid, f->command[0].grid[1] = 65536)
BREAK(negative_grid, f->command[0].grid[2] = -1)
BREAK(no_operand, f->arg[0].index = 1)
BREAK(odd_offset, f->arg[0].dim = 2)
BREAK(far_offset, f->arg[1].dim = 4096)
BREAK(negative_offset, f->arg[1].dim = -4)
BREAK(no_kind, f->arg[2].kind = WEFT_COMMAND_ARG_KINDS)
BREAK(none_kind, f->arg[2].kind = WEFT_COMMAND_ARG_NONE)
BREAK(long_int, f->arg[2].dim = (int64_t)1 << 31)
BREAK(no_symbol, f->arg[2].dim = weft_dim_symbol(f->program.dims, "other", 0, 9))
BREAK(no_command_kind, f->command[3].kind = WEFT_COMMAND_KINDS)
BREAK(long_copy, f->command[2].bytes = 65)
BREAK(negative_copy, f->command[2].bytes = -1)
BREAK(copy_of_one, f->command[2].n_arg = 1)
BREAK(copy_into_operand, f->move[0].kind = WEFT_COMMAND_ARG_IN)
BREAK(copy_of_number, f->move[1].kind = WEFT_COMMAND_ARG_INT)
BREAK(copy_of_itself, f->move[0] = f->move[1]; f->move[0].dim = 316; f->command[2].bytes = 4;
      f->move[1].dim = 316)
BREAK(copy_that_overlaps, f->move[0] = f->move[1]; f->move[0].dim = 248; f->command[2].bytes = 12)
BREAK(long_fill, f->command[3].bytes = 321)
BREAK(small_scratch, f->launch.scratch_bytes = 300)
BREAK(negative_scratch, f->launch.scratch_bytes = -1)
BREAK(no_gemm, f->command[1].gemm = NULL)
BREAK(gemm_of_ints, f->gemm.dtype = WEFT_DTYPE_I32)
BREAK(gemm_act, f->gemm.act = WEFT_GEMM_ACTS)
BREAK(gemm_of_nothing, f->gemm.k = 0)
BREAK(gemm_of_negative, f->gemm.m = -1)
BREAK(gemm_reach, f->gemm.n = 5; f->gemm.ldd = 5)
BREAK(gemm_rows, f->gemm.lda = 3)
BREAK(gemm_batch, f->gemm.batch = 2; f->gemm.stride_a = 4; f->gemm.stride_d = 16)
BREAK(gemm_stride, f->gemm.batch = 2; f->gemm.stride_a = INT64_MAX / 2)
BREAK(gemm_c, f->gemm.beta = 1)
BREAK(gemm_target, f->gemm.d.kind = WEFT_COMMAND_ARG_IN)
BREAK(gemm_bias, f->gemm.bias.kind = WEFT_COMMAND_ARG_FLOAT)
BREAK(long_bias, f->gemm.bias = f->arg[0]; f->gemm.bias.dim = 56)
BREAK(odd_bias, f->gemm.bias = f->move[1]; f->gemm.bias.dim = 2)
BREAK(no_conv, put_pool(f); f->command[1].conv = NULL)
BREAK(attention_of_f32, put_attention(f); f->conv.dtype = WEFT_DTYPE_F32)
BREAK(attention_relu, put_attention(f); f->conv.flags |= WEFT_CONV_RELU)
BREAK(attention_size, put_attention(f); f->conv.dim[WEFT_ATTENTION_HEAD] = -8)
BREAK(attention_count, put_attention(f); f->conv.dim[WEFT_ATTENTION_BATCH] = INT32_MAX)
BREAK(attention_steps, put_attention(f); f->conv.dim[WEFT_ATTENTION_STEP + 1] = 7)
BREAK(attention_rows, put_attention(f); f->conv.dim[WEFT_ATTENTION_ROWS] = 5)
BREAK(attention_keys, put_attention(f); f->conv.dim[WEFT_ATTENTION_KEYS] = 5)
BREAK(attention_reach, put_attention(f); f->conv.dim[WEFT_ATTENTION_STEP + 3] = 9)
BREAK(attention_far, put_attention(f); f->conv.dim[WEFT_ATTENTION_STEP + 2] = INT32_MAX)
BREAK(attention_target, put_attention(f); f->conv.y = f->arg[0])
BREAK(mask_size, put_masked(f); f->conv.dim[WEFT_ATTENTION_MASK] = 2)
BREAK(mask_reach, put_masked(f); f->conv.bias.dim = 300)
BREAK(two_pools, put_pool(f); f->conv.flags |= WEFT_CONV_MEAN_POOL)
BREAK(pool_channels, put_pool(f); f->conv.dim[WEFT_CONV_FEATURES] = 2)
BREAK(pool_dilation, put_pool(f); f->conv.dim[WEFT_CONV_DILATION + 1] = 2)
BREAK(pool_reach, put_pool(f); f->conv.dim[WEFT_CONV_IN + 1] = 2)
BREAK(pool_result, put_pool(f); f->conv.dim[WEFT_CONV_OUT + 1] = 2)
BREAK(no_threads, f->kernel.threads = 0)
BREAK(many_threads, f->kernel.threads = 1025)
BREAK(much_shared, f->kernel.shared_bytes = 163 << 10)
BREAK(many_registers, f->resource[1].registers = 513)

static const struct {
    void (*damage)(fixture *f);
    weft_err err;
    const char *text;
} table[] = {
    {no_commands, WEFT_ERR_UNSUP, "no commands to run it on a GPU"},
    {no_kernel, WEFT_ERR_INPUT, "command 1: its kernel is not in the bundle"},
    {wide_grid, WEFT_ERR_INPUT, "command 1: the grid is larger"},
    {negative_grid, WEFT_ERR_INPUT, "the grid is larger"},
    {no_operand, WEFT_ERR_INPUT, "an operand that is not present"},
    {odd_offset, WEFT_ERR_INPUT, "does not start at an element"},
    {far_offset, WEFT_ERR_INPUT, "past the end of its operand"},
    {negative_offset, WEFT_ERR_INPUT, "an offset is negative"},
    {no_kind, WEFT_ERR_INPUT, "an argument has an unknown kind"},
    {none_kind, WEFT_ERR_INPUT, "an argument has an unknown kind"},
    {long_int, WEFT_ERR_INPUT, "does not fit in 32 bits"},
    {no_symbol, WEFT_ERR_INPUT, "an argument has no value"},
    {no_command_kind, WEFT_ERR_INPUT, "command 4: unknown kind"},
    {long_copy, WEFT_ERR_INPUT, "command 3: it accesses memory past the end"},
    {negative_copy, WEFT_ERR_INPUT, "its length is negative"},
    {copy_of_one, WEFT_ERR_INPUT, "a copy needs two addresses"},
    {copy_into_operand, WEFT_ERR_INPUT, "neither a result nor scratch memory"},
    {copy_of_number, WEFT_ERR_INPUT, "the source is not an operand"},
    {copy_of_itself, WEFT_ERR_INPUT, "command 3: the source and the target of a copy overlap"},
    {copy_that_overlaps, WEFT_ERR_INPUT, "command 3: the source and the target of a copy overlap"},
    {long_fill, WEFT_ERR_INPUT, "command 4: it accesses memory past the end"},
    {small_scratch, WEFT_ERR_INPUT, "command 2: it accesses memory past the end"},
    {negative_scratch, WEFT_ERR_INPUT, "scratch memory has no size"},
    {no_gemm, WEFT_ERR_INPUT, "a GEMM has an unsupported type"},
    {gemm_of_ints, WEFT_ERR_INPUT, "a GEMM has an unsupported type"},
    {gemm_act, WEFT_ERR_INPUT, "a GEMM has an unsupported type"},
    {gemm_of_nothing, WEFT_ERR_INPUT, "a GEMM has a k of 0"},
    {gemm_of_negative, WEFT_ERR_INPUT, "a matrix is too large"},
    {gemm_reach, WEFT_ERR_INPUT, "command 2: it accesses memory past the end"},
    {gemm_rows, WEFT_ERR_INPUT, "rows of a matrix overlap"},
    {gemm_batch, WEFT_ERR_INPUT, "command 2: it accesses memory past the end"},
    {gemm_stride, WEFT_ERR_INPUT, "a matrix is too large"},
    {gemm_c, WEFT_ERR_INPUT, "there is no matrix c"},
    {gemm_target, WEFT_ERR_INPUT, "neither a result nor scratch memory"},
    {gemm_bias, WEFT_ERR_INPUT, "a bias is not an operand"},
    {long_bias, WEFT_ERR_INPUT, "command 2: it accesses memory past the end"},
    {odd_bias, WEFT_ERR_INPUT, "command 2: a bias does not start at an element"},
    {no_conv, WEFT_ERR_INPUT, "a convolution has an unsupported type"},
    {attention_of_f32, WEFT_ERR_INPUT, "a convolution has an unsupported type"},
    {attention_relu, WEFT_ERR_INPUT, "a convolution has an unsupported type"},
    {attention_size, WEFT_ERR_INPUT, "attention has a wrong size"},
    {attention_count, WEFT_ERR_INPUT, "attention has a wrong size"},
    {attention_steps, WEFT_ERR_INPUT, "rows of attention overlap"},
    {attention_rows, WEFT_ERR_INPUT, "command 2: it accesses memory past the end"},
    {attention_keys, WEFT_ERR_INPUT, "command 2: it accesses memory past the end"},
    {attention_reach, WEFT_ERR_INPUT, "command 2: it accesses memory past the end"},
    {attention_far, WEFT_ERR_INPUT, "command 2: it accesses memory past the end"},
    {attention_target, WEFT_ERR_INPUT, "neither a result nor scratch memory"},
    {mask_size, WEFT_ERR_INPUT, "a mask of attention has other sizes"},
    {mask_reach, WEFT_ERR_INPUT, "command 2: it accesses memory past the end"},
    {two_pools, WEFT_ERR_INPUT, "a convolution has an unsupported type"},
    {pool_dilation, WEFT_ERR_INPUT, "pooling has dilations"},
    {pool_channels, WEFT_ERR_INPUT, "pooling has other channels than its result"},
    {pool_reach, WEFT_ERR_INPUT, "command 2: it accesses memory past the end"},
    {pool_result, WEFT_ERR_INPUT, "command 2: it accesses memory past the end"},
    {no_threads, WEFT_ERR_INPUT, "a block has 0 threads"},
    {many_threads, WEFT_ERR_INPUT, "a block has 1025 threads"},
    {much_shared, WEFT_ERR_UNSUP, "sm_80 has 166912"},
    {many_registers, WEFT_ERR_UNSUP, "sm_90 has 65536"},
};

static void test_command__invalid_commands_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        fixture f;
        init(&f);
        table[i].damage(&f);
        weft_err err = run(&f, 4);
        const char *text = weft_diag_count(f.diag) ? weft_diag_at(f.diag, 0)->text : "";
        if (err != table[i].err || !strstr(text, table[i].text))
            fail_msg("row %zu: %s: %s; not: %s", i, weft_err_name(err), text, table[i].text);
        finish(&f);
    }
}

/* An empty launch is left out whatever its kernel. */
static void test_command__empty_commands_are_left_out(void **state)
{
    (void)state;
    fixture f;
    weft_command_list *commands;
    init(&f);
    weft_engine engine = {.bundle = &f.bundle};
    weft_slot slot[2] = {{.present = true, .align = 64}, {.present = true, .align = 64}};
    int64_t n = 4;
    for (int i = 0; i < 2; i++)
        slot[i].tensor = (weft_tensor){.dtype = WEFT_DTYPE_F32, .rank = 2, .dim = {n, 4}};
    weft_prep prep = {.engine = &engine,
                      .op = WEFT_OP_EW,
                      .in = &slot[0],
                      .out = &slot[1],
                      .n_in = 1,
                      .n_out = 1,
                      .diag = f.diag,
                      .program = &f.program,
                      .launch = &f.launch,
                      .symbol = &n,
                      .n_symbol = 1};
    f.command[0].grid[1] = 0;
    f.gemm.batch = 0;
    f.command[3].bytes = 0;
    assert_int_equal(weft_command__make_list(&prep, &commands), WEFT_ERR_OK);
    assert_int_equal(commands->n, 1);
    assert_int_equal(commands->at[0].kind, WEFT_COMMAND_COPY);
    assert_int_equal(commands->at[0].bytes, 64);
    assert_int_equal(commands->scratch_bytes, 320);
    assert_int_equal(commands->at[0].arg[1].ref.at, 2);
    assert_int_equal(commands->at[0].arg[1].ref.offset, 256);
    assert_int_equal(commands->access[1] & WEFT_ACCESS_WRITE, WEFT_ACCESS_WRITE);
    free(commands);
    finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_command__valid_commands_pass),
        cmocka_unit_test(test_command__valid_convolutions_pass),
        cmocka_unit_test(test_command__invalid_commands_are_refused),
        cmocka_unit_test(test_command__empty_commands_are_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
