/* Mistakes planted in the PTX of Weft's own kernels, one at a time: a barrier is dropped, one more
 * group of asynchronous copies may be pending, a commit is dropped, a matrix is (not) transposed, a
 * shuffle takes another lane, a copy is dropped. The interpreter must find a fault, or the results
 * must differ from those of the kernel. Mutants of instructions that the launches never reach are
 * not counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/cuda_case.h"

typedef struct mutation {
    const char *name;
    const char *find;    /* an instruction that contains it ... */
    const char *replace; /* ... gets this instead; NULL: is dropped */
    unsigned silent;     /* mutants that change nothing that can be observed */
} mutation;

static const mutation mutations[] = {
    /* The first barrier of a reduction over a block guards its memory from an earlier use, which
     * softmax does not have: its two reductions have memory of their own. */
    {"a barrier dropped", "bar.sync", NULL, 2},
    {"one more group pending", "cp.async.wait_group 1", "cp.async.wait_group 2", 0},
    {"one more group pending", "cp.async.wait_group 2", "cp.async.wait_group 3", 0},
    {"a commit dropped", "cp.async.commit_group", NULL, 0},
    {"not transposed", ".x4.trans.shared", ".x4.shared", 0},
    {"transposed", "m8n8.x4.shared", "m8n8.x4.trans.shared", 0},
    /* Of the last shuffle of a reduction only lane 0 is used, and its neighbour is lane 1 either
       way. */
    {"another lane", "shfl.sync.bfly", "shfl.sync.idx", 2},
    {"a copy dropped", "cp.async.cg", NULL, 0},
};

/* What is tried: graphs whose loops take several rounds, and so that only one tile is used. */
static const char graphs[] =
    "wir 1 kernel\n"
    "graph @gemm (%a : f16[40,136], %b : f16[136,40]) {\n"
    "  %y : f16[40,40] = matmul %a, %b {epilogue = [\"relu acc\"]}\n  return \"y\" %y\n}\n"
    "graph @gemm_f32 (%a : f32[40,56], %b : f32[40,56]) {\n"
    "  %y : f32[40,40] = matmul %a, %b {trans_b = 1, epilogue = [\"relu acc\"]}\n"
    "  return \"y\" %y\n}\n"
    "graph @conv (%a : f16[2,16,9,9], %k : f16[24,16,3,3]) {\n"
    "  %y : f16[2,24,9,9] = conv %a, %k {pads = [1, 1, 1, 1]}\n  return \"y\" %y\n}\n"
    "graph @conv_f32 (%a : f32[2,8,9,9], %k : f32[24,8,3,3]) {\n"
    "  %y : f32[2,24,9,9] = conv %a, %k {pads = [1, 1, 1, 1]}\n  return \"y\" %y\n}\n"
    "graph @attention (%q : f16[1,40,64], %k : f16[1,150,64], %v : f16[1,150,64]) {\n"
    "  %y : f16[1,40,64] = attention %q, %k, %v {heads = 2, head_dim = 32}\n"
    "  return \"y\" %y\n}\n"
    "graph @attention_f32 (%q : f32[1,40,64], %k : f32[1,150,64], %v : f32[1,150,64]) {\n"
    "  %y : f32[1,40,64] = attention %q, %k, %v {heads = 2, head_dim = 32}\n"
    "  return \"y\" %y\n}\n"
    "graph @norm (%a : f32[5,1500]) {\n  %y : f32[5,1500] = softmax %a\n"
    "  return \"y\" %y\n}\n"
    "graph @turn (%a : f32[70,50]) {\n  %y : f32[50,70] = transpose %a\n"
    "  return \"y\" %y\n}\n";

typedef struct inputs {
    weft_tensor in[CUDA_CASE_PORTS], want;
    uint32_t n;
} inputs;

static void make_inputs(cuda_case *c, uint32_t graph, inputs *x)
{
    weft_graph *g = weft_graph_at(c->m, graph);
    uint64_t seed = graph;
    x->n = weft_graph_input_count(g);
    for (uint32_t i = 0; i < x->n; i++) {
        const weft_ttype *t = weft_val_ttype(c->m, weft_graph_input(g, i));
        x->in[i] = (weft_tensor){.dtype = (weft_dtype)t->dtype, .rank = t->rank};
        memcpy(x->in[i].dim, t->dim, sizeof *t->dim * t->rank);
        x->in[i].data = malloc(weft_tensor_bytes(&x->in[i]));
        for (int64_t k = 0; k < weft_tensor_numel(&x->in[i]); k++)
            cuda_case_put(x->in[i].dtype, x->in[i].data, k, cuda_case_random(&seed));
    }
    weft_tensor out;
    cuda_case_go(c, graph, x->in, 0, 1, &out);
    if (*c->host->fault)
        fail_msg("%s: %s", weft_graph_name(g), c->host->fault);
    x->want = out;
    x->want.data = malloc(weft_tensor_bytes(&out));
    memcpy(x->want.data, out.data, weft_tensor_bytes(&out));
}

/* Whether results differ from those of the kernel as it is; equal bits are expected of it. */
static bool differs(const inputs *x, const weft_tensor *have)
{
    return memcmp(have->data, x->want.data, weft_tensor_bytes(have)) != 0;
}

/* A copy of the text with `by` in the place of `found` bytes at `at`; found = 0: of the whole
 * instruction, with its guard. */
static char *mutate(const char *text, const char *at, size_t found, const char *by)
{
    const char *from = at, *to = at + found;
    if (!found) {
        to += strcspn(to, ";") + 1;
        while (from > text && from[-1] != '\n' && from[-1] != ';')
            from--;
    }
    weft_buf copy = {0};
    weft_buf_printf(&copy, "%.*s%s%s", (int)(from - text), text, by, to);
    assert_non_null(copy.at);
    return copy.at;
}

typedef struct tally {
    unsigned planted, found, unreached;
} tally;

/* Whether a launch of the graphs with this PTX faults or has another result. */
static bool is_caught(cuda_case *c, inputs *x, uint32_t n_graph, const char *text)
{
    char error[300];
    void *was = c->host->object;
    bool caught = false;
    c->host->object = ptx_load(text, error, sizeof error);
    if (!c->host->object)
        fail_msg("%s", error);
    for (uint32_t g = 0; g < n_graph && !caught; g++) {
        weft_tensor out;
        *c->host->fault = 0;
        cuda_case_go(c, g, x[g].in, 0, 1, &out);
        caught = *c->host->fault || differs(&x[g], &out);
    }
    ptx_unload(c->host->object);
    c->host->object = was;
    return caught;
}

static void try_mutation(cuda_case *c, inputs *x, uint32_t n_graph, const char *ptx,
                         const mutation *m, tally *t)
{
    for (const char *at = ptx; (at = strstr(at, m->find)) != NULL; at += strlen(m->find)) {
        size_t found = strlen(m->find);
        if (m->find[found - 1] >= '0' && m->find[found - 1] <= '9' && at[found] != ';')
            continue;
        t->planted++;
        char *text = mutate(ptx, at, m->replace ? found : 0, m->replace ? m->replace : "");
        char *trap = mutate(ptx, at, 0, "trap;");
        if (is_caught(c, x, n_graph, text)) {
            t->found++;
        } else if (!is_caught(c, x, n_graph, trap)) {
            t->unreached++;
        } else {
            const char *entry = ptx, *next;
            while ((next = strstr(entry + 1, ".entry ")) != NULL && next < at)
                entry = next;
            print_message("not found: %s, %.60s, byte %zu of its kernel\n", m->name, entry,
                          (size_t)(at - entry));
        }
        free(text);
        free(trap);
    }
}

static void test_mutants__are_found(void **state)
{
    (void)state;
    cuda_case *c = cuda_case_start_as(graphs, false);
    uint32_t n_graph = weft_graph_count(c->m);
    inputs *x = calloc(n_graph, sizeof *x);
    char *ptx = cuda_ptx_text(cuda_case_text);
    c->host->keeps_faults = true;
    for (uint32_t g = 0; g < n_graph; g++)
        make_inputs(c, g, &x[g]);
    unsigned planted = 0;
    for (size_t i = 0; i < sizeof mutations / sizeof *mutations; i++) {
        tally t = {0};
        try_mutation(c, x, n_graph, ptx, &mutations[i], &t);
        print_message("%s (%s): %u planted, %u never reached, %u found\n", mutations[i].name,
                      mutations[i].find, t.planted, t.unreached, t.found);
        assert_int_equal(t.found + t.unreached + mutations[i].silent, t.planted);
        planted += t.planted;
    }
    assert_true(planted > 100);
    for (uint32_t g = 0; g < n_graph; g++) {
        for (uint32_t i = 0; i < x[g].n; i++)
            free(x[g].in[i].data);
        free(x[g].want.data);
    }
    free(x);
    free(ptx);
    cuda_case_stop(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mutants__are_found)};
    return cuda_host_status(cmocka_run_group_tests(tests, NULL, NULL));
}
