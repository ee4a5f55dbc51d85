/* Private to runtime/: what the CPU driver asks of oneDNN, without its types. */
#ifndef WEFT_RUNTIME_CPU_CPU_DNNL_H
#define WEFT_RUNTIME_CPU_CPU_DNNL_H

#include "runtime/cpu/cpu_int.h"

weft_err weft_cpu__dnnl_open(weft_cpu *cpu, weft_diag *diag);
void weft_cpu__dnnl_close(weft_cpu *cpu);
/* Bytes to map for so many bytes; 0 on overflow. */
uint64_t weft_cpu__room(uint64_t bytes);

/* A reorder of f32 between two layouts. */
weft_err weft_cpu__prepare_dnnl_reorder(weft_prep *p);
/* A matmul of f32, added to what the result held before its epilogue. */
weft_err weft_cpu__prepare_dnnl_onto(weft_prep *p);
/* Operand `in`, a weight [rows, cols] of f32, as [cols, rows]: packed once per engine. Its data are
 * NULL where weights are only counted. */
weft_err weft_cpu__pack_transposed(weft_prep *p, uint32_t in, weft_cpu_pack **out);
const float *weft_cpu__pack_data(const weft_cpu_pack *pack);
void weft_cpu__put_pack(weft_engine *e, weft_cpu_pack *pack);
/* Bytes of packed weights in use. */
uint64_t weft_cpu__packed_bytes(weft_engine *e);

#endif
