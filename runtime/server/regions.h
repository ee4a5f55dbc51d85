/* System shared memory that clients have registered, as in Triton's extension of that name: a
 * region is a range of an object of shm_open, and tensors of requests may lie in it. Regions are
 * read and written by pread and pwrite, never mapped: a client that truncates its object gets an
 * error, and one that writes while it is read changes nothing but its own tensors.
 *
 * The functions of requests may be called on any thread, all others on the loop's. */
#ifndef WEFT_RUNTIME_SERVER_REGIONS_H
#define WEFT_RUNTIME_SERVER_REGIONS_H

#include "runtime/server/serve_int.h"

enum { WEFT_REGIONS_MAX = 64, WEFT_REGION_NAME_MAX = 128, WEFT_REGION_KEY_MAX = 256 };

typedef struct weft_region_info {
    const char *name, *key;
    uint64_t offset, bytes; /* of the object */
} weft_region_info;

/* `prefix`: of the keys that clients may use. NULL: out of memory. */
weft_regions *weft_regions__open(const char *prefix);
void weft_regions__close(weft_regions *regions); /* NULL is allowed */

/* `regions` may be NULL: shared memory is off then, and the answer tells so. `text`
 * (WEFT_REQUEST_MESSAGE_MAX bytes) gets what is wrong. */
weft_answer weft_regions__check_on(const weft_regions *regions, char *text);
weft_answer weft_regions__register(weft_regions *regions, const weft_region_info *info, char *text);
/* Requests that use the region keep it. `name`: NULL or "" for all. A name that is unknown is no
 * error, as in Triton. */
weft_answer weft_regions__unregister(weft_regions *regions, const char *name, char *text);
/* *out_n regions, in `out` of WEFT_REGIONS_MAX, borrowed until the next change. `name` as above. */
weft_answer weft_regions__list(const weft_regions *regions, const char *name, weft_region_info *out,
                               size_t *out_n, char *text);

/* -- Tensors of requests -------------------------------------------------------------------- */

/* Where a client says that a tensor is: bytes of a region. */
typedef struct weft_region_place {
    const char *name;
    uint64_t offset, bytes; /* of the region */
} weft_region_place;

/* Input `at` of the request, whose dims are set, is in a region. Its data is there once it is
 * loaded. */
weft_answer weft_regions__place_input(weft_regions *regions, const weft_bundle_program *program,
                                      weft_request *request, uint32_t at,
                                      const weft_region_place *place, char *text);
/* Output `at` is to be written to a region; it may take fewer bytes than the place has. */
weft_answer weft_regions__place_output(weft_regions *regions, const weft_bundle_program *program,
                                       weft_request *request, uint32_t at,
                                       const weft_region_place *place, char *text);
bool weft_regions__has_input(const weft_request *request, uint32_t at);
/* false: it is in no region. */
bool weft_regions__find_output(const weft_request *request, uint32_t at, weft_region_place *out);
/* Whether inputs are in regions, and the bytes of all these. */
bool weft_regions__has_inputs(const weft_request *request);
size_t weft_regions__input_bytes(const weft_request *request);
bool weft_regions__has_outputs(const weft_request *request);
/* Reads the inputs into memory of the request. */
weft_answer weft_regions__load(weft_request *request, char *text);
/* Frees what was read, by `offload` (NULL: here). */
void weft_regions__drop_inputs(weft_request *request, weft_offload *offload);
/* Writes the outputs. */
weft_answer weft_regions__store(const weft_request *request, char *text);
void weft_regions__end_uses(weft_region_uses *uses); /* NULL is allowed */

#endif
