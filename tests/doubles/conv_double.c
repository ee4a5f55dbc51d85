/* Pooling and attention are computed as they are defined. Convolutions: for each image and channel
 * of the result a plane of sums in f32, to which each tap of the kernel adds a row at a time. */
#include "conv_double.h"

#include "base/f16.h"
#include "runtime/cuda/cudnn_api.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t weft_conv_bytes(unsigned type)
{
    return type == WEFT_CUDNN_DATA_FLOAT                                      ? 4
           : type == WEFT_CUDNN_DATA_HALF || type == WEFT_CUDNN_DATA_BFLOAT16 ? 2
                                                                              : 0;
}

size_t weft_conv_span(const weft_conv_tensor *t)
{
    int64_t last = 0;
    for (int i = 0; i < t->rank; i++)
        last += (t->dim[i] - 1) * t->stride[i];
    return (size_t)(last + 1) * weft_conv_bytes(t->type);
}

static float load(const weft_conv_tensor *t, int64_t i)
{
    float x;
    uint16_t h;
    if (t->type == WEFT_CUDNN_DATA_FLOAT) {
        memcpy(&x, (const char *)t->at + 4 * i, 4);
        return x;
    }
    memcpy(&h, (const char *)t->at + 2 * i, 2);
    return t->type == WEFT_CUDNN_DATA_HALF ? weft_f16_to_f32(h) : weft_bf16_to_f32(h);
}

static void store(const weft_conv_tensor *t, int64_t i, float x)
{
    if (t->type == WEFT_CUDNN_DATA_FLOAT) {
        memcpy((char *)t->at + 4 * i, &x, 4);
        return;
    }
    uint16_t h = t->type == WEFT_CUDNN_DATA_HALF ? weft_f16_from_f32(x) : weft_bf16_from_f32(x);
    memcpy((char *)t->at + 2 * i, &h, 2);
}

/* Sizes and strides of three spatial dims; leading ones are 1 and 0 if there are fewer. */
static void spread(const weft_conv_tensor *t, int64_t dim[3], int64_t stride[3])
{
    for (int i = 0; i < 3; i++) {
        int own = i + t->rank - 5 + 2;
        dim[i] = own >= 2 ? t->dim[own] : 1;
        stride[i] = own >= 2 ? t->stride[own] : 0;
    }
}

typedef struct geometry {
    int64_t in[3], in_step[3], kernel[3], kernel_step[3], out[3], out_step[3];
    int64_t pad[3], stride[3], dilation[3];
} geometry;

/* Adds one tap of one channel to the plane. */
static void add_tap(const weft_conv *c, const geometry *g, int64_t from, float weight,
                    const int64_t tap[3], float *sum)
{
    for (int64_t d = 0; d < g->out[0]; d++)
        for (int64_t h = 0; h < g->out[1]; h++) {
            int64_t iz = d * g->stride[0] - g->pad[0] + tap[0] * g->dilation[0];
            int64_t iy = h * g->stride[1] - g->pad[1] + tap[1] * g->dilation[1];
            int64_t x0 = tap[2] * g->dilation[2] - g->pad[2];
            if (iz < 0 || iz >= g->in[0] || iy < 0 || iy >= g->in[1])
                continue;
            int64_t row = from + iz * g->in_step[0] + iy * g->in_step[1];
            float *to = sum + (d * g->out[1] + h) * g->out[2];
            for (int64_t w = 0; w < g->out[2]; w++) {
                int64_t ix = w * g->stride[2] + x0;
                if (ix >= 0 && ix < g->in[2])
                    to[w] += weight * load(&c->x, row + ix * g->in_step[2]);
            }
        }
}

static void sum_plane(const weft_conv *c, const geometry *g, int64_t image, int64_t feature,
                      float *sum)
{
    int64_t depth = c->w.dim[1], group = feature / (c->w.dim[0] / (c->x.dim[1] / depth));
    for (int64_t k = 0; k < depth; k++) {
        int64_t from = image * c->x.stride[0] + (group * depth + k) * c->x.stride[1];
        int64_t at = feature * c->w.stride[0] + k * c->w.stride[1];
        int64_t tap[3];
        for (tap[0] = 0; tap[0] < g->kernel[0]; tap[0]++)
            for (tap[1] = 0; tap[1] < g->kernel[1]; tap[1]++)
                for (tap[2] = 0; tap[2] < g->kernel[2]; tap[2]++) {
                    int64_t place = at;
                    for (int i = 0; i < 3; i++)
                        place += tap[i] * g->kernel_step[i];
                    add_tap(c, g, from, load(&c->w, place), tap, sum);
                }
    }
}

static void finish_plane(const weft_conv *c, const geometry *g, int64_t image, int64_t feature,
                         const float *sum)
{
    float bias = c->bias.id ? load(&c->bias, feature * c->bias.stride[1]) : 0;
    int64_t z_dim[3], z_step[3] = {0, 0, 0}, i = 0;
    if (c->z.id)
        spread(&c->z, z_dim, z_step);
    for (int64_t d = 0; d < g->out[0]; d++)
        for (int64_t h = 0; h < g->out[1]; h++)
            for (int64_t w = 0; w < g->out[2]; w++, i++) {
                float x = sum[i];
                if (c->z.id)
                    x += load(&c->z, image * c->z.stride[0] + feature * c->z.stride[1] +
                                         d * z_step[0] + h * z_step[1] + w * z_step[2]);
                x += bias;
                if (c->relu && x < 0)
                    x = 0;
                store(&c->y,
                      image * c->y.stride[0] + feature * c->y.stride[1] + d * g->out_step[0] +
                          h * g->out_step[1] + w * g->out_step[2],
                      x);
            }
}

/* One result of pooling, at position `at`. */
static float pool_at(const weft_conv *c, const geometry *g, int64_t from, const int64_t at[3])
{
    float most = -INFINITY, sum = 0;
    int64_t count = 0, padded = 1, window[3], k[3];
    for (int i = 0; i < 3; i++) {
        int own = i - (3 - c->spatial);
        window[i] = own >= 0 ? c->window[own] : 1;
        int64_t end = g->in[i] + (own >= 0 ? c->behind[own] : 0) + g->pad[i];
        int64_t left = end - at[i] * g->stride[i];
        padded *= left < window[i] ? left : window[i];
    }
    for (k[0] = 0; k[0] < window[0]; k[0]++)
        for (k[1] = 0; k[1] < window[1]; k[1]++)
            for (k[2] = 0; k[2] < window[2]; k[2]++) {
                int64_t place = from;
                bool inside = true;
                for (int i = 0; i < 3; i++) {
                    int64_t x = at[i] * g->stride[i] - g->pad[i] + k[i];
                    inside = inside && x >= 0 && x < g->in[i];
                    place += x * g->in_step[i];
                }
                if (!inside)
                    continue;
                float x = load(&c->x, place);
                most = x > most || (c->keeps_nan && x != x) ? x : most;
                sum += x;
                count++;
            }
    if (c->kind == WEFT_CONV_KIND_MAX)
        return most;
    return sum / (float)(c->kind == WEFT_CONV_KIND_MEAN ? count : padded);
}

static void pool(const weft_conv *c, const geometry *g)
{
    int64_t at[3];
    for (int64_t n = 0; n < c->y.dim[0]; n++)
        for (int64_t k = 0; k < c->y.dim[1]; k++)
            for (at[0] = 0; at[0] < g->out[0]; at[0]++)
                for (at[1] = 0; at[1] < g->out[1]; at[1]++)
                    for (at[2] = 0; at[2] < g->out[2]; at[2]++) {
                        int64_t to = n * c->y.stride[0] + k * c->y.stride[1];
                        for (int i = 0; i < 3; i++)
                            to += at[i] * g->out_step[i];
                        store(&c->y, to,
                              pool_at(c, g, n * c->x.stride[0] + k * c->x.stride[1], at));
                    }
}

/* Row `r` of head `h` of sequence `b`; `score` has room for one number for each key. */
static void attend(const weft_conv *c, int64_t b, int64_t h, int64_t r, float *score)
{
    const int64_t keys = c->w.dim[3], depth = c->x.dim[3];
    float most = -INFINITY, sum = 0;
    for (int64_t k = 0; k < keys; k++) {
        float s = 0;
        for (int64_t i = 0; i < depth; i++)
            s += load(&c->x, b * c->x.stride[0] + h * c->x.stride[1] + r * c->x.stride[2] +
                                 i * c->x.stride[3]) *
                 load(&c->w, b * c->w.stride[0] + h * c->w.stride[1] + i * c->w.stride[2] +
                                 k * c->w.stride[3]);
        s *= c->scale_at ? *(const float *)c->scale_at : c->scale;
        if (c->bias.id)
            s += load(&c->bias, (c->bias.dim[0] > 1 ? b : 0) * c->bias.stride[0] +
                                    (c->bias.dim[1] > 1 ? h : 0) * c->bias.stride[1] +
                                    (c->bias.dim[2] > 1 ? r : 0) * c->bias.stride[2] +
                                    (c->bias.dim[3] > 1 ? k : 0) * c->bias.stride[3]);
        score[k] = s;
        most = s > most ? s : most;
    }
    for (int64_t k = 0; k < keys; k++)
        sum += score[k] = expf(score[k] - most);
    for (int64_t i = 0; i < c->y.dim[3]; i++) {
        float x = 0;
        for (int64_t k = 0; k < keys; k++)
            x += score[k] / sum *
                 load(&c->z, b * c->z.stride[0] + h * c->z.stride[1] + k * c->z.stride[2] +
                                 i * c->z.stride[3]);
        store(&c->y,
              b * c->y.stride[0] + h * c->y.stride[1] + r * c->y.stride[2] + i * c->y.stride[3], x);
    }
}

static void attend_all(const weft_conv *c)
{
    float *score = malloc((size_t)c->w.dim[3] * sizeof *score);
    if (!score) {
        weft_double_mistake("cudnnBackendExecute: no memory for the double");
        return;
    }
    for (int64_t b = 0; b < c->y.dim[0]; b++)
        for (int64_t h = 0; h < c->y.dim[1]; h++)
            for (int64_t r = 0; r < c->y.dim[2]; r++)
                attend(c, b, h, r, score);
    free(score);
}

double weft_conv_run(void *conv)
{
    const weft_conv *c = conv;
    geometry g;
    if (c->kind == WEFT_CONV_KIND_ATTENTION) {
        attend_all(c);
        return c->time_us;
    }
    spread(&c->x, g.in, g.in_step);
    spread(&c->w, g.kernel, g.kernel_step);
    spread(&c->y, g.out, g.out_step);
    for (int i = 0; i < 3; i++) {
        int own = i - (3 - c->spatial);
        g.pad[i] = own >= 0 ? c->pad[own] : 0;
        g.stride[i] = own >= 0 ? c->stride[own] : 1;
        g.dilation[i] = own >= 0 ? c->dilation[own] : 1;
    }
    if (c->kind != WEFT_CONV_KIND_CONV) {
        pool(c, &g);
        return c->time_us;
    }
    size_t pixels = (size_t)(g.out[0] * g.out[1] * g.out[2]);
    float *sum = malloc(pixels * sizeof *sum);
    if (!sum) {
        weft_double_mistake("cudnnBackendExecute: no memory for the double");
        return 0;
    }
    for (int64_t n = 0; n < c->y.dim[0]; n++)
        for (int64_t k = 0; k < c->y.dim[1]; k++) {
            memset(sum, 0, pixels * sizeof *sum);
            sum_plane(c, &g, n, k, sum);
            finish_plane(c, &g, n, k, sum);
        }
    free(sum);
    return c->time_us;
}

/* -- Text ----------------------------------------------------------------------------------- */

static void put(char text[WEFT_CONV_TEXT], const char *before, int64_t x)
{
    size_t n = strlen(text);
    snprintf(text + n, WEFT_CONV_TEXT - n, "%s%lld", before, (long long)x);
}

void weft_conv_print(const weft_conv *c, char text[WEFT_CONV_TEXT])
{
    const weft_conv_tensor *const tensor[] = {&c->x, &c->w, &c->y, &c->z, &c->bias};
    put(text, "\"kind\":", c->kind);
    put(text, ",\"scale\":", c->scale_id);
    put(text, ",\"host\":", c->scale_on_host);
    put(text, ",\"nan\":", c->keeps_nan);
    put(text, ",\"relu\":", c->relu);
    put(text, ",\"geometry\":[", c->spatial);
    for (int i = 0; i < 3; i++) {
        put(text, ",", c->pad[i]);
        put(text, ",", c->behind[i]);
        put(text, ",", c->stride[i]);
        put(text, ",", c->dilation[i]);
        put(text, ",", c->window[i]);
    }
    put(text, "],\"tensors\":[", 5);
    for (int i = 0; i < 5; i++) {
        put(text, ",", tensor[i]->id);
        put(text, ",", tensor[i]->type);
        put(text, ",", tensor[i]->rank);
        put(text, ",", tensor[i]->align);
        for (int k = 0; k < WEFT_CONV_RANK_MAX; k++) {
            put(text, ",", tensor[i]->dim[k]);
            put(text, ",", tensor[i]->stride[k]);
        }
    }
    strncat(text, "]}", WEFT_CONV_TEXT - strlen(text) - 1);
}

/* The number behind the next of the characters `,[:`; *at moves behind it. */
static int64_t take(const char **at)
{
    char *end;
    *at += strcspn(*at, ",[:");
    *at += strspn(*at, ",[:");
    int64_t x = strtoll(*at, &end, 10);
    *at = end;
    return x;
}

int64_t weft_conv_number(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    if (!at)
        return -1;
    at += strlen(key);
    return take(&at);
}

bool weft_conv_parse(const char *text, weft_conv *out)
{
    weft_conv_tensor *const tensor[] = {&out->x, &out->w, &out->y, &out->z, &out->bias};
    const char *at = strstr(text, "\"geometry\"");
    if (!at || !strstr(at, "\"tensors\""))
        return false;
    out->kind = (unsigned)weft_conv_number(text, "\"kind\"");
    out->scale_id = weft_conv_number(text, "\"scale\"");
    out->scale_on_host = weft_conv_number(text, "\"host\"") == 1;
    out->keeps_nan = weft_conv_number(text, "\"nan\"") == 1;
    out->relu = weft_conv_number(text, "\"relu\"") == 1;
    out->spatial = (int)take(&at);
    for (int i = 0; i < 3; i++) {
        out->pad[i] = take(&at);
        out->behind[i] = take(&at);
        out->stride[i] = take(&at);
        out->dilation[i] = take(&at);
        out->window[i] = take(&at);
    }
    at = strstr(at, "\"tensors\"");
    if (take(&at) != 5)
        return false;
    for (int i = 0; i < 5; i++) {
        tensor[i]->id = take(&at);
        tensor[i]->type = (unsigned)take(&at);
        tensor[i]->rank = (int)take(&at);
        tensor[i]->align = take(&at);
        for (int k = 0; k < WEFT_CONV_RANK_MAX; k++) {
            tensor[i]->dim[k] = take(&at);
            tensor[i]->stride[k] = take(&at);
        }
    }
    return true;
}
