/* Weights of 3 x 3 convolutions transformed for oneDNN's Winograd: each filter g becomes G g G^T
 * (Lavin, Gray, "Fast algorithms for convolutional neural networks", 2016), in the blocks that the
 * implementation reads. oneDNN's own reorder does it with three parallel regions for each input
 * channel and block of output channels, and with scratch memory as large as the result. */
#include "runtime/cpu/cpu_winograd.h"

#include "runtime/cpu/cpu_int.h"

enum { LANES = 16, TAPS = 3, ALPHA_MAX = 6 };
/* Time of one filter, roughly. */
static const double filter_ns = 20;

typedef struct pack_job {
    const weft_dnnl_winograd *f;
    float g[ALPHA_MAX][TAPS];
    const float *src;
    float *dst;
    int64_t oc, ic, first, n_in; /* n_in: blocks of input channels */
} pack_job;

/* Rows of G: 1, p, p^2 over the product of the differences to the other points, the last for the
 * point at infinity. F(2x2): 0, 1, -1. F(4x4): 0, 5/8, -5/8, 3/2, -3/2. */
static void make_transform(int tile, float g[ALPHA_MAX][TAPS])
{
    static const double points2[] = {0, 1, -1}, points4[] = {0, 0.625, -0.625, 1.5, -1.5};
    const double *at = tile == 2 ? points2 : points4;
    int n = tile + 1;
    for (int i = 0; i < n; i++) {
        double product = 1;
        for (int k = 0; k < n; k++)
            product *= k == i ? 1 : at[i] - at[k];
        /* oneDNN's first row of F(2x2) has the other sign, and so has its transform of inputs. */
        if (tile == 2 && i == 0)
            product = -product;
        for (int t = 0; t < TAPS; t++)
            g[i][t] = (float)((t == 0 ? 1 : t == 1 ? at[i] : at[i] * at[i]) / product);
    }
    for (int t = 0; t < TAPS; t++)
        g[n][t] = t == TAPS - 1;
}

/* LANES filters, from output channel o on, of input channel i. */
static void read_filters(const pack_job *job, int64_t o, int64_t i, float w[TAPS][TAPS][LANES])
{
    const float *from = job->src + (o * job->ic + i) * TAPS * TAPS;
    for (int64_t l = 0; l < LANES; l++, from += job->ic * TAPS * TAPS)
        for (int t = 0; t < TAPS * TAPS; t++)
            w[t / TAPS][t % TAPS][l] = o + l < job->oc && i < job->ic ? from[t] : 0;
}

static void transform(const pack_job *job, float w[TAPS][TAPS][LANES], float *to)
{
    const weft_dnnl_winograd *f = job->f;
    float half[TAPS][ALPHA_MAX][LANES];
    int alpha = f->tile + TAPS - 1;
    for (int r = 0; r < TAPS; r++)
        for (int v = 0; v < alpha; v++)
            for (int l = 0; l < LANES; l++)
                half[r][v][l] = w[r][0][l] * job->g[v][0] + w[r][1][l] * job->g[v][1] +
                                w[r][2][l] * job->g[v][2];
    for (int u = 0; u < alpha; u++)
        for (int v = 0; v < alpha; v++) {
            float *at = to + u * f->u_step + v * f->v_step;
            for (int l = 0; l < LANES; l++)
                at[l] = job->g[u][0] * half[0][v][l] + job->g[u][1] * half[1][v][l] +
                        job->g[u][2] * half[2][v][l];
        }
}

static void pack_blocks(void *cx, int64_t begin, int64_t end)
{
    const pack_job *job = cx;
    const weft_dnnl_winograd *f = job->f;
    float w[TAPS][TAPS][LANES];
    for (int64_t n = begin; n < end; n++) {
        int64_t ob = job->first + n / job->n_in, ib = n % job->n_in;
        float *block = job->dst + ob / f->oc_blocks * f->oc_chunk_step +
                       ob % f->oc_blocks * f->oc_step + ib / f->ic_blocks * f->ic_chunk_step +
                       ib % f->ic_blocks * f->ic_step;
        for (int64_t i = 0; i < f->ic_block; i++)
            for (int64_t o = 0; o < f->oc_block; o += LANES) {
                read_filters(job, ob * f->oc_block + o, ib * f->ic_block + i, w);
                transform(job, w, block + i * f->i_step + o);
            }
    }
}

bool weft_cpu__winograd_fits(const weft_dnnl_winograd *f)
{
    return (f->tile == 2 || f->tile == 4) && f->oc_block % LANES == 0 && f->oc % f->oc_block == 0 &&
           f->ic % f->ic_block == 0;
}

void weft_cpu__winograd_pack(const weft_dnnl_winograd *f, const float *src, int64_t oc, int64_t ic,
                             int64_t begin, int64_t end, uint32_t threads, float *dst)
{
    pack_job job = {.f = f,
                    .src = src,
                    .dst = dst,
                    .oc = oc,
                    .ic = ic,
                    .first = begin / f->oc_block,
                    .n_in = f->ic / f->ic_block};
    make_transform(f->tile, job.g);
    int64_t blocks = (end - begin) / f->oc_block * job.n_in;
    weft_par_for(threads, blocks, filter_ns * (double)(f->oc_block * f->ic_block), pack_blocks,
                 &job);
}
