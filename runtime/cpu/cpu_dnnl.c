/* Kernels made of oneDNN primitives, and weights packed for them. */
#include "runtime/cpu/cpu_dnnl_int.h"
#include "runtime/cpu/cpu_memory.h"

#include "base/num.h"
#include "runtime/cpu/cpu_team.h"
#include "runtime/cpu/cpu_winograd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, HUGE_BYTES = 2 << 20 };
/* Large weights are packed in slices; SLICE_ALIGN is a multiple of the block size of every packed
 * format. */
enum { SLICE_MIN_BYTES = 32 << 20, SLICE_BYTES = 8 << 20, SLICE_ALIGN = 64 };

/* -- Device --------------------------------------------------------------------------------- */

weft_err weft_cpu__dnnl_open(weft_cpu *cpu, weft_diag *diag)
{
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_status_t status = weft_dnnl__engine_open(&engine, &stream);
    if (status != dnnl_success)
        return weft_diag_error(diag, WEFT_ERR_NODEV, (weft_where){0},
                               "oneDNN cannot be initialised: status %d", (int)status);
    cpu->dnnl_engine = engine;
    cpu->dnnl_stream = stream;
    return WEFT_ERR_OK;
}

void weft_cpu__dnnl_version(char *out, size_t room)
{
    char version[32];
    weft_dnnl__version(version, sizeof version);
    snprintf(out, room, "oneDNN %s", version);
}

uint32_t weft_cpu__dnnl_lanes(void)
{
    return weft_dnnl__has_isa(dnnl_cpu_isa_avx512_core) ? 16
           : weft_dnnl__has_isa(dnnl_cpu_isa_avx2)      ? 8
                                                        : 4;
}

uint64_t weft_cpu__room(uint64_t bytes)
{
    return bytes > UINT64_MAX / 2 ? 0 : weft_align_up(bytes ? bytes : 1, PAGE);
}

/* -- Packed weights ------------------------------------------------------------------------- */

struct weft_cpu_pack {
    weft_cpu_pack *next;
    uint32_t weight, users;
    weft_cpu_format format; /* .fill NULL: the descriptors say it */
    weft_dnnl_scope scope;  /* of the descriptors */
    const weft_dnnl_md *from, *to;
    void *data;
    uint64_t room;
    bool is_tame; /* of Winograd's weights */
};

/* Releases the pages of bytes [from, from + bytes) of a weight; they can be read from the file
 * again. */
static void drop_pages(const weft_engine *e, uint32_t weight, uint64_t from, uint64_t bytes)
{
    weft_file_drop(&e->bundle->file, e->bundle->weight[weight - 1].data + from, bytes);
}

static uint64_t scratch_room(const weft_dnnl_md *md)
{
    uint64_t bytes = weft_dnnl__md_bytes(md);
    return bytes ? weft_cpu__room(bytes) : 0;
}

/* Scratch memory of a reorder is not left to oneDNN, which would keep it; for Winograd it is as
 * large as the result. */
static bool run_reorder(weft_cpu *cpu, const weft_dnnl_pd *pd, const weft_dnnl_md *const md[3],
                        void *const at[3])
{
    static const int arg_of[3] = {DNNL_ARG_FROM, DNNL_ARG_TO, DNNL_ARG_SCRATCHPAD};
    dnnl_primitive_t prim = weft_dnnl__primitive_create(pd);
    dnnl_exec_arg_t arg[3] = {{0}};
    uint32_t n = md[2] ? 3 : 2;
    bool done = prim != NULL;
    for (uint32_t i = 0; i < n && done; i++) {
        arg[i].arg = arg_of[i];
        arg[i].memory = weft_dnnl__memory_create(cpu->dnnl_engine, md[i], at[i]);
        done = arg[i].memory != NULL;
    }
    done = done && weft_dnnl__execute(prim, cpu->dnnl_stream, n, arg);
    for (uint32_t i = 0; i < n; i++)
        weft_dnnl__memory_destroy(arg[i].memory);
    weft_dnnl__primitive_destroy(prim);
    return done;
}

static bool execute_reorder(weft_cpu *cpu, const weft_dnnl_md *from, const void *src,
                            const weft_dnnl_md *to, void *dst)
{
    weft_dnnl_scope scope = {.engine = cpu->dnnl_engine};
    const weft_dnnl_pd *pd = weft_dnnl__reorder(&scope, from, to);
    const weft_dnnl_md *md = pd ? weft_dnnl__pd_md(&scope, pd, dnnl_query_scratchpad_md, 0) : NULL;
    bool done = pd && !weft_cpu__lacked_memory();
    if (done) {
        uint64_t room = scratch_room(md);
        void *scratch =
            room ? mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                 : NULL;
        done = scratch != MAP_FAILED &&
               run_reorder(cpu, pd, (const weft_dnnl_md *const[]){from, to, md},
                           (void *const[]){(void *)(uintptr_t)src, dst, scratch});
        if (scratch && scratch != MAP_FAILED)
            munmap(scratch, room);
    }
    weft_dnnl__scope_finish(&scope);
    return done;
}

/* Whether a weight is packed in slices: it is large, and its format has no compensation, which is a
 * sum over all of it. */
static bool packs_in_slices(const weft_engine *e, uint32_t weight, const weft_dnnl_md *to)
{
    return e->bundle->weight[weight - 1].bytes >= SLICE_MIN_BYTES && to->blocked &&
           to->type == dnnl_f32;
}

/* Packs a large weight in slices along its outermost dim in the file and releases the file pages
 * after each slice, so that the weight is never resident twice. false: failed; the result may be
 * partly written. */
static bool reorder_slices(weft_engine *e, uint32_t weight, const weft_dnnl_md *from,
                           const weft_dnnl_md *to, void *dst)
{
    const weft_bundle_weight *w = &e->bundle->weight[weight - 1];
    dnnl_dims_t dims, offset = {0};
    int outer = 0;
    if (!packs_in_slices(e, weight, to))
        return false;
    for (int d = 0; d < from->rank; d++) {
        dims[d] = from->dim[d];
        if (from->stride[d] > from->stride[outer])
            outer = d;
    }
    uint64_t row = (uint64_t)from->stride[outer] * sizeof(float);
    int64_t step = (int64_t)(SLICE_BYTES / row) / SLICE_ALIGN * SLICE_ALIGN;
    if (step == 0)
        step = SLICE_ALIGN;
    drop_pages(e, weight, 0, w->bytes);
    for (int64_t at = 0; at < from->dim[outer]; at += step) {
        weft_dnnl_scope scope = weft_dnnl__scope(e);
        offset[outer] = at;
        dims[outer] = from->dim[outer] - at < step ? from->dim[outer] - at : step;
        bool done = execute_reorder(e->device, weft_dnnl__md_part(&scope, from, dims, offset),
                                    w->data, weft_dnnl__md_part(&scope, to, dims, offset), dst);
        weft_dnnl__scope_finish(&scope);
        if (!done)
            return false;
        drop_pages(e, weight, (uint64_t)at * row, (uint64_t)dims[outer] * row);
    }
    return true;
}

static bool is_winograd(const weft_dnnl_md *from, const weft_dnnl_md *to, weft_dnnl_winograd *out)
{
    return from->rank == 4 && from->dim[2] == 3 && from->dim[3] == 3 && from->type == dnnl_f32 &&
           from->stride[3] == 1 && from->stride[2] == 3 && from->stride[1] == 9 &&
           from->stride[0] == 9 * from->dim[1] && weft_dnnl__md_winograd(to, out) &&
           weft_cpu__winograd_fits(out);
}

/* Transforms weights for Winograd in slices, as reorder_slices. */
static bool pack_winograd(weft_engine *e, weft_cpu_pack *pack, void *dst)
{
    const float *w = (const void *)e->bundle->weight[pack->weight - 1].data;
    weft_dnnl_winograd f;
    if (!is_winograd(pack->from, pack->to, &f))
        return false;
    int64_t oc = pack->from->dim[0], ic = pack->from->dim[1];
    uint64_t row = (uint64_t)ic * 9 * sizeof(float);
    pack->is_tame = true;
    int64_t step = (int64_t)(SLICE_BYTES / row) / f.oc_block * f.oc_block;
    if (step == 0)
        step = f.oc_block;
    for (int64_t at = 0; at < f.oc; at += step) {
        int64_t end = f.oc - at < step ? f.oc : at + step;
        weft_cpu__winograd_pack(&f, w, oc, ic, at, end, weft_team_threads(), dst);
        int64_t rows = (end < oc ? end : oc) - at;
        if (rows <= 0)
            continue;
        pack->is_tame =
            pack->is_tame && weft_cpu__are_tame(e->device, w + at * ic * 9, rows * ic * 9);
        drop_pages(e, pack->weight, (uint64_t)at * row, (uint64_t)rows * row);
    }
    return true;
}

/* Counts the memory that fill_pack would use. */
static void count_pack(weft_engine *e, weft_cpu_pack *pack)
{
    weft_dnnl_scope scope = weft_dnnl__scope(e);
    uint64_t bytes = e->bundle->weight[pack->weight - 1].bytes, beside = bytes;
    if (pack->format.fill) {
        weft_engine__count_pack(e, pack->weight, pack->room, beside);
        weft_dnnl__scope_finish(&scope);
        return;
    }
    weft_dnnl_winograd f;
    bool winograd = is_winograd(pack->from, pack->to, &f);
    pack->is_tame = winograd;
    if ((winograd || packs_in_slices(e, pack->weight, pack->to)) && bytes > SLICE_BYTES)
        beside = SLICE_BYTES;
    const weft_dnnl_pd *pd = winograd ? NULL : weft_dnnl__reorder(&scope, pack->from, pack->to);
    if (pd)
        beside += scratch_room(weft_dnnl__pd_md(&scope, pd, dnnl_query_scratchpad_md, 0));
    weft_dnnl__scope_finish(&scope);
    weft_engine__count_pack(e, pack->weight, pack->room, beside);
}

static weft_err fill_pack(weft_engine *e, weft_cpu_pack *pack)
{
    const weft_bundle_weight *w = &e->bundle->weight[pack->weight - 1];
    void *data = pack->room ? mmap(NULL, pack->room, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                            : MAP_FAILED;
    if (data == MAP_FAILED)
        return WEFT_ERR_NOMEM;
    pack->data = data;
    if (pack->room >= HUGE_BYTES)
        (void)madvise(data, pack->room, MADV_HUGEPAGE);
    if (pack->format.fill)
        pack->format.fill(data, w->data, &pack->format);
    else if (!pack_winograd(e, pack, data) &&
             !reorder_slices(e, pack->weight, pack->from, pack->to, data) &&
             !execute_reorder(e->device, pack->from, w->data, pack->to, data))
        return WEFT_ERR_UNSUP;
    drop_pages(e, pack->weight, 0, w->bytes);
    return WEFT_ERR_OK;
}

static void destroy_pack(weft_cpu_pack *pack)
{
    if (pack->data)
        munmap(pack->data, pack->room);
    weft_dnnl__scope_finish(&pack->scope);
    free(pack);
}

void weft_cpu__dnnl_close(weft_cpu *cpu)
{
    while (cpu->pack) {
        weft_cpu_pack *next = cpu->pack->next;
        destroy_pack(cpu->pack);
        cpu->pack = next;
    }
    weft_dnnl__engine_close(cpu->dnnl_engine, cpu->dnnl_stream);
}

static weft_err make_pack(weft_engine *e, uint32_t weight, const weft_dnnl_md *from,
                          const weft_dnnl_md *to, const weft_cpu_format *format,
                          weft_cpu_pack **out)
{
    weft_cpu_pack *pack = weft_cpu__calloc(1, sizeof *pack);
    if (!pack)
        return WEFT_ERR_NOMEM;
    pack->room = weft_cpu__room(format ? format->bytes : weft_dnnl__md_bytes(to));
    pack->weight = weight;
    pack->scope = weft_dnnl__scope(e);
    if (format) {
        pack->format = *format;
    } else {
        pack->from = weft_dnnl__md_copy(&pack->scope, from);
        pack->to = weft_dnnl__md_copy(&pack->scope, to);
    }
    weft_err err = format || (pack->from && pack->to) ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK && e->count)
        count_pack(e, pack);
    else if (err == WEFT_ERR_OK)
        err = fill_pack(e, pack);
    pack->format.zero = NULL;
    if (err != WEFT_ERR_OK) {
        destroy_pack(pack);
        return err;
    }
    *out = pack;
    return WEFT_ERR_OK;
}

/* Whether `pack` has this format, or, if that is NULL, these descriptors. */
static bool is_packed_so(const weft_cpu_pack *pack, const weft_dnnl_md *from,
                         const weft_dnnl_md *to, const weft_cpu_format *format)
{
    if (!format)
        return !pack->format.fill && weft_dnnl__md_equal(pack->from, from) &&
               weft_dnnl__md_equal(pack->to, to);
    return pack->format.fill == format->fill && pack->format.bytes == format->bytes &&
           pack->format.zero_weight == format->zero_weight &&
           memcmp(pack->format.size, format->size, sizeof format->size) == 0;
}

static weft_err find_pack(weft_engine *e, uint32_t weight, const weft_dnnl_md *from,
                          const weft_dnnl_md *to, const weft_cpu_format *format,
                          weft_cpu_pack **out)
{
    weft_cpu *cpu = e->device;
    weft_err err = WEFT_ERR_OK;
    pthread_mutex_lock(&e->lock);
    weft_cpu_pack *pack = cpu->pack;
    while (pack && !(pack->weight == weight && is_packed_so(pack, from, to, format)))
        pack = pack->next;
    if (!pack) {
        err = make_pack(e, weight, from, to, format, &pack);
        if (err == WEFT_ERR_OK) {
            pack->next = cpu->pack;
            cpu->pack = pack;
        }
    }
    if (err == WEFT_ERR_OK) {
        pack->users++;
        *out = pack;
    }
    pthread_mutex_unlock(&e->lock);
    return err;
}

static weft_err get_pack(weft_engine *e, uint32_t weight, const weft_dnnl_md *from,
                         const weft_dnnl_md *to, weft_cpu_pack **out)
{
    return find_pack(e, weight, from, to, NULL, out);
}

weft_err weft_cpu__pack_as(weft_prep *p, uint32_t in, const weft_cpu_format *format,
                           weft_cpu_pack **out)
{
    return find_pack(p->engine, p->in[in].weight, NULL, NULL, format, out);
}

/* Kernels of dynamic shape are prepared in every run: of each weight, the packs that were used last
 * stay for the next one. */
void weft_cpu__put_pack(weft_engine *e, weft_cpu_pack *pack)
{
    enum { IDLE_MAX = 2 }; /* of a weight */
    weft_cpu *cpu = e->device;
    pthread_mutex_lock(&e->lock);
    if (--pack->users == 0) {
        int left = atomic_load(&e->has_dynamic) ? IDLE_MAX : 0;
        uint32_t weight = pack->weight;
        weft_cpu_pack **at = &cpu->pack, *p;
        while (*at != pack)
            at = &(*at)->next;
        *at = pack->next;
        pack->next = cpu->pack;
        cpu->pack = pack;
        for (at = &cpu->pack; (p = *at) != NULL;)
            if (p->weight != weight || p->users > 0 || left-- > 0) {
                at = &p->next;
            } else {
                *at = p->next;
                destroy_pack(p);
            }
    }
    pthread_mutex_unlock(&e->lock);
}

weft_err weft_cpu__pack_transposed(weft_prep *p, uint32_t in, weft_cpu_pack **out)
{
    const weft_tensor *w = &p->in[in].tensor;
    weft_dnnl_scope scope = weft_dnnl__scope(p->engine);
    const weft_dnnl_md *from = weft_dnnl__md_by_tag(&scope, 2, w->dim, dnnl_f32, dnnl_ab);
    const weft_dnnl_md *to = weft_dnnl__md_by_tag(&scope, 2, w->dim, dnnl_f32, dnnl_ba);
    weft_err err =
        from && to ? get_pack(p->engine, p->in[in].weight, from, to, out) : WEFT_ERR_UNSUP;
    weft_dnnl__scope_finish(&scope);
    return err;
}

weft_err weft_cpu__pack_panels(weft_prep *p, uint32_t in, int64_t n_matrix, int64_t rows,
                               int64_t cols, weft_cpu_pack **out)
{
    const int64_t dim[] = {n_matrix, rows, cols};
    weft_dnnl_scope scope = weft_dnnl__scope(p->engine);
    const weft_dnnl_md *from = weft_dnnl__md_by_tag(&scope, 3, dim, dnnl_f32, dnnl_abc);
    const weft_dnnl_md *to = weft_dnnl__md_by_tag(&scope, 3, dim, dnnl_f32, dnnl_aBc32b);
    weft_err err =
        from && to ? get_pack(p->engine, p->in[in].weight, from, to, out) : WEFT_ERR_UNSUP;
    weft_dnnl__scope_finish(&scope);
    return err;
}

const void *weft_cpu__pack_data(const weft_cpu_pack *pack)
{
    return pack->data;
}

uint64_t weft_cpu__packed_bytes(weft_engine *e)
{
    const weft_cpu *cpu = e->device;
    uint64_t bytes = 0;
    pthread_mutex_lock(&e->lock);
    for (const weft_cpu_pack *p = cpu->pack; p; p = p->next)
        bytes += p->room;
    pthread_mutex_unlock(&e->lock);
    return bytes;
}

/* -- Kernels -------------------------------------------------------------------------------- */

dnnl_kernel *weft_dnnl__create(weft_prep *p)
{
    dnnl_kernel *k = weft_cpu__calloc(1, sizeof *k);
    if (k) {
        k->engine = p->engine;
        k->stream = weft_cpu__of(p)->dnnl_stream;
        k->threads = weft_team_threads();
        weft_cpu__tame_init(p, &k->tame);
    }
    return k;
}

void weft_dnnl__destroy(void *kernel)
{
    dnnl_kernel *k = kernel;
    if (!k)
        return;
    for (uint32_t i = 0; i < k->n_call; i++) {
        for (uint32_t j = 0; j < k->call[i]->n; j++)
            weft_dnnl__memory_destroy(k->call[i]->arg[j].memory);
        weft_dnnl__primitive_destroy(k->call[i]->prim);
        free(k->call[i]);
    }
    for (uint32_t i = 0; i < k->n_pack; i++)
        weft_cpu__put_pack(k->engine, k->pack[i]);
    for (uint32_t i = 0; i < k->n_value; i++)
        free(k->value[i]);
    weft_cpu__ew_destroy(k->ew);
    free(k);
}

static weft_err run_calls(dnnl_kernel *k, void *const *arg)
{
    for (uint32_t i = 0; i < k->n_call; i++) {
        dnnl_call *s = k->call[i];
        for (uint32_t j = 0; j < s->n; j++) {
            dnnl_bind *b = &s->bind[j];
            if (b->arg < 0)
                continue;
            void *at = (char *)arg[b->arg] + b->offset;
            if (at != b->at) {
                if (!weft_dnnl__memory_move(s->arg[j].memory, at))
                    return WEFT_ERR_BUG;
                b->at = at;
            }
        }
        if (!weft_dnnl__execute(s->prim, k->stream, s->n, s->arg))
            return WEFT_ERR_BUG;
    }
    return WEFT_ERR_OK;
}

static weft_err run_dnnl(void *state, void *const *arg)
{
    dnnl_kernel *k = state;
    /* oneDNN expects the number of threads that the primitives were created for. */
    uint32_t threads = weft_team_limit(k->threads);
    if (k->tame_in)
        weft_cpu__need_tame(k->engine->device, arg[0], k->tame_in);
    if (k->loses_nan)
        weft_team_clear_invalid();
    weft_err err = run_calls(k, arg);
    if (k->loses_nan && weft_team_is_invalid())
        weft_cpu__lose_nan(&k->tame, arg);
    if (k->tame_out)
        weft_cpu__need_tame(k->engine->device, arg[k->out], k->tame_out);
    weft_team_limit(threads);
    weft_cpu__clear_lanes(&k->lanes, arg[k->out]);
    if (err == WEFT_ERR_OK && k->ew)
        weft_cpu__ew_run(k->ew, arg);
    return err;
}

void weft_dnnl__set(weft_prep *p, dnnl_kernel *k, const weft_dnnl_pd *pd)
{
    snprintf(k->variant, sizeof k->variant, "onednn:%s%s", weft_dnnl__pd_name(pd),
             k->ew ? "+ew" : "");
    p->run = run_dnnl;
    p->state = k;
    p->destroy = weft_dnnl__destroy;
    p->variant = k->variant;
}

dnnl_call *weft_dnnl__add(dnnl_kernel *k, const weft_dnnl_pd *pd)
{
    if (k->n_call == DNNL_CALL_MAX)
        return NULL;
    dnnl_call *s = weft_cpu__calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->prim = weft_dnnl__primitive_create(pd);
    if (!s->prim) {
        free(s);
        return NULL;
    }
    k->call[k->n_call++] = s;
    return s;
}

static bool bind(dnnl_kernel *k, dnnl_call *s, int dnnl_arg, const weft_dnnl_md *md, dnnl_bind to)
{
    const weft_cpu *cpu = k->engine->device;
    if (s->n == DNNL_BIND_MAX)
        return false;
    dnnl_memory_t memory = weft_dnnl__memory_create(cpu->dnnl_engine, md, to.at);
    if (!memory)
        return false;
    s->arg[s->n] = (dnnl_exec_arg_t){.arg = dnnl_arg, .memory = memory};
    s->bind[s->n++] = to;
    return true;
}

bool weft_dnnl__bind(dnnl_kernel *k, dnnl_call *s, int dnnl_arg, const weft_dnnl_md *md,
                     uint32_t arg, uint64_t offset)
{
    return bind(k, s, dnnl_arg, md, (dnnl_bind){.arg = (int32_t)arg, .offset = offset});
}

bool weft_dnnl__bind_const(dnnl_kernel *k, dnnl_call *s, int dnnl_arg, const weft_dnnl_md *md,
                           const void *at)
{
    return bind(k, s, dnnl_arg, md, (dnnl_bind){.arg = -1, .at = (void *)(uintptr_t)at});
}

static bool bind_value(dnnl_kernel *k, dnnl_call *s, weft_dnnl_scope *scope,
                       const weft_dnnl_const *c)
{
    const int64_t dim = c->n;
    size_t bytes = c->n * sizeof(float);
    void *copy = k->n_value < DNNL_VALUE_MAX ? weft_cpu__malloc(bytes) : NULL;
    if (!copy)
        return false;
    memcpy(copy, c->values, bytes);
    k->value[k->n_value++] = copy;
    return weft_dnnl__bind_const(k, s, c->arg,
                                 weft_dnnl__md_by_tag(scope, 1, &dim, c->type, dnnl_a), copy);
}

bool weft_dnnl__bind_quant(dnnl_kernel *k, dnnl_call *s, const weft_dnnl_quant *q)
{
    weft_dnnl_const arg[WEFT_DNNL_QUANT_ARGS];
    weft_dnnl_scope scope = weft_dnnl__scope(k->engine);
    uint32_t n = weft_dnnl__quant_args(q, arg);
    bool done = true;
    for (uint32_t i = 0; i < n && done; i++)
        done = bind_value(k, s, &scope, &arg[i]);
    weft_dnnl__scope_finish(&scope);
    return done;
}

bool weft_dnnl__bind_scratch(weft_prep *p, dnnl_kernel *k, dnnl_call *s, const weft_dnnl_pd *pd,
                             uint64_t offset)
{
    weft_dnnl_scope scope = weft_dnnl__scope(p->engine);
    const weft_dnnl_md *md = weft_dnnl__pd_md(&scope, pd, dnnl_query_scratchpad_md, 0);
    uint64_t bytes = weft_dnnl__md_bytes(md);
    if (p->scratch_bytes < offset + bytes)
        p->scratch_bytes = offset + bytes;
    bool done =
        bytes == 0 || weft_dnnl__bind(k, s, DNNL_ARG_SCRATCHPAD, md, p->n_in + p->n_out, offset);
    weft_dnnl__scope_finish(&scope);
    return done;
}

bool weft_dnnl__add_reorder(dnnl_kernel *k, const weft_dnnl_md *from, uint32_t from_arg,
                            uint64_t from_offset, const weft_dnnl_md *to, uint32_t to_arg,
                            uint64_t to_offset)
{
    weft_dnnl_scope scope = weft_dnnl__scope(k->engine);
    const weft_dnnl_pd *pd = weft_dnnl__reorder(&scope, from, to);
    dnnl_call *s = pd ? weft_dnnl__add(k, pd) : NULL;
    bool done = s && !weft_dnnl__pd_md(&scope, pd, dnnl_query_scratchpad_md, 0) &&
                weft_dnnl__bind(k, s, DNNL_ARG_FROM, from, from_arg, from_offset) &&
                weft_dnnl__bind(k, s, DNNL_ARG_TO, to, to_arg, to_offset);
    weft_dnnl__scope_finish(&scope);
    return done;
}

weft_err weft_dnnl__bind_weight(weft_prep *p, dnnl_kernel *k, dnnl_call *s, int dnnl_arg,
                                uint32_t in, const weft_dnnl_md *from, const weft_dnnl_md *to)
{
    const weft_slot *slot = &p->in[in];
    weft_cpu_pack *pack;
    if (weft_dnnl__md_equal(from, to))
        return weft_dnnl__bind(k, s, dnnl_arg, from, in, 0) ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
    if (!slot->weight || k->n_pack == DNNL_PACK_MAX)
        return WEFT_ERR_UNSUP;
    WEFT_TRY(get_pack(p->engine, slot->weight, from, to, &pack));
    k->pack[k->n_pack++] = pack;
    return weft_dnnl__bind_const(k, s, dnnl_arg, to, pack->data) ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
}

bool weft_dnnl__pack_is_tame(const weft_cpu_pack *pack)
{
    return pack->is_tame;
}

/* -- Descriptors ---------------------------------------------------------------------------- */

dnnl_format_tag_t weft_dnnl__tag(weft_layout layout, int32_t rank)
{
    static const dnnl_format_tag_t plain[] = {
        dnnl_format_tag_undef, dnnl_a,       dnnl_ab,      dnnl_abc, dnnl_abcd, dnnl_abcde,
        dnnl_abcdef,           dnnl_abcdefg, dnnl_abcdefgh};
    static const dnnl_format_tag_t c16[] = {dnnl_format_tag_undef, dnnl_format_tag_undef,
                                            dnnl_format_tag_undef, dnnl_aBc16b,
                                            dnnl_aBcd16b,          dnnl_aBcde16b};
    static const dnnl_format_tag_t c8[] = {dnnl_format_tag_undef, dnnl_format_tag_undef,
                                           dnnl_format_tag_undef, dnnl_aBc8b,
                                           dnnl_aBcd8b,           dnnl_aBcde8b};
    static const dnnl_format_tag_t nhwc[] = {
        dnnl_format_tag_undef, dnnl_format_tag_undef, dnnl_ab, dnnl_acb, dnnl_acdb, dnnl_acdeb};
    if (rank < 1 || rank > WEFT_RANK_MAX || (layout != WEFT_LAYOUT_PLAIN && (rank < 2 || rank > 5)))
        return dnnl_format_tag_undef;
    switch (layout) {
    case WEFT_LAYOUT_PLAIN:
        return plain[rank];
    case WEFT_LAYOUT_C16:
        return c16[rank];
    case WEFT_LAYOUT_C8:
        return c8[rank];
    case WEFT_LAYOUT_NHWC:
        return nhwc[rank];
    default:
        return dnnl_format_tag_undef;
    }
}

dnnl_data_type_t weft_dnnl__type(const weft_slot *s)
{
    switch (s->tensor.dtype) {
    case WEFT_DTYPE_U8:
        return dnnl_u8;
    case WEFT_DTYPE_I8:
        return dnnl_s8;
    case WEFT_DTYPE_F32:
        return dnnl_f32;
    default:
        return dnnl_data_type_undef;
    }
}

const weft_dnnl_md *weft_dnnl__md(weft_dnnl_scope *scope, const weft_slot *s)
{
    dnnl_format_tag_t tag = weft_dnnl__tag(s->layout, s->tensor.rank);
    dnnl_data_type_t type = weft_dnnl__type(s);
    if (tag == dnnl_format_tag_undef || type == dnnl_data_type_undef)
        return NULL;
    return weft_dnnl__md_by_tag(scope, s->tensor.rank, s->tensor.dim, type, tag);
}

const weft_dnnl_md *weft_dnnl__md_plain(weft_dnnl_scope *scope, int rank, const int64_t *dim)
{
    return weft_dnnl__md_by_tag(scope, rank, dim, dnnl_f32,
                                weft_dnnl__tag(WEFT_LAYOUT_PLAIN, rank));
}

const weft_dnnl_md *weft_dnnl__md_any(weft_dnnl_scope *scope, int rank, const int64_t *dim)
{
    return weft_dnnl__md_by_tag(scope, rank, dim, dnnl_f32, dnnl_format_tag_any);
}

/* -- Reorders ------------------------------------------------------------------------------- */

weft_err weft_cpu__prepare_dnnl_reorder(weft_prep *p)
{
    weft_dnnl_scope scope = weft_dnnl__scope(p->engine);
    const weft_dnnl_md *from = weft_dnnl__md(&scope, &p->in[0]);
    const weft_dnnl_md *to = weft_dnnl__md(&scope, &p->out[0]);
    const weft_dnnl_pd *pd = weft_dnnl__reorder(&scope, from, to);
    dnnl_kernel *k = pd ? weft_dnnl__create(p) : NULL;
    if (k && weft_dnnl__add_reorder(k, from, 0, 0, to, 1, 0))
        weft_dnnl__set(p, k, pd);
    else
        weft_dnnl__destroy(k);
    weft_dnnl__scope_finish(&scope);
    return WEFT_ERR_OK;
}
