/* Private to runtime/cpu: kernels and packed weights by oneDNN, without oneDNN's types. */
#ifndef WEFT_RUNTIME_CPU_CPU_DNNL_H
#define WEFT_RUNTIME_CPU_CPU_DNNL_H

#include "runtime/cpu/cpu_int.h"

weft_err weft_cpu__dnnl_open(weft_cpu *cpu, weft_diag *diag);
void weft_cpu__dnnl_close(weft_cpu *cpu);
/* Widest vectors, in floats, that oneDNN uses here: 16 (AVX-512), 8 (AVX2), else 4. The processor
 * decides, and the variable ONEDNN_MAX_CPU_ISA may lower it. */
uint32_t weft_cpu__dnnl_lanes(void);
/* "oneDNN" and the version in use. */
void weft_cpu__dnnl_version(char *out, size_t room);
/* Bytes to map for an allocation of `bytes`; 0 on overflow. */
uint64_t weft_cpu__room(uint64_t bytes);

/* A reorder of f32 between two layouts. */
weft_err weft_cpu__prepare_dnnl_reorder(weft_prep *p);
/* A matmul of f32 whose result is added to the previous contents of its output before the epilogue.
 */
weft_err weft_cpu__prepare_dnnl_onto(weft_prep *p);
/* Packs operand `in`, a weight [rows, cols] of f32, as [cols, rows], once per engine. The data are
 * NULL when weights are only counted. */
weft_err weft_cpu__pack_transposed(weft_prep *p, uint32_t in, weft_cpu_pack **out);
/* Packs operand `in`, a weight of f32 with n_matrix * rows * cols elements, as matrices
 * [n_matrix][rows / 32][cols][32], rows rounded up to 32 with zeros, once per engine. The data are
 * NULL when weights are only counted. */
weft_err weft_cpu__pack_panels(weft_prep *p, uint32_t in, int64_t n_matrix, int64_t rows,
                               int64_t cols, weft_cpu_pack **out);
/* A packed form that oneDNN does not know. Kernels whose weight and format are equal share it. */
typedef struct weft_cpu_format weft_cpu_format;
struct weft_cpu_format {
    void (*fill)(void *to, const void *weight, const weft_cpu_format *format);
    uint64_t bytes;
    uint32_t zero_weight;    /* weft_slot.weight of the zero points; 0: there are none */
    int64_t size[8];         /* what `fill` needs */
    const weft_tensor *zero; /* valid while weft_cpu__pack_as runs */
};
weft_err weft_cpu__pack_as(weft_prep *p, uint32_t in, const weft_cpu_format *format,
                           weft_cpu_pack **out);
/* NULL when weights are only counted. */
const void *weft_cpu__pack_data(const weft_cpu_pack *pack);
void weft_cpu__put_pack(weft_engine *e, weft_cpu_pack *pack);
/* Bytes of packed weights in use. */
uint64_t weft_cpu__packed_bytes(weft_engine *e);

#endif
