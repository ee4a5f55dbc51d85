/* Entries are stored in insertion order in one array. A hash table of their numbers (open
 * addressing with linear probing, at most half full) finds them by key. */
#include "base/map.h"

#include "base/hash.h"

typedef struct entry {
    uint64_t key, value;
} entry;

struct weft_map {
    weft_arena *arena;
    WEFT_VEC(entry) entries;
    uint32_t *slot; /* number of the entry plus 1; 0: free */
    uint32_t n_slot;
};

weft_map *weft_map_create(weft_arena *arena)
{
    weft_map *map = weft_arena_alloc(arena, sizeof *map);
    map->arena = arena;
    return map;
}

/* The slot that holds `key`, or the free one where it belongs. The table is not empty. */
static uint32_t find_slot(const weft_map *map, uint64_t key)
{
    uint32_t mask = map->n_slot - 1;
    uint32_t i = (uint32_t)weft_hash_mix(0, key) & mask;
    while (map->slot[i] && map->entries.at[map->slot[i] - 1].key != key)
        i = (i + 1) & mask;
    return i;
}

static void grow_table(weft_map *map)
{
    map->n_slot = map->n_slot ? map->n_slot * 2 : 16;
    map->slot = weft_arena_array(map->arena, map->n_slot, sizeof *map->slot);
    for (uint32_t i = 0; i < map->entries.len; i++)
        map->slot[find_slot(map, map->entries.at[i].key)] = i + 1;
}

void weft_map_put(weft_map *map, uint64_t key, uint64_t value)
{
    if (map->entries.len >= map->n_slot / 2)
        grow_table(map);
    uint32_t i = find_slot(map, key);
    if (map->slot[i]) {
        map->entries.at[map->slot[i] - 1].value = value;
        return;
    }
    entry e = {key, value};
    WEFT_VEC_PUSH(map->arena, &map->entries, e);
    map->slot[i] = map->entries.len;
}

bool weft_map_get(const weft_map *map, uint64_t key, uint64_t *out)
{
    if (!map->n_slot)
        return false;
    uint32_t i = find_slot(map, key);
    if (!map->slot[i])
        return false;
    *out = map->entries.at[map->slot[i] - 1].value;
    return true;
}

uint32_t weft_map_len(const weft_map *map)
{
    return map->entries.len;
}

void weft_map_entry(const weft_map *map, uint32_t i, uint64_t *out_key, uint64_t *out_value)
{
    *out_key = map->entries.at[i].key;
    *out_value = map->entries.at[i].value;
}
