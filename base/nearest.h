/* The known word that a mistyped one was meant to be. */
#ifndef WEFT_BASE_NEAREST_H
#define WEFT_BASE_NEAREST_H

#include <stddef.h>

/* The word of the list that begins with `word` (of three characters or more), else the nearest one
 * by edit distance (insert, delete, replace, swap two neighbours), if about a third of its
 * characters differ at most; else NULL. Case does not count. `at` gives word i, NULL behind the
 * last; among equals the first is returned. */
const char *weft_nearest(const char *word, const char *(*at)(size_t i, const void *user),
                         const void *user);

#endif
