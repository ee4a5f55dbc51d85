/* Weights: constant tensors, shared by all graphs of a module. */
#include "base/random.h"
#include "ir/ir_int.h"

#include <string.h>

enum { COPY_MIN_BYTES = 4096 };

weft_weight weft_weight_add(weft_module *m, const weft_weight_info *info)
{
    weft_weight_rec *rec = weft_arena_alloc(m->arena, sizeof *rec);
    rec->info = *info;
    WEFT_VEC_PUSH(m->arena, &m->weights, rec);
    weft_weight w = {m->weights.len - 1};
    if (info->name && info->name[0])
        rec->info.name = weft_module__name(m, info->name);
    else
        rec->info.name = weft_arena_printf(m->arena, "w%u", w.i);
    weft_val_rec val = {.type = info->type.i, .def = w.i, .kind = WEFT_VAL_WEIGHT};
    rec->val = weft_module__add_val(m, &val);
    return w;
}

const weft_weight_info *weft_weight_get(const weft_module *m, weft_weight w)
{
    return &m->weights.at[w.i]->info;
}

uint32_t weft_weight_count(const weft_module *m)
{
    return m->weights.len - 1;
}

static weft_hash128 hash_content(const weft_module *m, const weft_weight_info *info)
{
    const weft_ttype *t = weft_type_get(m, info->type);
    uint64_t seed = weft_hash_mix(t->dtype, t->rank);
    for (uint32_t i = 0; i < t->rank; i++)
        seed = weft_hash_mix(seed, (uint64_t)t->dim[i]);
    return weft_hash_content(info->data, info->bytes, seed);
}

static void set_hash(weft_weight_rec *rec, weft_hash128 hash)
{
    rec->hash = hash;
    rec->hashed = true;
}

/* Releases the bytes of a mapped file from memory. */
static void drop_bytes(const weft_module *m, const weft_weight_info *info)
{
    const weft_file *file = weft_module__file(m, info->file_id);
    if (file)
        weft_file_drop(file, info->data, info->bytes);
}

weft_hash128 weft_weight_hash(weft_module *m, weft_weight w)
{
    weft_weight_rec *rec = m->weights.at[w.i];
    if (!rec->hashed) {
        set_hash(rec, hash_content(m, &rec->info));
        drop_bytes(m, &rec->info);
    }
    return rec->hash;
}

static bool same_content(const weft_weight_info *a, const weft_weight_info *b)
{
    return a->type.i == b->type.i && a->bytes == b->bytes &&
           (a->bytes == 0 || memcmp(a->data, b->data, (size_t)a->bytes) == 0);
}

bool weft_weight_equal(weft_module *m, weft_weight a, weft_weight b)
{
    const weft_weight_info *x = weft_weight_get(m, a), *y = weft_weight_get(m, b);
    if (!weft_hash128_eq(weft_weight_hash(m, a), weft_weight_hash(m, b)))
        return false;
    bool same = same_content(x, y);
    drop_bytes(m, x);
    drop_bytes(m, y);
    return same;
}

weft_weight weft_weight_add_copy(weft_module *m, const weft_weight_info *info)
{
    weft_weight_info own = *info;
    bool small = info->bytes < COPY_MIN_BYTES;
    weft_hash128 hash = small ? (weft_hash128){0} : hash_content(m, info);
    uint64_t key = weft_hash_mix(hash.lo, hash.hi), found = 0;
    if (!small && weft_map_get(m->copies, key, &found) &&
        same_content(&m->weights.at[found]->info, info))
        return (weft_weight){(uint32_t)found};
    uint8_t *copy = weft_arena_alloc(m->arena, info->bytes);
    if (info->bytes)
        memcpy(copy, info->data, info->bytes);
    own.data = copy;
    weft_weight w = weft_weight_add(m, &own);
    if (!small) {
        set_hash(m->weights.at[w.i], hash);
        weft_map_put(m->copies, key, w.i);
    }
    return w;
}

weft_val weft_weight_val(weft_module *m, weft_weight w)
{
    return m->weights.at[w.i]->val;
}

weft_tensor weft_weight_tensor(const weft_module *m, weft_weight w)
{
    const weft_weight_info *info = weft_weight_get(m, w);
    const weft_ttype *t = weft_type_get(m, info->type);
    weft_tensor tensor = {.dtype = (weft_dtype)t->dtype, .rank = t->rank};
    memcpy(tensor.dim, t->dim, t->rank * sizeof t->dim[0]);
    /* Operands are const weft_tensor *: nothing is written through this pointer. */
    memcpy(&tensor.data, &info->data, sizeof tensor.data);
    return tensor;
}

void weft_weight__set_random(weft_module *m, weft_weight w, uint64_t seed)
{
    m->weights.at[w.i]->random = true;
    m->weights.at[w.i]->seed = seed;
}

bool weft_weight__get_random(const weft_module *m, weft_weight w, uint64_t *out_seed)
{
    *out_seed = m->weights.at[w.i]->seed;
    return m->weights.at[w.i]->random;
}

/* -- Generator -------------------------------------------------------------------------------- */

void weft_weight__generate(weft_dtype dtype, uint64_t seed, uint64_t n, void *bytes)
{
    weft_tensor t = {.dtype = dtype, .rank = 1, .dim = {(int64_t)n}, .data = bytes};
    uint64_t state = seed;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t x = weft_rand_split(&state);
        switch (weft_dtype_get_class(dtype)) {
        case WEFT_CLASS_FLOAT:
            weft_tensor_set_f64(&t, (int64_t)i, (double)(x >> 40) * 0x1p-24 - 0.5);
            break;
        case WEFT_CLASS_BOOL:
            weft_tensor_set_i64(&t, (int64_t)i, (int64_t)(x >> 63));
            break;
        default:
            weft_tensor_set_i64(&t, (int64_t)i, (int64_t)(x >> 61));
        }
    }
}
