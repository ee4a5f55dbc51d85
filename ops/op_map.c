/* Element-wise evaluation: one driver for any number of broadcast operands in any element type. */
#include "ops/op_int.h"

/* Elements of operand j for the block: a pointer to its data if type and stride allow, else a
 * converted copy in `buf`. */
#define DEFINE_MAP(name, T, DT)                                                                  \
    static const T *fetch_##name(const weft_tensor *t, int64_t first, int64_t stride, int64_t n, \
                                 T *buf)                                                         \
    {                                                                                            \
        if (t->dtype == WEFT_DTYPE_##DT && (stride == 1 || n == 1))                              \
            return (const T *)t->data + first;                                                   \
        if (stride != 0) {                                                                       \
            weft_eval__load_##name(t, first, stride, n, buf);                                    \
            return buf;                                                                          \
        }                                                                                        \
        weft_eval__load_##name(t, first, 1, 1, buf);                                             \
        for (int64_t i = 1; i < n; i++)                                                          \
            buf[i] = buf[0];                                                                     \
        return buf;                                                                              \
    }                                                                                            \
                                                                                                 \
    weft_err weft_eval__map_##name(weft_eval_ctx *cx, const weft_tensor *out,                    \
                                   const weft_tensor *const *in, int32_t n,                      \
                                   weft_eval_map_##name fn, const void *state)                   \
    {                                                                                            \
        weft_iter *it = weft_arena_alloc(cx->scratch, sizeof *it);                               \
        if (!weft_iter__broadcast(it, out, in, n))                                               \
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operands do not broadcast to the result");     \
        T *buf = weft_arena_array(cx->scratch, (size_t)(n + 1) * WEFT_MAP_BLOCK, sizeof *buf);   \
        const T **arg = weft_arena_array(cx->scratch, (size_t)n + 1, sizeof *arg);               \
        bool direct = out->dtype == WEFT_DTYPE_##DT;                                             \
        int64_t done = 0;                                                                        \
        for (; !it->done; weft_iter__next(it)) {                                                 \
            for (int64_t i = 0; i < it->inner; i += WEFT_MAP_BLOCK) {                            \
                int64_t len = it->inner - i < WEFT_MAP_BLOCK ? it->inner - i : WEFT_MAP_BLOCK;   \
                for (int32_t j = 0; j < n; j++)                                                  \
                    arg[j] = fetch_##name(in[j], it->at[j] + i * it->inner_stride[j],            \
                                          it->inner_stride[j], len, buf + j * WEFT_MAP_BLOCK);   \
                T *dst = direct ? (T *)out->data + done : buf + n * WEFT_MAP_BLOCK;              \
                fn(state, arg, dst, len);                                                        \
                if (!direct)                                                                     \
                    weft_eval__store_##name(out, done, 1, len, dst);                             \
                done += len;                                                                     \
            }                                                                                    \
        }                                                                                        \
        return WEFT_ERR_OK;                                                                      \
    }

DEFINE_MAP(f32, float, F32)
DEFINE_MAP(f64, double, F64)
DEFINE_MAP(i64, int64_t, I64)
