/* Door of runtime/adapter: files of adapters (LoRA), and what they add to a program.
 *
 * An adapter is a folder as PEFT writes it: adapter_config.json and adapter_model.safetensors. It
 * is untrusted input: every length, offset and number is checked, and what is not supported is
 * refused by name. */
#ifndef WEFT_RUNTIME_ADAPTER_ADAPTER_H
#define WEFT_RUNTIME_ADAPTER_ADAPTER_H

#include "base/arena.h"
#include "base/diag.h"
#include "base/hash.h"
#include "base/tensor.h"
#include "ir/bundle.h"
#include "ops/adapter_rows.h"

/* -- safetensors ---------------------------------------------------------------------------- */

typedef struct weft_safetensor {
    const char *name;
    weft_tensor tensor; /* data: in the bytes that were read, at any alignment */
} weft_safetensor;

typedef struct weft_safetensors {
    const weft_safetensor *at; /* in the order of the data */
    uint32_t n;
} weft_safetensors;

/* The largest header that is read. */
enum { WEFT_SAFETENSORS_HEADER_MIB = 4 };

/* Reads the header of a file of `len` bytes, which the tensors refer to. Offsets have to tile the
 * data without gaps, as in the reference implementation; a name that stands twice is refused. Of
 * the element types only f32, f16 and bf16 are read. `path` is for messages; the list lives in
 * `arena`. */
WEFT_MUST_USE weft_err weft_safetensors_read(const uint8_t *at, size_t len, const char *path,
                                             weft_arena *arena, weft_diag *diag,
                                             weft_safetensors *out);

/* -- PEFT ----------------------------------------------------------------------------------- */

/* What an adapter adds to the result of a module: (x a^T) b. */
typedef struct weft_peft_module {
    const char *path; /* "encoder.layer.0.attention.self.query" */
    int64_t rank, k, n;
    const float *a, *b; /* [rank, k] and [rank, n], with the scale */
} weft_peft_module;

typedef struct weft_peft {
    const weft_peft_module *module; /* by path */
    uint32_t n;
} weft_peft;

/* Reads a folder. Lives in `arena`; nothing refers to the files afterwards. `root`: the folder lies
 * below it, without symbolic links (weft_file_open_beneath); NULL: anywhere. */
WEFT_MUST_USE weft_err weft_peft_read(const char *root, const char *folder, weft_arena *arena,
                                      weft_diag *diag, weft_peft *out);
/* Whether the path is that of an adapter of ONNX Runtime, which weft_peft_read refuses by name. */
bool weft_peft_is_onnx(const char *path);
/* The same from the bytes of both files; `folder` is for messages. */
WEFT_MUST_USE weft_err weft_peft_parse(const char *config, size_t config_len,
                                       const uint8_t *tensors, size_t tensors_len,
                                       const char *folder, weft_arena *arena, weft_diag *diag,
                                       weft_peft *out);

/* What tells one adapter from another: a hash of its modules and factors. */
weft_hash128 weft_peft_identity(const weft_peft *peft);

/* -- Sites ---------------------------------------------------------------------------------- */

/* site[i]: the site of module i. INPUT: a module has no site, or one that fits as well as another
 * or has other sizes, or two modules have the same one. `folder` is for messages. */
WEFT_MUST_USE weft_err weft_peft_find_sites(const weft_peft *peft, const weft_bundle_site *site,
                                            uint32_t n_site, const char *folder, weft_diag *diag,
                                            uint32_t *out);

/* -- Packed adapters (peft_packed.c) ---------------------------------------------------------- */

/* An adapter in a form that is used where it lies: bytes that the process, or one that started it,
 * wrote, to be mapped at a multiple of 64 bytes. */
typedef struct weft_packed_adapter {
    weft_hash128 identity; /* weft_peft_identity */
    const weft_adapter_part *part;
    uint32_t n;
} weft_packed_adapter;

/* site[i]: name of the site of module i. *out is owned (free). */
WEFT_MUST_USE weft_err weft_peft_pack(const weft_peft *peft, const char *const *site, uint8_t **out,
                                      size_t *out_len);
enum { WEFT_PACKED_HEAD = 64 };
/* The length that the first WEFT_PACKED_HEAD bytes tell; 0: they begin no packed adapter. */
uint64_t weft_peft_packed_length(const uint8_t head[WEFT_PACKED_HEAD]);
/* false: other bytes than were written. The list lives in `arena`; its factors lie in `at`. */
bool weft_peft_unpack(const uint8_t *at, size_t len, weft_arena *arena, weft_packed_adapter *out);

#endif
