/* A hash map from 64-bit keys to 64-bit values, in an arena. Iteration order is insertion order, so
 * that nothing in a bundle depends on addresses. Single-thread. */
#ifndef WEFT_BASE_MAP_H
#define WEFT_BASE_MAP_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct weft_map weft_map;

weft_map *weft_map_create(weft_arena *arena);
void weft_map_put(weft_map *map, uint64_t key, uint64_t value);
bool weft_map_get(const weft_map *map, uint64_t key, uint64_t *out);
uint32_t weft_map_len(const weft_map *map);
/* i-th entry in insertion order. */
void weft_map_entry(const weft_map *map, uint32_t i, uint64_t *out_key, uint64_t *out_value);

#endif
