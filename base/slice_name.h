/* Names of slices of a device, as set files, profiles, plans and commands write them:
 *
 *   ""             the whole device
 *   "3g.40gb"      a GPU instance of a MIG profile
 *   "40%"          an MPS share of a GPU
 *   "3g.40gb/50%"  an MPS share of an instance
 *   "2core"        cores of a CPU
 *
 * Which of them a device has is the business of the caller. */
#ifndef WEFT_BASE_SLICE_NAME_H
#define WEFT_BASE_SLICE_NAME_H

#include <stdbool.h>
#include <stdint.h>

enum { WEFT_SLICE_NAME_MAX = 32 }; /* bytes with NUL */

/* Parts of the name of a GPU's slice. */
typedef struct weft_slice_name {
    char profile[WEFT_SLICE_NAME_MAX]; /* "": no MIG */
    double share;                      /* of the GPU or the instance, in (0, 1]; 0: no MPS */
    uint32_t percent;                  /* the share, if it is a whole percentage; else 0 */
} weft_slice_name;

/* false: the name is too long, or what stands where a share should is none from over 0% to 100%. */
bool weft_slicename_parse(const char *name, weft_slice_name *out);

/* "4core"; false when the name is not of this form, or has fewer than 1 or more than `max` cores.
 */
bool weft_slicename_cores(const char *name, uint32_t max, uint32_t *out);

#endif
