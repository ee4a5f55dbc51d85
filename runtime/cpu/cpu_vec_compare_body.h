/* Part of cpu_vec_body.h: comparisons. The compiler makes vectors of these loops. */

#define COMPARE(name, T, op)                                                               \
    static void name(uint8_t *y, const void *x_, bool x_runs, const void *z_, bool z_runs, \
                     size_t n)                                                             \
    {                                                                                      \
        const T *x = x_, *z = z_, x0 = *x, z0 = *z;                                        \
        if (x_runs && z_runs)                                                              \
            for (size_t i = 0; i < n; i++)                                                 \
                y[i] = x[i] op z[i];                                                       \
        else if (x_runs)                                                                   \
            for (size_t i = 0; i < n; i++)                                                 \
                y[i] = x[i] op z0;                                                         \
        else                                                                               \
            for (size_t i = 0; i < n; i++)                                                 \
                y[i] = x0 op(z_runs ? z[i] : z0);                                          \
    }
#define COMPARISONS(type, T)     \
    COMPARE(equal_##type, T, ==) \
    COMPARE(less_##type, T, <)   \
    COMPARE(less_equal_##type, T, <=)
COMPARISONS(f32, float)
COMPARISONS(i32, int32_t)
COMPARISONS(i64, int64_t)
COMPARISONS(u8, uint8_t)
