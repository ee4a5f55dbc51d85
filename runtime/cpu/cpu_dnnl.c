/* Kernels made of oneDNN primitives, and weights packed for them. */
#include "runtime/cpu/cpu_dnnl_int.h"

#include "base/num.h"

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
    dnnl_status_t status = dnnl_engine_create(&engine, dnnl_cpu, 0);
    if (status == dnnl_success) {
        cpu->dnnl_engine = engine;
        status = dnnl_stream_create(&stream, engine, dnnl_stream_default_flags);
    }
    if (status != dnnl_success)
        return weft_diag_error(diag, WEFT_ERR_NODEV, (weft_where){0},
                               "oneDNN cannot be initialised: status %d", (int)status);
    cpu->dnnl_stream = stream;
    return WEFT_ERR_OK;
}

void weft_cpu__dnnl_close(weft_cpu *cpu)
{
    if (cpu->dnnl_stream)
        dnnl_stream_destroy(cpu->dnnl_stream);
    if (cpu->dnnl_engine)
        dnnl_engine_destroy(cpu->dnnl_engine);
}

uint32_t weft_cpu__dnnl_lanes(void)
{
    /* An instruction set's number contains the bits of the sets that it includes. */
    unsigned isa = (unsigned)dnnl_get_effective_cpu_isa();
    return (isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core ? 16
           : (isa & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2             ? 8
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
    dnnl_memory_desc_t from, to;
    void *data;
    uint64_t room;
};

/* Releases the pages of bytes [from, from + bytes) of a weight; they can be read from the file
 * again. */
static void drop_pages(const weft_engine *e, uint32_t weight, uint64_t from, uint64_t bytes)
{
    weft_file_drop(&e->bundle->file, e->bundle->weight[weight - 1].data + from, bytes);
}

/* A reorder with scratch memory owned by the caller: oneDNN's own would remain allocated, and for
 * Winograd it is as large as the result. */
static bool make_reorder(const weft_cpu *cpu, const dnnl_memory_desc_t *from,
                         const dnnl_memory_desc_t *to, dnnl_primitive_desc_t *out)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_engine_t engine = cpu->dnnl_engine;
    bool done =
        dnnl_primitive_attr_create(&attr) == dnnl_success &&
        dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) == dnnl_success &&
        dnnl_reorder_primitive_desc_create(out, from, engine, to, engine, attr) == dnnl_success;
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    return done;
}

static uint64_t reorder_scratch(const_dnnl_primitive_desc_t pd)
{
    const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    uint64_t bytes = md ? dnnl_memory_desc_get_size(md) : 0;
    return bytes ? weft_cpu__room(bytes) : 0;
}

static bool run_reorder(weft_cpu *cpu, const_dnnl_primitive_desc_t pd,
                        const dnnl_memory_desc_t *from, const void *src,
                        const dnnl_memory_desc_t *to, void *dst, void *scratch)
{
    const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    dnnl_primitive_t prim = NULL;
    dnnl_memory_t memory[3] = {NULL};
    dnnl_engine_t engine = cpu->dnnl_engine;
    bool done =
        dnnl_primitive_create(&prim, pd) == dnnl_success &&
        dnnl_memory_create(&memory[0], from, engine, (void *)(uintptr_t)src) == dnnl_success &&
        dnnl_memory_create(&memory[1], to, engine, dst) == dnnl_success &&
        (!scratch || dnnl_memory_create(&memory[2], md, engine, scratch) == dnnl_success);
    if (done) {
        dnnl_exec_arg_t arg[3] = {
            {DNNL_ARG_FROM, memory[0]}, {DNNL_ARG_TO, memory[1]}, {DNNL_ARG_SCRATCHPAD, memory[2]}};
        done =
            dnnl_primitive_execute(prim, cpu->dnnl_stream, scratch ? 3 : 2, arg) == dnnl_success &&
            dnnl_stream_wait(cpu->dnnl_stream) == dnnl_success;
    }
    for (int i = 0; i < 3; i++)
        if (memory[i])
            dnnl_memory_destroy(memory[i]);
    if (prim)
        dnnl_primitive_destroy(prim);
    return done;
}

static bool execute_reorder(weft_cpu *cpu, const dnnl_memory_desc_t *from, const void *src,
                            const dnnl_memory_desc_t *to, void *dst)
{
    dnnl_primitive_desc_t pd = NULL;
    if (!make_reorder(cpu, from, to, &pd))
        return false;
    uint64_t room = reorder_scratch(pd);
    void *scratch =
        room ? mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : NULL;
    bool done = scratch != MAP_FAILED && run_reorder(cpu, pd, from, src, to, dst, scratch);
    if (scratch && scratch != MAP_FAILED)
        munmap(scratch, room);
    dnnl_primitive_desc_destroy(pd);
    return done;
}

/* Whether a weight is large enough to be packed in slices. */
static bool packs_in_slices(const weft_engine *e, uint32_t weight, const dnnl_memory_desc_t *to)
{
    return e->bundle->weight[weight - 1].bytes >= SLICE_MIN_BYTES &&
           to->format_kind == dnnl_blocked;
}

/* Packs a large weight in slices along its outermost dim in the file and releases the file pages
 * after each slice, so that the weight is never resident twice. false: failed; the result may be
 * partly written. */
static bool reorder_slices(weft_engine *e, uint32_t weight, const dnnl_memory_desc_t *from,
                           const dnnl_memory_desc_t *to, void *dst)
{
    const weft_bundle_weight *w = &e->bundle->weight[weight - 1];
    dnnl_dims_t dims, offset = {0};
    int outer = 0;
    if (!packs_in_slices(e, weight, to))
        return false;
    for (int d = 0; d < from->ndims; d++) {
        dims[d] = from->dims[d];
        if (from->format_desc.blocking.strides[d] > from->format_desc.blocking.strides[outer])
            outer = d;
    }
    uint64_t row = (uint64_t)from->format_desc.blocking.strides[outer] * sizeof(float);
    int64_t step = (int64_t)(SLICE_BYTES / row) / SLICE_ALIGN * SLICE_ALIGN;
    if (step == 0)
        step = SLICE_ALIGN;
    drop_pages(e, weight, 0, w->bytes);
    for (int64_t at = 0; at < from->dims[outer]; at += step) {
        dnnl_memory_desc_t a, b;
        offset[outer] = at;
        dims[outer] = from->dims[outer] - at < step ? from->dims[outer] - at : step;
        if (dnnl_memory_desc_init_submemory(&a, from, dims, offset) != dnnl_success ||
            dnnl_memory_desc_init_submemory(&b, to, dims, offset) != dnnl_success ||
            !execute_reorder(e->device, &a, w->data, &b, dst))
            return false;
        drop_pages(e, weight, (uint64_t)at * row, (uint64_t)dims[outer] * row);
    }
    return true;
}

/* Counts the memory that make_pack would use. */
static void count_pack(weft_engine *e, const weft_cpu_pack *pack)
{
    dnnl_primitive_desc_t pd = NULL;
    uint64_t bytes = e->bundle->weight[pack->weight - 1].bytes, beside = bytes;
    if (packs_in_slices(e, pack->weight, &pack->to) && bytes > SLICE_BYTES)
        beside = SLICE_BYTES;
    if (make_reorder(e->device, &pack->from, &pack->to, &pd)) {
        beside += reorder_scratch(pd);
        dnnl_primitive_desc_destroy(pd);
    }
    weft_engine__count_pack(e, pack->weight, pack->room, beside);
}

static weft_err make_pack(weft_engine *e, uint32_t weight, const dnnl_memory_desc_t *from,
                          const dnnl_memory_desc_t *to, weft_cpu_pack **out)
{
    weft_cpu_pack *pack = calloc(1, sizeof *pack);
    if (!pack)
        return WEFT_ERR_NOMEM;
    pack->room = weft_cpu__room(dnnl_memory_desc_get_size(to));
    pack->weight = weight;
    pack->from = *from;
    pack->to = *to;
    if (e->count) {
        count_pack(e, pack);
        *out = pack;
        return WEFT_ERR_OK;
    }
    pack->data = pack->room ? mmap(NULL, pack->room, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                            : MAP_FAILED;
    if (pack->data == MAP_FAILED) {
        free(pack);
        return WEFT_ERR_NOMEM;
    }
    if (pack->room >= HUGE_BYTES)
        (void)madvise(pack->data, pack->room, MADV_HUGEPAGE);
    if (!reorder_slices(e, weight, from, to, pack->data) &&
        !execute_reorder(e->device, from, e->bundle->weight[weight - 1].data, to, pack->data)) {
        munmap(pack->data, pack->room);
        free(pack);
        return WEFT_ERR_UNSUP;
    }
    drop_pages(e, weight, 0, e->bundle->weight[weight - 1].bytes);
    *out = pack;
    return WEFT_ERR_OK;
}

static weft_err get_pack(weft_engine *e, uint32_t weight, const dnnl_memory_desc_t *from,
                         const dnnl_memory_desc_t *to, weft_cpu_pack **out)
{
    weft_cpu *cpu = e->device;
    weft_err err = WEFT_ERR_OK;
    pthread_mutex_lock(&e->lock);
    weft_cpu_pack *pack = cpu->pack;
    while (pack && !(pack->weight == weight && dnnl_memory_desc_equal(&pack->from, from) &&
                     dnnl_memory_desc_equal(&pack->to, to)))
        pack = pack->next;
    if (!pack) {
        err = make_pack(e, weight, from, to, &pack);
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

void weft_cpu__put_pack(weft_engine *e, weft_cpu_pack *pack)
{
    weft_cpu *cpu = e->device;
    pthread_mutex_lock(&e->lock);
    if (--pack->users == 0) {
        weft_cpu_pack **at = &cpu->pack;
        while (*at != pack)
            at = &(*at)->next;
        *at = pack->next;
        if (pack->data)
            munmap(pack->data, pack->room);
        free(pack);
    }
    pthread_mutex_unlock(&e->lock);
}

weft_err weft_cpu__pack_transposed(weft_prep *p, uint32_t in, weft_cpu_pack **out)
{
    const weft_tensor *w = &p->in[in].tensor;
    const dnnl_dims_t dims = {w->dim[0], w->dim[1]};
    dnnl_memory_desc_t from, to;
    if (dnnl_memory_desc_init_by_tag(&from, 2, dims, dnnl_f32, dnnl_ab) != dnnl_success ||
        dnnl_memory_desc_init_by_tag(&to, 2, dims, dnnl_f32, dnnl_ba) != dnnl_success)
        return WEFT_ERR_UNSUP;
    return get_pack(p->engine, p->in[in].weight, &from, &to, out);
}

const float *weft_cpu__pack_data(const weft_cpu_pack *pack)
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
    dnnl_kernel *k = calloc(1, sizeof *k);
    if (k) {
        k->engine = p->engine;
        k->stream = weft_cpu__of(p)->dnnl_stream;
    }
    return k;
}

void weft_dnnl__destroy(void *kernel)
{
    dnnl_kernel *k = kernel;
    if (!k)
        return;
    for (uint32_t i = 0; i < k->n_call; i++) {
        for (uint32_t j = 0; j < k->call[i].n; j++)
            dnnl_memory_destroy(k->call[i].arg[j].memory);
        dnnl_primitive_destroy(k->call[i].prim);
    }
    for (uint32_t i = 0; i < k->n_pack; i++)
        weft_cpu__put_pack(k->engine, k->pack[i]);
    weft_cpu__ew_destroy(k->ew);
    free(k);
}

static weft_err run_dnnl(void *state, void *const *arg)
{
    dnnl_kernel *k = state;
    for (uint32_t i = 0; i < k->n_call; i++) {
        dnnl_call *s = &k->call[i];
        for (uint32_t j = 0; j < s->n; j++) {
            dnnl_bind *b = &s->bind[j];
            if (b->arg < 0)
                continue;
            void *at = (char *)arg[b->arg] + b->offset;
            if (at != b->at) {
                if (dnnl_memory_set_data_handle(s->arg[j].memory, at) != dnnl_success)
                    return WEFT_ERR_BUG;
                b->at = at;
            }
        }
        if (dnnl_primitive_execute(s->prim, k->stream, (int)s->n, s->arg) != dnnl_success)
            return WEFT_ERR_BUG;
    }
    if (k->ew)
        weft_cpu__ew_run(k->ew, arg);
    return WEFT_ERR_OK;
}

void weft_dnnl__set(weft_prep *p, dnnl_kernel *k, const_dnnl_primitive_desc_t pd)
{
    const char *name = NULL;
    (void)dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    snprintf(k->variant, sizeof k->variant, "onednn:%s%s", name ? name : "", k->ew ? "+ew" : "");
    p->run = run_dnnl;
    p->state = k;
    p->destroy = weft_dnnl__destroy;
    p->variant = k->variant;
}

static bool is_sound(const_dnnl_primitive_desc_t pd)
{
    const_dnnl_primitive_attr_t attr;
    const_dnnl_post_ops_t ops;
    return dnnl_primitive_desc_get_attr(pd, &attr) == dnnl_success &&
           dnnl_primitive_attr_get_post_ops(attr, &ops) == dnnl_success &&
           weft_dnnl__post_ops_are_sound(ops);
}

dnnl_call *weft_dnnl__add(dnnl_kernel *k, const_dnnl_primitive_desc_t pd)
{
    if (k->n_call == DNNL_CALL_MAX || !is_sound(pd))
        return NULL;
    dnnl_call *s = &k->call[k->n_call];
    if (dnnl_primitive_create(&s->prim, pd) != dnnl_success)
        return NULL;
    k->n_call++;
    return s;
}

static bool bind(dnnl_kernel *k, dnnl_call *s, int dnnl_arg, const dnnl_memory_desc_t *md,
                 dnnl_bind to)
{
    if (s->n == DNNL_BIND_MAX)
        return false;
    dnnl_memory_t memory;
    weft_cpu *cpu = k->engine->device;
    if (dnnl_memory_create(&memory, md, cpu->dnnl_engine, to.at) != dnnl_success)
        return false;
    s->arg[s->n] = (dnnl_exec_arg_t){.arg = dnnl_arg, .memory = memory};
    s->bind[s->n++] = to;
    return true;
}

bool weft_dnnl__bind(dnnl_kernel *k, dnnl_call *s, int dnnl_arg, const dnnl_memory_desc_t *md,
                     uint32_t arg, uint64_t offset)
{
    return bind(k, s, dnnl_arg, md, (dnnl_bind){.arg = (int32_t)arg, .offset = offset});
}

bool weft_dnnl__bind_const(dnnl_kernel *k, dnnl_call *s, int dnnl_arg, const dnnl_memory_desc_t *md,
                           const void *at)
{
    return bind(k, s, dnnl_arg, md, (dnnl_bind){.arg = -1, .at = (void *)(uintptr_t)at});
}

bool weft_dnnl__bind_scratch(weft_prep *p, dnnl_kernel *k, dnnl_call *s,
                             const_dnnl_primitive_desc_t pd, uint64_t offset)
{
    const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    uint64_t bytes = md ? dnnl_memory_desc_get_size(md) : 0;
    if (p->scratch_bytes < offset + bytes)
        p->scratch_bytes = offset + bytes;
    if (bytes == 0)
        return true;
    return weft_dnnl__bind(k, s, DNNL_ARG_SCRATCHPAD, md, p->n_in + p->n_out, offset);
}

bool weft_dnnl__add_reorder(dnnl_kernel *k, const dnnl_memory_desc_t *from, uint32_t from_arg,
                            uint64_t from_offset, const dnnl_memory_desc_t *to, uint32_t to_arg,
                            uint64_t to_offset)
{
    weft_cpu *cpu = k->engine->device;
    dnnl_primitive_desc_t pd;
    if (dnnl_reorder_primitive_desc_create(&pd, from, cpu->dnnl_engine, to, cpu->dnnl_engine,
                                           NULL) != dnnl_success)
        return false;
    dnnl_call *s = weft_dnnl__add(k, pd);
    dnnl_primitive_desc_destroy(pd);
    return s && weft_dnnl__bind(k, s, DNNL_ARG_FROM, from, from_arg, from_offset) &&
           weft_dnnl__bind(k, s, DNNL_ARG_TO, to, to_arg, to_offset);
}

weft_err weft_dnnl__bind_weight(weft_prep *p, dnnl_kernel *k, dnnl_call *s, int dnnl_arg,
                                uint32_t in, const dnnl_memory_desc_t *from,
                                const dnnl_memory_desc_t *to)
{
    const weft_slot *slot = &p->in[in];
    weft_cpu_pack *pack;
    if (dnnl_memory_desc_equal(from, to))
        return weft_dnnl__bind(k, s, dnnl_arg, from, in, 0) ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
    if (!slot->weight || k->n_pack == DNNL_PACK_MAX)
        return WEFT_ERR_UNSUP;
    WEFT_TRY(get_pack(p->engine, slot->weight, from, to, &pack));
    k->pack[k->n_pack++] = pack;
    return weft_dnnl__bind_const(k, s, dnnl_arg, to, pack->data) ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
}

bool weft_dnnl__is_slow(const_dnnl_primitive_desc_t pd)
{
    const char *name = NULL;
    (void)dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    return !name || strstr(name, "ref") || strstr(name, "simple");
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

bool weft_dnnl__md(const weft_slot *s, dnnl_memory_desc_t *out)
{
    dnnl_dims_t dims;
    dnnl_format_tag_t tag = weft_dnnl__tag(s->layout, s->tensor.rank);
    if (tag == dnnl_format_tag_undef || s->tensor.dtype != WEFT_DTYPE_F32)
        return false;
    for (int32_t d = 0; d < s->tensor.rank; d++)
        dims[d] = s->tensor.dim[d];
    return dnnl_memory_desc_init_by_tag(out, s->tensor.rank, dims, dnnl_f32, tag) == dnnl_success;
}

/* -- Reorders ------------------------------------------------------------------------------- */

weft_err weft_cpu__prepare_dnnl_reorder(weft_prep *p)
{
    dnnl_memory_desc_t from, to;
    dnnl_primitive_desc_t pd;
    dnnl_engine_t engine = weft_dnnl__engine(p);
    if (!weft_dnnl__md(&p->in[0], &from) || !weft_dnnl__md(&p->out[0], &to))
        return WEFT_ERR_OK;
    dnnl_kernel *k = weft_dnnl__create(p);
    if (!k)
        return WEFT_ERR_NOMEM;
    if (!weft_dnnl__add_reorder(k, &from, 0, 0, &to, 1, 0) ||
        dnnl_reorder_primitive_desc_create(&pd, &from, engine, &to, engine, NULL) != dnnl_success) {
        weft_dnnl__destroy(k);
        return WEFT_ERR_OK;
    }
    weft_dnnl__set(p, k, pd);
    dnnl_primitive_desc_destroy(pd);
    return WEFT_ERR_OK;
}
