/* Memory of a launch: bounds, alignment, and the shadow that finds races and uninitialised reads.
 */
#include "tests/ptx/ptx_int.h"

#include <stdlib.h>
#include <string.h>

enum { MANY = 0xffff };

/* -- Races ------------------------------------------------------------------------------------ */

/* Whether an access at `epoch` is not ordered with one of the current epoch: it was in the same
 * epoch, or in another block of this launch. Epochs of a block follow each other, from block_epoch
 * on. */
static bool concurrent(const ptx_state *s, uint32_t epoch)
{
    return epoch == s->epoch || (epoch && epoch < s->block_epoch);
}

static const char *check_byte(const ptx_state *s, ptx_shadow *b, unsigned me, bool write,
                              bool shared)
{
    if (b->pending)
        return "its cp.async is not waited for";
    if (shared && !write && b->write_epoch < s->block_epoch)
        return "nothing was written there";
    /* Shared memory of an earlier block is another memory. */
    bool wrote = shared ? b->write_epoch == s->epoch : concurrent(s, b->write_epoch);
    bool foreign = b->write_epoch < s->block_epoch;
    if (wrote && (b->writer != me || foreign))
        return write ? "another thread wrote it since the last barrier"
                     : "another thread writes it without a barrier between";
    bool read = shared ? b->read_epoch == s->epoch : concurrent(s, b->read_epoch);
    if (write && read && (b->reader != me || b->read_epoch < s->block_epoch))
        return "another thread reads it without a barrier between";
    if (write) {
        b->write_epoch = s->epoch;
        b->writer = (uint16_t)me;
    } else if (!read) {
        b->read_epoch = s->epoch;
        b->reader = (uint16_t)me;
    } else if (b->reader != me || b->read_epoch < s->block_epoch) {
        b->read_epoch = s->epoch;
        b->reader = MANY;
    }
    return NULL;
}

static bool check_bytes(ptx_state *s, ptx_shadow *shadow, unsigned thread, uint64_t at,
                        unsigned bytes, bool write, bool shared)
{
    ptx_shadow was = shadow[0];
    const char *wrong = check_byte(s, &shadow[0], thread + 1, write, shared);
    unsigned i = 1;
    /* Bytes of a word mostly have one history. */
    for (; i < bytes && !wrong && memcmp(&shadow[i], &was, sizeof was) == 0; i++)
        shadow[i] = shadow[0];
    for (; i < bytes && !wrong; i++) {
        was = shadow[i];
        wrong = check_byte(s, &shadow[i], thread + 1, write, shared);
    }
    if (!wrong)
        return true;
    ptx_fail(s, (int)thread,
             "%s of byte %#llx of %s memory: %s (writer: thread %d, reader: thread %d%s)",
             write ? "write" : "read", (unsigned long long)(at + i - 1),
             shared ? "shared" : "global", wrong, was.writer - 1,
             was.reader == MANY ? -1 : was.reader - 1, was.reader == MANY ? ", several" : "");
    return false;
}

/* -- Global memory ---------------------------------------------------------------------------- */

static bool inside(const ptx_memory *m, uint64_t at, unsigned bytes)
{
    return at >= m->at && at - m->at <= m->bytes && bytes <= m->bytes - (at - m->at);
}

static unsigned char *touch_global(ptx_state *s, unsigned thread, uint64_t at, unsigned bytes,
                                   bool write)
{
    const ptx_launch *l = s->launch;
    size_t i = s->last_memory;
    if (i >= l->n_memory || !inside(&l->memory[i], at, bytes))
        for (i = 0; i < l->n_memory && !inside(&l->memory[i], at, bytes); i++)
            continue;
    if (i == l->n_memory) {
        for (unsigned v = 0; v < s->m->n_variable; v++) {
            const ptx_variable *x = &s->m->variable[v];
            if (!write && inside(&(ptx_memory){(uintptr_t)x->at, x->bytes}, at, bytes))
                return (unsigned char *)(uintptr_t)at;
        }
        ptx_fail(s, (int)thread, "%s of %u bytes at %#llx, outside of every allocation",
                 write ? "write" : "read", bytes, (unsigned long long)at);
        return NULL;
    }
    s->last_memory = i;
    if (!l->skip_global_races) {
        if (!s->memory_shadow[i])
            s->memory_shadow[i] = calloc(l->memory[i].bytes + 1, sizeof **s->memory_shadow);
        if (!s->memory_shadow[i])
            abort();
        if (!check_bytes(s, s->memory_shadow[i] + (at - l->memory[i].at), thread, at, bytes, write,
                         false))
            return NULL;
    }
    return (unsigned char *)(uintptr_t)at;
}

/* -- Every space ------------------------------------------------------------------------------ */

static unsigned char *touch_local(ptx_state *s, unsigned thread, uint64_t at, unsigned bytes)
{
    if (at + bytes > s->k->local_bytes) {
        ptx_fail(s, (int)thread, "local address %#llx of %u", (unsigned long long)at,
                 s->k->local_bytes);
        return NULL;
    }
    return s->frame->local + (size_t)(thread % PTX_LANES) * s->k->local_bytes + at;
}

unsigned char *ptx_touch(ptx_state *s, unsigned thread, ptx_space space, uint64_t at,
                         unsigned bytes, bool write)
{
    if (at % bytes) {
        ptx_fail(s, (int)thread, "address %#llx is not a multiple of %u", (unsigned long long)at,
                 bytes);
        return NULL;
    }
    if (space != PTX_GLOBAL && at & PTX_SHARED_WINDOW) {
        space = PTX_SHARED;
        at &= ~PTX_SHARED_WINDOW;
    } else if (space != PTX_GLOBAL && at & PTX_LOCAL_WINDOW) {
        space = PTX_LOCAL;
        at &= ~PTX_LOCAL_WINDOW;
    }
    if (space == PTX_LOCAL)
        return touch_local(s, thread, at, bytes);
    if (space != PTX_SHARED)
        return touch_global(s, thread, at, bytes, write);
    if (at > s->shared_bytes || bytes > s->shared_bytes - at) {
        ptx_fail(s, (int)thread, "%s of %u bytes at %#llx of %u bytes of shared memory",
                 write ? "write" : "read", bytes, (unsigned long long)at, s->shared_bytes);
        return NULL;
    }
    return check_bytes(s, s->shadow + at, thread, at, bytes, write, true) ? s->shared + at : NULL;
}

/* -- Asynchronous copies ---------------------------------------------------------------------- */

void ptx_copy_async(ptx_state *s, unsigned thread, uint64_t to, uint64_t from, unsigned bytes,
                    unsigned given)
{
    ptx_copies *c = &s->copies[thread];
    if (given > bytes || (given && from % bytes)) {
        ptx_fail(s, (int)thread, "cp.async of %u of %u bytes from %#llx", given, bytes,
                 (unsigned long long)from);
        return;
    }
    /* The copy may write from now on, and reads at any time until it is waited for. */
    unsigned char *at = ptx_touch(s, thread, PTX_SHARED, to, bytes, true);
    if (!at || (given && !touch_global(s, thread, from, given, false)))
        return;
    memset(at, 0xff, bytes);
    for (unsigned i = 0; i < bytes; i++)
        s->shadow[to + i].pending = (uint16_t)(thread + 1);
    if (c->n == c->room) {
        c->room = c->room ? 2 * c->room : 16;
        c->at = realloc(c->at, c->room * sizeof *c->at);
        if (!c->at)
            abort();
    }
    c->at[c->n++] = (ptx_copy){(uint32_t)to, bytes, given, from};
}

void ptx_copy_commit(ptx_state *s, unsigned thread)
{
    ptx_copies *c = &s->copies[thread];
    if (c->n_group == c->group_room) {
        c->group_room = c->group_room ? 2 * c->group_room : 16;
        c->group_end = realloc(c->group_end, c->group_room * sizeof *c->group_end);
        if (!c->group_end)
            abort();
    }
    c->group_end[c->n_group++] = c->n;
}

void ptx_copy_wait(ptx_state *s, unsigned thread, unsigned pending)
{
    ptx_copies *c = &s->copies[thread];
    if (c->n_group <= pending)
        return;
    unsigned done = c->n_group - pending, n = c->group_end[done - 1];
    for (unsigned i = 0; i < n; i++) {
        const ptx_copy *y = &c->at[i];
        memset(s->shared + y->to, 0, y->bytes);
        if (y->given)
            memcpy(s->shared + y->to, (const void *)(uintptr_t)y->from, y->given);
        for (unsigned b = 0; b < y->bytes; b++) {
            ptx_shadow *x = &s->shadow[y->to + b];
            x->pending = 0;
            x->write_epoch = s->epoch;
            x->writer = (uint16_t)(thread + 1);
        }
    }
    if (n > 0)
        memmove(c->at, c->at + n, (c->n - n) * sizeof *c->at);
    c->n -= n;
    c->n_group -= done;
    for (unsigned i = 0; i < c->n_group; i++)
        c->group_end[i] = c->group_end[i + done] - n;
}

/* -- Banks ---------------------------------------------------------------------------------- */

/* Adds the phases of one access of `bytes` a lane: 32 banks of 4 bytes; lanes are served in groups
 * whose accesses add up to 128 bytes; different words of one bank take a phase each. */
void ptx_count_banks(ptx_state *s, const uint32_t at[PTX_LANES], uint32_t mask, unsigned bytes)
{
    unsigned group = bytes <= 4 ? 32 : 128 / bytes;
    for (unsigned first = 0; first < PTX_LANES; first += group) {
        uint32_t word[PTX_LANES][PTX_LANES];
        unsigned n[PTX_LANES] = {0}, most = 0;
        for (unsigned l = first; l < first + group; l++) {
            if (!(mask >> l & 1))
                continue;
            for (unsigned b = 0; b < bytes; b += 4) {
                uint32_t w = (at[l] + b) / 4, bank = w % 32, k = 0;
                while (k < n[bank] && word[bank][k] != w)
                    k++;
                if (k == n[bank])
                    word[bank][n[bank]++] = w;
                most = n[bank] > most ? n[bank] : most;
            }
        }
        s->m->count.shared_phases += most > 0;
        s->m->count.shared_conflicts += most > 1 ? most - 1 : 0;
    }
}
