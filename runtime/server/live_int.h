/* Adapters (LoRA) that come and go while the server runs (live_adapters.c), and those that a worker
 * has at hand (resident_adapters.c).
 *
 * The factors of each adapter lie in one file, the store, which has no name and which all workers
 * map: the number of an adapter is its place there. Places are not used again, so a number stands
 * for one version of one adapter as long as the server runs. A request has the number that its
 * adapter had when it was admitted; the place is freed when the last such request is answered and
 * another version, or none, is in force. */
#ifndef WEFT_RUNTIME_SERVER_LIVE_INT_H
#define WEFT_RUNTIME_SERVER_LIVE_INT_H

#include "base/hash.h"
#include "runtime/server/serve_int.h"

enum { WEFT_LIVE_FITS = 4 };

/* Does not change once it is in force, but for what only the loop's thread uses. */
typedef struct weft_live_adapter {
    char *base, *name; /* of the model as it is served, and of the adapter */
    char *path;        /* folder, absolute; NULL: removed, though the bundle has it */
    weft_hash128 identity;
    uint64_t number, bytes; /* in the store; 0: removed */
    weft_bundle_site *site; /* that it changes; names are owned */
    uint32_t n_site;
    /* On the loop's thread. */
    struct weft_live *live;
    uint32_t n_ref;
    bool counted;            /* in weft_live_counts */
    uint64_t n_ok, n_failed; /* requests that have ended */
    /* Programs for which it was found whether they have all sites. */
    struct live_fit {
        uint64_t identity; /* of the bundle; 0: none */
        uint32_t program;
        bool fits;
    } fit[WEFT_LIVE_FITS];
    uint32_t n_fit;
} weft_live_adapter;

typedef struct weft_live weft_live;

/* Of the options: the folder of the state, which gets the store, and whether signatures are
 * required, which adapters do not have. */
WEFT_MUST_USE weft_err weft_live__create(const weft_serve_options *options, weft_diag *diag,
                                         weft_live **out);
void weft_live__destroy(weft_live *live); /* NULL is allowed */
/* From now on places are freed by the thread of `offload`; NULL: at once. `live` may be NULL. */
void weft_live__free_beside(weft_live *live, weft_offload *offload);
/* The store, to be read by workers; -1 for NULL. */
int weft_live__fd(const weft_live *live);

/* Reads an adapter of PEFT and puts it into the store: any thread, one at a time. `root`, `folder`:
 * see weft_peft_read. `program`: whose sites its modules are. The caller has a reference. */
WEFT_MUST_USE weft_err weft_live__read(weft_live *live, const char *root, const char *folder,
                                       const char *base, const char *name,
                                       const weft_bundle_program *program, weft_diag *diag,
                                       weft_live_adapter **out);
/* Stands for an adapter of a bundle that is removed. NULL: out of memory. */
weft_live_adapter *weft_live__removed(weft_live *live, const char *base, const char *name);
/* Whether the program of the bundle has all sites. */
bool weft_live__fits(weft_live_adapter *adapter, const weft_bundle *bundle, uint32_t program);

weft_live_adapter *weft_live__hold(weft_live_adapter *adapter); /* NULL is allowed */
/* The last reference frees its place. NULL is allowed. */
void weft_live__release(weft_live_adapter *adapter);

/* Puts `next` in force under its names, and takes over that reference; NULL: none is. *out: the one
 * before, with its reference; NULL: there was none. false: out of memory. */
bool weft_live__exchange(weft_live *live, const char *base, const char *name,
                         weft_live_adapter *next, weft_live_adapter **out);
/* The adapter in force. NULL: none. */
weft_live_adapter *weft_live__find(const weft_live *live, const char *base, size_t base_len,
                                   const char *name, size_t len);
/* The i-th in the order of names; NULL: there are fewer. */
weft_live_adapter *weft_live__at(const weft_live *live, uint32_t i);

typedef struct weft_live_counts {
    uint32_t n;       /* in force, without those removed */
    uint64_t bytes;   /* of their factors and of those that requests still use */
    uint64_t changes; /* loads, replacements and removals */
} weft_live_counts;
/* A load, replacement or removal is in force. */
void weft_live__count_change(weft_live *live);
/* A request of the adapter has ended. */
void weft_live__count(weft_live_adapter *adapter, bool ok);
weft_live_counts weft_live__counts(const weft_live *live); /* zeroes for NULL */

/* -- In a worker (resident_adapters.c) -------------------------------------------------------- */

/* The adapters whose factors are in the memory of a worker, the least recently used of which leave
 * it when there are more bytes than the budget. */
typedef struct weft_resident weft_resident;

/* Takes the descriptor of the store; -1: none. */
weft_resident *weft_resident__create(int fd, uint64_t budget_bytes); /* NULL: out of memory */
void weft_resident__destroy(weft_resident *resident);                /* NULL is allowed */
/* The session gets the adapters that a batch needs; they stay at least until the next call.
 * *out_read: how many of them were not in memory. */
WEFT_MUST_USE weft_err weft_resident__need(weft_resident *resident, weft_session *session,
                                           const weft_bundle *bundle, const uint64_t *number,
                                           uint32_t n, weft_diag *diag, uint32_t *out_read);

#endif
