/* The known word that a mistyped one was meant to be, and what a message says of it. */
#ifndef WEFT_BASE_NEAREST_H
#define WEFT_BASE_NEAREST_H

#include <stddef.h>

/* The word of the list that begins with `word` (of three characters or more), else the nearest one
 * by edit distance (insert, delete, replace, swap two neighbours), if about a third of its
 * characters differ at most; else NULL. Case does not count. `at` gives word i, NULL behind the
 * last; among equals the first is returned. */
const char *weft_nearest(const char *word, const char *(*at)(size_t i, const void *user),
                         const void *user);

/* What a message of a word that is none of the list ends with, written to `buf`: ", did you mean
 * NEAR?", else "; there are A, B and 7 more". Returns buf. */
enum { WEFT_NEAREST_BYTES_MAX = 512 };
const char *weft_nearest_say(const char *word, const char *(*at)(size_t i, const void *user),
                             const void *user, char buf[WEFT_NEAREST_BYTES_MAX]);

#endif
