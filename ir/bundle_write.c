/* The writer of bundles: structures to protobuf messages, then the file. Weights are hashed and
 * written without copying; only the metadata is built in memory. */
#include "base/map.h"
#include "base/num.h"
#include "ir/bundle_int.h"

#include "bundle.pb-c.h"

#include <string.h>

/* Names that messages refer to by number, in order of first use. */
typedef struct table {
    uint32_t *number; /* by enumerator: 1 + number */
    WEFT_VEC(char *) name;
} name_table;

typedef struct writer {
    const weft_bundle *b;
    weft_arena *arena;
    weft_diag *diag;
    name_table op, key, dtype, layout;
    /* Of the current program. */
    const weft_dimpool *dims;
    weft_map *exprs; /* dim to number, from 1 */
    WEFT_VEC(char *) expr;
} writer;

/* Messages hold strings that are not const; nothing here or in protobuf-c writes to them. */
static char *borrow(const char *s)
{
    return (char *)(uintptr_t)(s ? s : "");
}

static uint32_t intern(writer *w, name_table *t, uint32_t enumerator, const char *name)
{
    if (!t->number[enumerator]) {
        WEFT_VEC_PUSH(w->arena, &t->name, borrow(name));
        t->number[enumerator] = t->name.len;
    }
    return t->number[enumerator] - 1;
}

/* Arrays of pointers to messages, all of them in two blocks. */
#define NEW_MESSAGES(w, count, list, type, init)                              \
    do {                                                                      \
        type *block_ = weft_arena_array((w)->arena, (count), sizeof *block_); \
        (list) = weft_arena_array((w)->arena, (count), sizeof *(list));       \
        for (size_t i_ = 0; i_ < (count); i_++) {                             \
            init(&block_[i_]);                                                \
            (list)[i_] = &block_[i_];                                         \
        }                                                                     \
    } while (0)

/* -- Dims and attributes ---------------------------------------------------------------------- */

static int64_t put_dim(writer *w, weft_dim d)
{
    if (d >= 0)
        return d;
    uint64_t number;
    if (!weft_map_get(w->exprs, (uint64_t)d, &number)) {
        weft_buf text = {0};
        weft_dim_print(w->dims, d, &text);
        char *copy = weft_buf_keep(&text, w->arena);
        WEFT_VEC_PUSH(w->arena, &w->expr, copy);
        number = w->expr.len;
        weft_map_put(w->exprs, (uint64_t)d, number);
    }
    return -(int64_t)number;
}

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static void put_list(writer *w, const weft_attr *a, Weft__Bundle__Attr *to)
{
    if (a->kind == WEFT_KIND_FLOATS) {
        to->n_floats = a->n;
        to->floats = weft_arena_array(w->arena, a->n, sizeof *to->floats);
        if (a->n)
            memcpy(to->floats, a->u.floats, a->n * sizeof *to->floats);
    } else if (a->kind == WEFT_KIND_STRS) {
        to->n_strs = a->n;
        to->strs = weft_arena_array(w->arena, a->n, sizeof *to->strs);
        for (uint32_t i = 0; i < a->n; i++)
            to->strs[i] = borrow(a->u.strs[i]);
    } else {
        to->n_ints = a->n;
        to->ints = weft_arena_array(w->arena, a->n, sizeof *to->ints);
        for (uint32_t i = 0; i < a->n; i++)
            to->ints[i] = a->kind == WEFT_KIND_DIMS ? put_dim(w, a->u.dims[i]) : a->u.ints[i];
    }
}

static void put_attr(writer *w, const weft_attr *a, Weft__Bundle__Attr *to)
{
    to->key = intern(w, &w->key, a->key, weft_attr_key_name((weft_attr_key)a->key));
    to->kind = (Weft__Bundle__Kind)a->kind;
    switch (a->kind) {
    case WEFT_KIND_INT:
        to->i = a->u.i;
        break;
    case WEFT_KIND_FLOAT:
        to->f = bits_of(a->u.f);
        break;
    case WEFT_KIND_STR:
        to->s = borrow(a->u.s);
        break;
    case WEFT_KIND_DTYPE:
        to->s = borrow(weft_dtype_name(a->u.dtype));
        break;
    default:
        put_list(w, a, to);
    }
}

/* -- Programs --------------------------------------------------------------------------------- */

static void put_symbols(writer *w, const weft_bundle_program *p, Weft__Bundle__Program *to)
{
    to->n_symbol = p->n_symbol;
    NEW_MESSAGES(w, p->n_symbol, to->symbol, Weft__Bundle__Symbol, weft__bundle__symbol__init);
    for (uint32_t i = 0; i < p->n_symbol; i++) {
        to->symbol[i]->name = borrow(p->symbol[i].name);
        to->symbol[i]->text = borrow(weft_dim_symbol_name(p->dims, i));
        to->symbol[i]->lo = p->symbol[i].lo;
        to->symbol[i]->hi = p->symbol[i].hi;
    }
    uint32_t count = weft_dim_symbol_count(p->dims);
    to->n_data_symbol = count - p->n_symbol;
    to->data_symbol = weft_arena_array(w->arena, to->n_data_symbol, sizeof *to->data_symbol);
    for (uint32_t i = p->n_symbol; i < count; i++)
        to->data_symbol[i - p->n_symbol] = borrow(weft_dim_symbol_name(p->dims, i));
}

static void put_values(writer *w, const weft_bundle_program *p, Weft__Bundle__Program *to)
{
    to->n_value = p->n_value;
    NEW_MESSAGES(w, p->n_value, to->value, Weft__Bundle__Value, weft__bundle__value__init);
    for (uint32_t i = 0; i < p->n_value; i++) {
        const weft_ttype *t = &p->value[i].type;
        Weft__Bundle__Value *v = to->value[i];
        v->dtype = intern(w, &w->dtype, t->dtype, weft_dtype_name((weft_dtype)t->dtype));
        v->layout = intern(w, &w->layout, t->layout, weft_layout_name((weft_layout)t->layout));
        v->weight = p->value[i].weight;
        v->n_dim = t->rank;
        v->dim = weft_arena_array(w->arena, t->rank, sizeof *v->dim);
        for (uint32_t k = 0; k < t->rank; k++)
            v->dim[k] = put_dim(w, t->dim[k]);
    }
}

static uint32_t *copy_indices(writer *w, const uint32_t *at, uint32_t n)
{
    uint32_t *copy = weft_arena_array(w->arena, n, sizeof *copy);
    if (n)
        memcpy(copy, at, n * sizeof *copy);
    return copy;
}

static uint32_t float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static void put_gemm(writer *w, const weft_bundle_gemm *g, Weft__Bundle__Command *to)
{
    const weft_dim dim[] = {g->m,   g->n,   g->k,        g->batch,    g->lda,      g->ldb,
                            g->ldc, g->ldd, g->stride_a, g->stride_b, g->stride_c, g->stride_d};
    Weft__Bundle__Gemm *m = weft_arena_alloc(w->arena, sizeof *m);
    weft__bundle__gemm__init(m);
    m->dtype = intern(w, &w->dtype, g->dtype, weft_dtype_name(g->dtype));
    m->act = g->act;
    m->flags = (g->trans_a ? 1u : 0u) | (g->trans_b ? 2u : 0u) | (g->tf32 ? 4u : 0u);
    m->n_dim = sizeof dim / sizeof dim[0];
    m->dim = weft_arena_array(w->arena, m->n_dim, sizeof *m->dim);
    for (size_t i = 0; i < m->n_dim; i++)
        m->dim[i] = put_dim(w, dim[i]);
    m->alpha = float_bits(g->alpha);
    m->beta = float_bits(g->beta);
    to->gemm = m;
}

static void put_conv(writer *w, const weft_bundle_conv *c, Weft__Bundle__Command *to)
{
    Weft__Bundle__Conv *m = weft_arena_alloc(w->arena, sizeof *m);
    weft__bundle__conv__init(m);
    m->dtype = intern(w, &w->dtype, c->dtype, weft_dtype_name(c->dtype));
    m->flags = c->flags;
    m->n_dim = WEFT_CONV_DIMS;
    m->dim = weft_arena_array(w->arena, m->n_dim, sizeof *m->dim);
    for (size_t i = 0; i < m->n_dim; i++)
        m->dim[i] = put_dim(w, c->dim[i]);
    to->conv = m;
}

static void put_args(writer *w, const weft_bundle_arg *arg, uint32_t n, Weft__Bundle__Command *to)
{
    to->n_arg = n;
    NEW_MESSAGES(w, n, to->arg, Weft__Bundle__Arg, weft__bundle__arg__init);
    for (uint32_t i = 0; i < n; i++) {
        to->arg[i]->kind = arg[i].kind;
        to->arg[i]->index = arg[i].index;
        to->arg[i]->dim = put_dim(w, arg[i].dim);
        to->arg[i]->f = float_bits(arg[i].f);
    }
}

static void put_commands(writer *w, const weft_bundle_launch *l, Weft__Bundle__Launch *to)
{
    to->n_command = l->n_command;
    to->scratch_bytes = put_dim(w, l->scratch_bytes);
    NEW_MESSAGES(w, l->n_command, to->command, Weft__Bundle__Command, weft__bundle__command__init);
    for (uint32_t i = 0; i < l->n_command; i++) {
        const weft_bundle_command *s = &l->command[i];
        Weft__Bundle__Command *m = to->command[i];
        m->kind = s->kind;
        m->kernel = s->kernel;
        m->bytes = put_dim(w, s->bytes);
        if (weft_command_is_kernel(s->kind)) {
            m->n_grid = 3;
            m->grid = weft_arena_array(w->arena, m->n_grid, sizeof *m->grid);
            for (uint32_t k = 0; k < 3; k++)
                m->grid[k] = put_dim(w, s->grid[k]);
        }
        if (s->kind == WEFT_COMMAND_GEMM) {
            const weft_bundle_gemm *g = s->gemm;
            put_args(w, (weft_bundle_arg[]){g->a, g->b, g->c, g->d, g->bias}, 5, m);
            put_gemm(w, g, m);
        } else if (s->kind == WEFT_COMMAND_CONV) {
            const weft_bundle_conv *c = s->conv;
            put_args(w, (weft_bundle_arg[]){c->x, c->w, c->y, c->z, c->bias}, 5, m);
            put_conv(w, c, m);
        } else {
            put_args(w, s->arg, s->n_arg, m);
        }
    }
}

static void put_launches(writer *w, const weft_bundle_program *p, Weft__Bundle__Program *to)
{
    to->n_launch = p->n_launch;
    NEW_MESSAGES(w, p->n_launch, to->launch, Weft__Bundle__Launch, weft__bundle__launch__init);
    for (uint32_t i = 0; i < p->n_launch; i++) {
        const weft_bundle_launch *l = &p->launch[i];
        Weft__Bundle__Launch *m = to->launch[i];
        m->op = intern(w, &w->op, l->op, weft_op_get(l->op)->name);
        m->n_in = l->n_in;
        m->in = copy_indices(w, l->in, l->n_in);
        m->n_out = l->n_out;
        m->out = copy_indices(w, l->out, l->n_out);
        m->item = borrow(l->item);
        m->n_attr = l->attrs.n;
        NEW_MESSAGES(w, l->attrs.n, m->attr, Weft__Bundle__Attr, weft__bundle__attr__init);
        for (uint32_t k = 0; k < l->attrs.n; k++)
            put_attr(w, &l->attrs.at[k], m->attr[k]);
        put_commands(w, l, m);
    }
}

static Weft__Bundle__Port **put_ports(writer *w, const weft_bundle_port *port, uint32_t n)
{
    Weft__Bundle__Port **to;
    NEW_MESSAGES(w, n, to, Weft__Bundle__Port, weft__bundle__port__init);
    for (uint32_t i = 0; i < n; i++) {
        to[i]->name = borrow(port[i].name);
        to[i]->value = port[i].value;
        to[i]->format = borrow(port[i].format);
        to[i]->n_label = port[i].n_label;
        to[i]->label = (char **)port[i].label;
    }
    return to;
}

static void put_buckets(writer *w, const weft_bundle_program *p, Weft__Bundle__Program *to)
{
    to->n_bucket = p->n_bucket;
    NEW_MESSAGES(w, p->n_bucket, to->bucket, Weft__Bundle__Bucket, weft__bundle__bucket__init);
    for (uint32_t i = 0; i < p->n_bucket; i++) {
        const weft_bundle_bucket *b = &p->bucket[i];
        Weft__Bundle__Bucket *m = to->bucket[i];
        m->n_symbol = p->n_symbol;
        m->symbol = weft_arena_array(w->arena, p->n_symbol, sizeof *m->symbol);
        for (uint32_t k = 0; k < p->n_symbol; k++)
            m->symbol[k] = b->symbol[k];
        m->arena_bytes = b->arena_bytes;
        m->n_buffer = b->n_buffer;
        NEW_MESSAGES(w, b->n_buffer, m->buffer, Weft__Bundle__Buffer, weft__bundle__buffer__init);
        for (uint32_t k = 0; k < b->n_buffer; k++) {
            m->buffer[k]->value = b->buffer[k].value;
            m->buffer[k]->offset = b->buffer[k].offset;
            m->buffer[k]->bytes = b->buffer[k].bytes;
        }
    }
}

static void put_profile(writer *w, const weft_profile *profile, Weft__Bundle__Program *to)
{
    to->n_profile = profile->n;
    NEW_MESSAGES(w, profile->n, to->profile, Weft__Bundle__Point, weft__bundle__point__init);
    for (size_t i = 0; i < profile->n; i++) {
        const weft_profile_point *p = &profile->point[i];
        Weft__Bundle__Point *m = to->profile[i];
        m->device = borrow(p->device);
        m->slice = borrow(p->slice);
        m->share = p->share;
        m->batch = p->batch;
        m->procs = p->procs;
        m->throughput_per_s = p->throughput_per_s;
        m->time_us = p->cost.time_us;
        m->creq = p->cost.creq;
        m->mreq_bytes = p->cost.mreq_bytes;
        m->bandwidth_gbps = p->cost.bandwidth_gbps;
        m->energy_j = p->cost.energy_j;
        m->expected_error = p->cost.expected_error;
        m->time_p5_us = p->cost.time_p5_us;
        m->time_p95_us = p->cost.time_p95_us;
        m->idle_us = p->idle_us;
        m->source = borrow(p->cost.source);
        if (weft_usehist_is_known(&p->use))
            m->use = (ProtobufCBinaryData){sizeof p->use.part, (uint8_t *)p->use.part};
    }
}

static void put_parts(writer *w, const weft_bundle_program *p, Weft__Bundle__Program *to)
{
    to->n_part = p->n_part;
    to->limit = p->limit;
    to->packed = p->is_packed;
    NEW_MESSAGES(w, p->n_part, to->part, Weft__Bundle__Part, weft__bundle__part__init);
    for (uint32_t i = 0; i < p->n_part; i++) {
        to->part[i]->program = p->part[i].program;
        to->part[i]->inputs = p->part[i].n_in;
        to->part[i]->outputs = p->part[i].n_out;
    }
}

static void put_requires(writer *w, const weft_bundle_program *p, Weft__Bundle__Program *to)
{
    to->n_require = p->n_require;
    NEW_MESSAGES(w, p->n_require, to->require, Weft__Bundle__Require, weft__bundle__require__init);
    for (uint32_t i = 0; i < p->n_require; i++) {
        const weft_bundle_require *r = &p->require[i];
        to->require[i]->kind = r->kind;
        to->require[i]->a = put_dim(w, r->a);
        to->require[i]->b = put_dim(w, r->b);
        to->require[i]->guard = put_dim(w, r->guard);
        to->require[i]->item = borrow(r->item);
        to->require[i]->what = borrow(r->what);
    }
}

static void put_program(writer *w, const weft_bundle_program *p, Weft__Bundle__Program *to)
{
    w->dims = p->dims;
    w->exprs = weft_map_create(w->arena);
    memset(&w->expr, 0, sizeof w->expr);
    to->name = borrow(p->name);
    to->serves = borrow(p->serves);
    to->version = borrow(p->version);
    put_symbols(w, p, to);
    put_values(w, p, to);
    put_launches(w, p, to);
    to->n_input = p->n_input;
    to->input = put_ports(w, p->input, p->n_input);
    to->n_output = p->n_output;
    to->output = put_ports(w, p->output, p->n_output);
    put_buckets(w, p, to);
    to->batch_symbol = p->batch_symbol == UINT32_MAX ? 0 : p->batch_symbol + 1;
    to->slo_us = p->slo_us;
    to->rate_per_s = p->rate_per_s;
    to->admit_by_slo = p->admit_by_slo;
    to->host_us = p->profile.host_us;
    put_profile(w, &p->profile, to);
    put_parts(w, p, to);
    to->n_head = p->n_head;
    to->head = copy_indices(w, p->head, p->n_head);
    put_requires(w, p, to);
    to->n_outer = p->outer ? p->n_symbol : 0;
    to->outer = copy_indices(w, p->outer, (uint32_t)to->n_outer);
    to->n_expr = w->expr.len;
    to->expr = w->expr.at;
}

/* -- The metadata ----------------------------------------------------------------------------- */

static void put_weights(writer *w, Weft__Bundle__Bundle *to, weft_bundle_weight *hashed)
{
    to->n_weight = w->b->n_weight;
    NEW_MESSAGES(w, to->n_weight, to->weight, Weft__Bundle__Weight, weft__bundle__weight__init);
    for (uint32_t i = 0; i < w->b->n_weight; i++) {
        const weft_bundle_weight *from = &w->b->weight[i];
        Weft__Bundle__Weight *m = to->weight[i];
        hashed[i] = *from;
        hashed[i].checksum = weft_hash64(from->data, (size_t)from->bytes, 0);
        m->dtype = borrow(weft_dtype_name(from->dtype));
        m->n_dim = from->rank;
        m->dim = weft_arena_array(w->arena, from->rank, sizeof *m->dim);
        for (uint32_t k = 0; k < from->rank; k++)
            m->dim[k] = (uint64_t)from->dim[k];
        m->checksum = hashed[i].checksum;
        m->name = borrow(from->name);
        m->users = from->n_users;
    }
}

static void put_code(writer *w, Weft__Bundle__Bundle *to, weft_bundle_image *hashed)
{
    const weft_bundle *b = w->b;
    to->n_arch = b->n_arch;
    to->arch = weft_arena_array(w->arena, b->n_arch, sizeof *to->arch);
    for (uint32_t i = 0; i < b->n_arch; i++)
        to->arch[i] = borrow(b->arch[i]);
    to->n_image = b->n_image;
    NEW_MESSAGES(w, b->n_image, to->image, Weft__Bundle__Image, weft__bundle__image__init);
    for (uint32_t i = 0; i < b->n_image; i++) {
        hashed[i] = b->image[i];
        hashed[i].checksum = weft_hash64(b->image[i].data, (size_t)b->image[i].bytes, 0);
        to->image[i]->arch = borrow(b->image[i].arch);
        to->image[i]->module = b->image[i].module;
        to->image[i]->bytes = b->image[i].bytes;
        to->image[i]->checksum = hashed[i].checksum;
    }
    to->n_kernel = b->n_kernel;
    NEW_MESSAGES(w, b->n_kernel, to->kernel, Weft__Bundle__Kernel, weft__bundle__kernel__init);
    for (uint32_t i = 0; i < b->n_kernel; i++) {
        const weft_bundle_kernel *k = &b->kernel[i];
        Weft__Bundle__Kernel *m = to->kernel[i];
        m->name = borrow(k->name);
        m->module = k->module;
        m->threads = k->threads;
        m->shared_bytes = k->shared_bytes;
        m->n_resource = 3 * (size_t)b->n_arch;
        m->resource = weft_arena_array(w->arena, m->n_resource, sizeof *m->resource);
        for (uint32_t a = 0; a < b->n_arch; a++) {
            m->resource[3 * a] = k->resource[a].registers;
            m->resource[3 * a + 1] = k->resource[a].shared_bytes;
            m->resource[3 * a + 2] = k->resource[a].local_bytes;
        }
    }
}

static void put_tunings(writer *w, Weft__Bundle__Bundle *to)
{
    const weft_bundle *b = w->b;
    to->n_tuning = b->n_tuning;
    NEW_MESSAGES(w, b->n_tuning, to->tuning, Weft__Bundle__Tuning, weft__bundle__tuning__init);
    for (uint32_t i = 0; i < b->n_tuning; i++) {
        const weft_bundle_tuning *from = &b->tuning[i];
        Weft__Bundle__Tuning *t = to->tuning[i];
        t->device = borrow(from->device);
        t->sms = from->sms;
        t->version = from->version;
        t->n_algo = from->n_algo;
        NEW_MESSAGES(w, from->n_algo, t->algo, Weft__Bundle__Algo, weft__bundle__algo__init);
        for (uint32_t k = 0; k < from->n_algo; k++) {
            const weft_bundle_algo *a = &from->algo[k];
            const weft_gemm_key *p = &a->gemm;
            Weft__Bundle__Algo *m = t->algo[k];
            m->dtype = intern(w, &w->dtype, p->dtype, weft_dtype_name((weft_dtype)p->dtype));
            m->act = p->act;
            m->flags = p->flags;
            m->n_dim = sizeof p->dim / sizeof p->dim[0];
            m->dim = weft_arena_array(w->arena, m->n_dim, sizeof *m->dim);
            memcpy(m->dim, p->dim, sizeof p->dim);
            m->n_align = sizeof p->align / sizeof p->align[0];
            m->align = copy_indices(w, p->align, (uint32_t)m->n_align);
            m->algo.len = sizeof a->bytes;
            m->algo.data = weft_arena_alloc(w->arena, sizeof a->bytes);
            memcpy(m->algo.data, a->bytes, sizeof a->bytes);
            m->time_us = a->time_us;
        }
    }
}

static void put_conv_plans(writer *w, Weft__Bundle__Bundle *to)
{
    const weft_bundle *b = w->b;
    to->n_conv_plans = b->n_conv_plans;
    NEW_MESSAGES(w, b->n_conv_plans, to->conv_plans, Weft__Bundle__ConvPlans,
                 weft__bundle__conv_plans__init);
    for (uint32_t i = 0; i < b->n_conv_plans; i++) {
        const weft_bundle_conv_plans *from = &b->conv_plans[i];
        Weft__Bundle__ConvPlans *t = to->conv_plans[i];
        t->arch = from->arch;
        t->device = borrow(from->device);
        t->version = from->version;
        t->none = from->n_none;
        t->n_plan = from->n_plan;
        NEW_MESSAGES(w, from->n_plan, t->plan, Weft__Bundle__ConvPlan,
                     weft__bundle__conv_plan__init);
        for (uint32_t k = 0; k < from->n_plan; k++) {
            const weft_conv_key *p = &from->plan[k].conv;
            Weft__Bundle__ConvPlan *m = t->plan[k];
            m->dtype = intern(w, &w->dtype, p->dtype, weft_dtype_name((weft_dtype)p->dtype));
            m->flags = p->flags;
            m->n_dim = WEFT_CONV_DIMS;
            m->dim = weft_arena_array(w->arena, m->n_dim, sizeof *m->dim);
            memcpy(m->dim, p->dim, sizeof p->dim);
            m->json = borrow(from->plan[k].json);
        }
    }
}

static void make_table(writer *w, name_table *t, uint32_t count)
{
    t->number = weft_arena_array(w->arena, count, sizeof *t->number);
}

static void put_apps(writer *w, Weft__Bundle__Bundle *to)
{
    to->n_app = w->b->n_app;
    NEW_MESSAGES(w, to->n_app, to->app, Weft__Bundle__App, weft__bundle__app__init);
    for (uint32_t i = 0; i < w->b->n_app; i++) {
        const weft_bundle_app *a = &w->b->app[i];
        Weft__Bundle__App *m = to->app[i];
        m->name = borrow(a->name);
        m->slo_us = a->slo_us;
        m->rate_per_s = a->rate_per_s;
        m->accuracy = a->accuracy;
        m->n_variant = a->n_variant;
        NEW_MESSAGES(w, a->n_variant, m->variant, Weft__Bundle__Variant,
                     weft__bundle__variant__init);
        for (uint32_t k = 0; k < a->n_variant; k++) {
            m->variant[k]->program = a->variant[k].program;
            m->variant[k]->accuracy = a->variant[k].accuracy;
        }
    }
}

static void put_adapters(writer *w, Weft__Bundle__Bundle *to)
{
    to->n_adapter = w->b->n_adapter;
    NEW_MESSAGES(w, to->n_adapter, to->adapter, Weft__Bundle__Adapter, weft__bundle__adapter__init);
    for (uint32_t i = 0; i < w->b->n_adapter; i++) {
        const weft_bundle_adapter *a = &w->b->adapter[i];
        Weft__Bundle__Adapter *m = to->adapter[i];
        m->name = borrow(a->name);
        m->program = a->program;
        m->n_factor = a->n_factor;
        NEW_MESSAGES(w, a->n_factor, m->factor, Weft__Bundle__Factor, weft__bundle__factor__init);
        for (uint32_t k = 0; k < a->n_factor; k++) {
            m->factor[k]->site = borrow(a->factor[k].site);
            m->factor[k]->a = a->factor[k].a;
            m->factor[k]->b = a->factor[k].b;
        }
    }
}

static weft_err make_metadata(writer *w, weft_bundle_weight *hashed, weft_bundle_image *image,
                              weft_span *out)
{
    Weft__Bundle__Bundle msg = WEFT__BUNDLE__BUNDLE__INIT;
    make_table(w, &w->op, WEFT_OP_COUNT);
    make_table(w, &w->key, WEFT_ATTR_COUNT);
    make_table(w, &w->dtype, WEFT_DTYPE_COUNT);
    make_table(w, &w->layout, WEFT_LAYOUT_COUNT);
    msg.tool = borrow(w->b->tool);
    msg.target = borrow(w->b->target);
    msg.plan_json = borrow(w->b->plan_json);
    put_weights(w, &msg, hashed);
    put_code(w, &msg, image);
    msg.n_program = w->b->n_program;
    NEW_MESSAGES(w, msg.n_program, msg.program, Weft__Bundle__Program, weft__bundle__program__init);
    for (uint32_t i = 0; i < w->b->n_program; i++)
        put_program(w, &w->b->program[i], msg.program[i]);
    put_apps(w, &msg);
    put_adapters(w, &msg);
    msg.n_joint = w->b->n_joint;
    NEW_MESSAGES(w, msg.n_joint, msg.joint, Weft__Bundle__Program, weft__bundle__program__init);
    for (uint32_t i = 0; i < w->b->n_joint; i++)
        put_program(w, &w->b->program[w->b->n_program + i], msg.joint[i]);
    msg.n_body = w->b->n_body;
    NEW_MESSAGES(w, msg.n_body, msg.body, Weft__Bundle__Program, weft__bundle__program__init);
    for (uint32_t i = 0; i < w->b->n_body; i++)
        put_program(w, &w->b->program[w->b->n_program + w->b->n_joint + i], msg.body[i]);
    put_tunings(w, &msg);
    put_conv_plans(w, &msg);
    msg.n_op = w->op.name.len;
    msg.op = w->op.name.at;
    msg.n_key = w->key.name.len;
    msg.key = w->key.name.at;
    msg.n_dtype = w->dtype.name.len;
    msg.dtype = w->dtype.name.at;
    msg.n_layout = w->layout.name.len;
    msg.layout = w->layout.name.at;

    size_t len = weft__bundle__bundle__get_packed_size(&msg);
    if (len > WEFT_BUNDLE_META_MAX_BYTES)
        return weft_diag_error(w->diag, WEFT_ERR_NOMEM, (weft_where){0},
                               "the bundle's metadata has %zu bytes, the limit is %d", len,
                               WEFT_BUNDLE_META_MAX_BYTES);
    uint8_t *bytes = weft_arena_alloc(w->arena, len);
    *out = (weft_span){bytes, weft__bundle__bundle__pack(&msg, bytes)};
    return WEFT_ERR_OK;
}

/* -- The file --------------------------------------------------------------------------------- */

typedef WEFT_VEC(weft_span) span_list;

static void add_padded(writer *w, span_list *list, weft_span span)
{
    static const uint8_t zeros[WEFT_BUNDLE_ALIGN];
    weft_span padding = {zeros, (size_t)(weft_align_up(span.len, WEFT_BUNDLE_ALIGN) - span.len)};
    WEFT_VEC_PUSH(w->arena, list, span);
    WEFT_VEC_PUSH(w->arena, list, padding);
}

static void put_entry(uint8_t *at, weft_section_kind kind, uint64_t offset, uint64_t len,
                      uint64_t checksum)
{
    weft_bundle__put(at, 4, kind);
    weft_bundle__put(at + 8, 8, offset);
    weft_bundle__put(at + 16, 8, len);
    weft_bundle__put(at + 24, 8, checksum);
}

/* Length of the section. */
static uint64_t add_weights(writer *w, span_list *list)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < w->b->n_weight; i++) {
        const weft_bundle_weight *weight = &w->b->weight[i];
        add_padded(w, list, (weft_span){weight->data, (size_t)weight->bytes});
        bytes += weft_align_up(weight->bytes, WEFT_BUNDLE_ALIGN);
    }
    return bytes;
}

static uint64_t add_images(writer *w, span_list *list)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < w->b->n_image; i++) {
        const weft_bundle_image *image = &w->b->image[i];
        add_padded(w, list, (weft_span){image->data, (size_t)image->bytes});
        bytes += weft_align_up(image->bytes, WEFT_BUNDLE_ALIGN);
    }
    return bytes;
}

static weft_err write_file(writer *w, const char *path)
{
    uint8_t header[WEFT_BUNDLE_HEADER_BYTES] = WEFT_BUNDLE_MAGIC;
    uint8_t table[WEFT_BUNDLE_SECTIONS * WEFT_BUNDLE_ENTRY_BYTES] = {0};
    weft_bundle_weight *hashed = weft_arena_array(w->arena, w->b->n_weight, sizeof *hashed);
    weft_bundle_image *image = weft_arena_array(w->arena, w->b->n_image, sizeof *image);
    uint32_t n_section = w->b->n_arch ? WEFT_SECTION_CODE : WEFT_SECTION_WEIGHTS;
    size_t table_bytes = (size_t)n_section * WEFT_BUNDLE_ENTRY_BYTES;
    span_list list = {0};
    weft_span meta;
    WEFT_TRY(make_metadata(w, hashed, image, &meta));
    WEFT_VEC_PUSH(w->arena, &list, ((weft_span){header, sizeof header}));
    add_padded(w, &list, meta);
    uint64_t weights_at = sizeof header + weft_align_up(meta.len, WEFT_BUNDLE_ALIGN);
    uint64_t weight_bytes = add_weights(w, &list);
    uint64_t code_at = weights_at + weight_bytes, code_bytes = add_images(w, &list);
    uint64_t table_at = code_at + code_bytes;
    WEFT_VEC_PUSH(w->arena, &list, ((weft_span){table, table_bytes}));

    put_entry(table, WEFT_SECTION_META, sizeof header, meta.len, weft_hash64(meta.at, meta.len, 0));
    put_entry(table + WEFT_BUNDLE_ENTRY_BYTES, WEFT_SECTION_WEIGHTS, weights_at, weight_bytes,
              weft_bundle__hash_weights(hashed, w->b->n_weight));
    if (n_section >= WEFT_SECTION_CODE)
        put_entry(table + 2 * WEFT_BUNDLE_ENTRY_BYTES, WEFT_SECTION_CODE, code_at, code_bytes,
                  weft_bundle__hash_images(image, w->b->n_image));
    weft_bundle__put(header + 4, 4, WEFT_BUNDLE_VERSION);
    weft_bundle__put(header + 8, 8, table_at + table_bytes);
    weft_bundle__put(header + 16, 8, table_at);
    weft_bundle__put(header + 24, 4, n_section);
    weft_bundle__put(header + 56, 8, weft_bundle__hash_head(header, table, table_bytes));
    return weft_file_write_spans(path, list.at, list.len, w->diag);
}

static weft_err write_guarded(writer *w, const char *path)
{
    jmp_buf env;
    weft_arena_guard(w->arena, &env);
    if (setjmp(env))
        return weft_diag_error(w->diag, WEFT_ERR_NOMEM, (weft_where){.file = path},
                               "out of memory while writing the bundle");
    return write_file(w, path);
}

weft_err weft_bundle_write(const weft_bundle *bundle, const char *path, weft_diag *diag)
{
    writer w = {.b = bundle, .arena = weft_arena_create(0), .diag = diag};
    if (!w.arena)
        return weft_diag_error(diag, WEFT_ERR_NOMEM, (weft_where){.file = path}, "out of memory");
    weft_err err = write_guarded(&w, path);
    weft_arena_destroy(w.arena);
    return err;
}
