/* GEMM on the host: converts both operands to f32 and computes four columns of the result at a
 * time. Bytes have a loop of their own, with sums of 32 bits that wrap around. */
#include "gemm_double.h"

#include "base/f16.h"
#include "runtime/cuda/cublaslt_api.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 4 };

size_t weft_gemm_bytes(unsigned type)
{
    switch (type) {
    case WEFT_CUDA_R_32F:
        return 4;
    case WEFT_CUDA_R_16F:
    case WEFT_CUDA_R_16BF:
        return 2;
    case WEFT_CUDA_R_8I:
        return 1;
    case WEFT_CUDA_R_32I:
        return 4;
    default:
        return 0;
    }
}

static float load(const void *at, uint64_t i, unsigned type)
{
    float x;
    uint16_t h;
    if (type == WEFT_CUDA_R_32F) {
        memcpy(&x, (const char *)at + 4 * i, 4);
        return x;
    }
    memcpy(&h, (const char *)at + 2 * i, 2);
    return type == WEFT_CUDA_R_16F ? weft_f16_to_f32(h) : weft_bf16_to_f32(h);
}

static void store(void *at, uint64_t i, unsigned type, float x)
{
    if (type == WEFT_CUDA_R_32F) {
        memcpy((char *)at + 4 * i, &x, 4);
        return;
    }
    uint16_t h = type == WEFT_CUDA_R_16F ? weft_f16_from_f32(x) : weft_bf16_from_f32(x);
    memcpy((char *)at + 2 * i, &h, 2);
}

static float act(float x, int kind)
{
    if (kind == WEFT_GEMM_RELU)
        return x < 0 ? 0 : x;
    if (kind == WEFT_GEMM_GELU)
        return 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    return x;
}

/* Up to COLUMNS columns of the product: sum[j][i] = op(a)[i][:] op(b)[:][j]. */
static void sum_columns(const weft_gemm *g, const float *a, const float *b, uint64_t columns,
                        float *sum)
{
    uint64_t m = g->m, k = g->k;
    memset(sum, 0, COLUMNS * m * sizeof *sum);
    float *restrict s0 = sum, *restrict s1 = sum + m, *restrict s2 = sum + 2 * m;
    float *restrict s3 = sum + 3 * m;
    for (uint64_t p = 0; p < k; p++) {
        const float *restrict row = a + p * m;
        float x0 = b[p], x1 = columns > 1 ? b[k + p] : 0, x2 = columns > 2 ? b[2 * k + p] : 0;
        float x3 = columns > 3 ? b[3 * k + p] : 0;
        for (uint64_t i = 0; i < m; i++) {
            s0[i] += row[i] * x0;
            s1[i] += row[i] * x1;
            s2[i] += row[i] * x2;
            s3[i] += row[i] * x3;
        }
    }
}

static void finish_columns(const weft_gemm *g, uint64_t item, uint64_t from, uint64_t columns,
                           const float *sum)
{
    for (uint64_t j = from; j < from + columns; j++) {
        for (uint64_t i = 0; i < g->m; i++) {
            float x = g->alpha * sum[(j - from) * g->m + i];
            if (g->beta != 0)
                x += g->beta * load(g->c, item * g->stride[2] + j * g->ld[2] + i, g->type);
            if (g->bias)
                x += load(g->bias, i, g->type);
            store(g->d, item * g->stride[3] + j * g->ld[3] + i, g->type, act(x, g->act));
        }
    }
}

static void run_one(const weft_gemm *g, uint64_t item, float *a, float *b, float *sum)
{
    uint64_t a0 = item * g->stride[0], b0 = item * g->stride[1];
    for (uint64_t p = 0; p < g->k; p++)
        for (uint64_t i = 0; i < g->m; i++)
            a[p * g->m + i] =
                load(g->a, a0 + (g->trans_a ? i * g->ld[0] + p : p * g->ld[0] + i), g->type);
    for (uint64_t from = 0; from < g->n; from += COLUMNS) {
        uint64_t columns = g->n - from < COLUMNS ? g->n - from : COLUMNS;
        for (uint64_t j = 0; j < columns; j++)
            for (uint64_t p = 0; p < g->k; p++)
                b[j * g->k + p] = load(
                    g->b, b0 + (g->trans_b ? p * g->ld[1] + from + j : (from + j) * g->ld[1] + p),
                    g->type);
        sum_columns(g, a, b, columns, sum);
        finish_columns(g, item, from, columns, sum);
    }
}

/* The only form of integers: a is transposed, b is not. */
static void run_bytes(const weft_gemm *g, uint64_t item)
{
    const int8_t *a = (const int8_t *)g->a + item * g->stride[0];
    const int8_t *b = (const int8_t *)g->b + item * g->stride[1];
    int32_t *d = (int32_t *)g->d + item * g->stride[3];
    for (uint64_t j = 0; j < g->n; j++)
        for (uint64_t i = 0; i < g->m; i++) {
            uint32_t sum = 0;
            for (uint64_t p = 0; p < g->k; p++)
                sum += (uint32_t)(a[i * g->ld[0] + p] * b[j * g->ld[1] + p]);
            d[j * g->ld[3] + i] = (int32_t)sum;
        }
}

double weft_gemm_run(void *gemm)
{
    const weft_gemm *g = gemm;
    if (g->type == WEFT_CUDA_R_8I) {
        for (uint64_t item = 0; item < g->batch; item++)
            run_bytes(g, item);
        return g->time_us;
    }
    float *a = malloc(g->m * g->k * sizeof *a), *b = malloc(COLUMNS * g->k * sizeof *b);
    float *sum = malloc(COLUMNS * g->m * sizeof *sum);
    if (a && b && sum) {
        for (uint64_t item = 0; item < g->batch; item++)
            run_one(g, item, a, b, sum);
    } else {
        weft_double_mistake("cublasLtMatmul: no memory for the double");
    }
    free(a);
    free(b);
    free(sum);
    return g->time_us;
}
