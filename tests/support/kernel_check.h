/* Kernels of the CPU driver, each compared with the reference implementation of its operator. */
#ifndef WEFT_TESTS_KERNEL_CHECK_H
#define WEFT_TESTS_KERNEL_CHECK_H

#include "runtime/cpu/cpu_dnnl.h"
#include "tests/support/session_world.h"

/* -- Comparing one operator ----------------------------------------------------------------- */

typedef struct check {
    const char *name;
    weft_op_id op;
    const char *attrs[12]; /* key, value pairs: "i:3", "f:0.5", "l:1,2", "s:text", "t:a;b" */
    const char *in[6];     /* "x 1,3,8,8" input, "w 4,3" weight, "c..." input reordered to c16,
                            * "b..." bool input, "i..." i64 input of -2 .. 2, "l..." i32 input of
                            * 8, 5, 2, .., "q..." u8 weight, "-" omitted */
    const char *out;       /* dims */
    weft_layout layout;    /* of the result of the operator */
    double tolerance;
    /* Must occur in the name of the kernel; "WIDE|NARROW": WIDE with AVX-512, else NARROW. */
    const char *variant;
} check;

static inline weft_attrs layout_attr(world *w, weft_layout layout)
{
    weft_attr *a = weft_arena_alloc(w->arena, sizeof *a);
    *a = (weft_attr){.key = WEFT_ATTR_LAYOUT, .kind = WEFT_KIND_STR};
    a->u.s = weft_layout_name(layout);
    return (weft_attrs){.at = a, .n = 1};
}

/* Elsewhere than on x86, oneDNN 2.6 has fast kernels for some CPUs only: any is right there. */
static inline bool is_expected(const check *c, const char *variant)
{
#if !defined(__x86_64__)
    (void)variant;
    return c != NULL;
#else
    const char *bar = strchr(c->variant, '|');
    size_t n = bar ? (size_t)(bar - c->variant) : strlen(c->variant);
    char wide[64];
    assert_true(n < sizeof wide);
    memcpy(wide, c->variant, n);
    wide[n] = '\0';
    return strstr(variant, bar && weft_cpu__dnnl_lanes() < 16 ? bar + 1 : wide) != NULL;
#endif
}

static inline double compare(const weft_tensor *got, const weft_tensor *want)
{
    double worst = 0, scale = 1e-6;
    int64_t n = weft_tensor_numel(want);
    assert_int_equal(weft_tensor_numel(got), n);
    for (int64_t i = 0; i < n; i++)
        scale = fmax(scale, fabs(weft_tensor_get_f64(want, i)));
    for (int64_t i = 0; i < n; i++) {
        double e = fabs(weft_tensor_get_f64(got, i) - weft_tensor_get_f64(want, i)) / scale;
        worst = e > worst || e != e ? e : worst;
    }
    return worst;
}

/* Of the result of an operator. */
static inline weft_dtype result_dtype(weft_op_id op)
{
    return op == WEFT_OP_EQUAL || op == WEFT_OP_LESS || op == WEFT_OP_LESS_OR_EQUAL ||
                   op == WEFT_OP_GREATER || op == WEFT_OP_GREATER_OR_EQUAL
               ? WEFT_DTYPE_BOOL
               : WEFT_DTYPE_F32;
}

static inline void run_check(const check *c, uint32_t threads)
{
    world w;
    int64_t dim[8];
    uint32_t n_in = 0, in[6] = {0};
    weft_tensor t[6], y, got;
    const weft_tensor *operand[6] = {0};
    init_world(&w);
    for (; n_in < 6 && c->in[n_in]; n_in++) {
        char kind = c->in[n_in][0];
        if (kind == '-')
            continue;
        uint32_t rank = parse_dims(c->in[n_in] + 2, dim);
        t[n_in] = make_tensor(&w,
                              kind == 'b'   ? WEFT_DTYPE_BOOL
                              : kind == 'i' ? WEFT_DTYPE_I64
                              : kind == 'l' ? WEFT_DTYPE_I32
                              : kind == 'q' ? WEFT_DTYPE_U8
                                            : WEFT_DTYPE_F32,
                              rank, dim);
        for (int64_t i = 0; kind == 'i' && i < weft_tensor_numel(&t[n_in]); i++)
            ((int64_t *)t[n_in].data)[i] = (i * 7 + 3) % 5 - 2;
        for (int64_t i = 0; kind == 'l' && i < weft_tensor_numel(&t[n_in]); i++)
            ((int32_t *)t[n_in].data)[i] = (int32_t)(8 - 3 * i);
        for (int64_t i = 0; kind == 'q' && i < weft_tensor_numel(&t[n_in]); i++)
            ((uint8_t *)t[n_in].data)[i] = (uint8_t)(i * 101 + i / 7 + 13);
        operand[n_in] = &t[n_in];
        in[n_in] = kind == 'w' || kind == 'q' ? add_weight(&w, t[n_in]) : add_input(&w, t[n_in]);
        if (kind == 'c') {
            uint32_t v = add_value(&w, WEFT_DTYPE_F32, WEFT_LAYOUT_C16, rank, dim);
            add_launch(&w, WEFT_OP_REORDER, layout_attr(&w, WEFT_LAYOUT_C16), &in[n_in], 1, v);
            in[n_in] = v;
        }
    }
    weft_attrs attrs = parse_attrs(&w, c->attrs);
    uint32_t rank = parse_dims(c->out, dim), plain;
    weft_dtype dtype = result_dtype(c->op);
    uint32_t out = add_value(&w, dtype, c->layout, rank, dim);
    uint32_t at = w.program.n_launch;
    add_launch(&w, c->op, attrs, in, n_in, out);
    plain = out;
    if (c->layout != WEFT_LAYOUT_PLAIN) {
        plain = add_value(&w, WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN, rank, dim);
        add_launch(&w, WEFT_OP_REORDER, layout_attr(&w, WEFT_LAYOUT_PLAIN), &out, 1, plain);
    }
    add_output(&w, plain);
    y = make_tensor(&w, dtype, rank, dim);
    weft_eval_ctx cx = {.op = weft_op_get(c->op),
                        .attrs = attrs,
                        .in = operand,
                        .n_in = n_in,
                        .out = &y,
                        .n_out = 1,
                        .scratch = w.arena,
                        .diag = w.diag};
    weft_err err = weft_op_eval(&cx);
    explain(&w);
    assert_int_equal(err, WEFT_ERR_OK);
    open_world(&w, threads);
    for (int round = 0; round < 2; round++) {
        weft_session_profile(w.session, true);
        err = weft_session_run(w.session, w.in, w.program.n_input, w.diag, &got, 1);
        explain(&w);
        assert_int_equal(err, WEFT_ERR_OK);
        uint32_t n;
        const char *variant = weft_session_times(w.session, &n)[at].variant;
        double worst = compare(&got, &y);
        if (!(worst <= c->tolerance) || !is_expected(c, variant))
            fail_msg("%s: error %g, kernel %s", c->name, worst, variant);
    }
    finish_world(&w);
}

#endif
