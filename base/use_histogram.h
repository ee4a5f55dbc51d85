/* How much of a device's compute units and of its memory bandwidth a run uses over time, as a joint
 * histogram: the parts of the time that both spend at each pair of levels.
 *
 * Kernels alternate between the levels faster than any short list of periods can follow, and what
 * runs beside each other without a common clock meets in every phase. So the order of the levels is
 * dropped, and the expected conflict of two runs follows from their histograms.
 *
 * Level i stands for i / 7 of the device. Time at a value between two levels is divided between
 * them so that the mean is that of the values. In text: "72:10 05:245", level of compute, level of
 * bandwidth, part of 255. */
#ifndef WEFT_BASE_USE_HISTOGRAM_H
#define WEFT_BASE_USE_HISTOGRAM_H

#include <stdbool.h>
#include <stdint.h>

enum {
    WEFT_USEHIST_LEVELS = 8,
    WEFT_USEHIST_CELLS = WEFT_USEHIST_LEVELS * WEFT_USEHIST_LEVELS,
    WEFT_USEHIST_WHOLE = 255, /* sum of all parts */
    WEFT_USEHIST_TEXT_MAX = WEFT_USEHIST_CELLS * 7 + 1
};

typedef enum weft_usehist_kind { WEFT_USEHIST_COMPUTE, WEFT_USEHIST_BANDWIDTH } weft_usehist_kind;

/* part[compute][bandwidth]; zeroes: not known. */
typedef struct weft_usehist {
    uint8_t part[WEFT_USEHIST_LEVELS][WEFT_USEHIST_LEVELS];
} weft_usehist;

/* A histogram in the making: time at each pair of levels, in any unit. Starts as zeroes. */
typedef struct weft_usehist_time {
    double at[WEFT_USEHIST_LEVELS][WEFT_USEHIST_LEVELS];
} weft_usehist_time;

/* Adds time at a use of both, each a part of the device; outside 0..1 they are cut. */
void weft_usehist_add(weft_usehist_time *sum, double compute, double bandwidth, double time);
/* false: no time was added. */
bool weft_usehist_make(const weft_usehist_time *sum, weft_usehist *out);

bool weft_usehist_is_known(const weft_usehist *use); /* the parts sum to 255 */
/* Part of the time at each level of one of the two. */
void weft_usehist_levels(const weft_usehist *use, weft_usehist_kind kind,
                         double out[WEFT_USEHIST_LEVELS]);
double weft_usehist_mean(const weft_usehist *use, weft_usehist_kind kind);
/* The least level that covers at least this part of the time; 1: the highest level in use. */
double weft_usehist_quantile(const weft_usehist *use, weft_usehist_kind kind, double part);
/* The mean of what exceeds `limit`. */
double weft_usehist_above(const weft_usehist *use, weft_usehist_kind kind, double limit);
/* The mean of what two runs without a common clock want together beyond the whole device. */
double weft_usehist_conflict(const weft_usehist *a, const weft_usehist *b, weft_usehist_kind kind);

void weft_usehist_format(const weft_usehist *use, char out[WEFT_USEHIST_TEXT_MAX]);
/* false: the text is not of this form, names a pair twice, or its parts do not sum to 255. */
bool weft_usehist_parse(const char *text, weft_usehist *out);

#endif
