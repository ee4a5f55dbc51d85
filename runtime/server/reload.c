/* Files that are read again while the server runs: certificates and keys. Every 10 s a changed file
 * is detected by its device, inode, size and times; by path, because Kubernetes and many tools
 * replace a link or rename a new file over the old. It is read when the next look, a second later,
 * finds no other change: a file that is being written may lack keys. One that changes at every look
 * is read at every tenth. SIGHUP reads all at once.
 *
 * What was read before stays in use when the new files are wrong. */
#include "base/hash.h"
#include "runtime/server/serve_int.h"

#include <stdlib.h>
#include <sys/stat.h>

static const uint64_t check_every_ns = 10000000000u, settle_ns = 1000000000u;

enum { CHANGES_MAX = 10 }; /* looks in a row; some file systems give no file a lasting inode */

struct weft_reload {
    weft_loop *loop;
    weft_reloaded *first;
    weft_timer timer;
};

/* A file that is absent has 0. */
static uint64_t identity_of(const char *path)
{
    struct stat s;
    if (stat(path, &s) != 0)
        return 0;
    const uint64_t what[] = {(uint64_t)s.st_dev,          (uint64_t)s.st_ino,
                             (uint64_t)s.st_size,         (uint64_t)s.st_mtim.tv_sec,
                             (uint64_t)s.st_mtim.tv_nsec, (uint64_t)s.st_ctim.tv_sec,
                             (uint64_t)s.st_ctim.tv_nsec};
    return weft_hash64(what, sizeof what, 0);
}

/* Whether a file is another than before. */
static bool note_files(weft_reloaded *f)
{
    bool changed = false;
    for (uint32_t i = 0; i < f->n_path; i++) {
        uint64_t now = identity_of(f->path[i]);
        changed = changed || now != f->seen[i];
        f->seen[i] = now;
    }
    return changed;
}

static void load(weft_reloaded *f)
{
    weft_diag *diag = weft_diag_create();
    weft_err err = diag ? f->load(f->user, diag) : WEFT_ERR_NOMEM;
    const weft_message *m = diag && weft_diag_count(diag) ? weft_diag_at(diag, 0) : NULL;
    if (err == WEFT_ERR_OK) {
        f->n_load++;
        WEFT_LOG(WEFT_LOG_INFO, "reloaded", {.key = "what", .text = f->name});
    } else {
        f->n_failed++;
        WEFT_LOG(WEFT_LOG_ERROR, "reload_failed", {.key = "what", .text = f->name},
                 {.key = "file", .text = m && m->file ? m->file : f->path[0]},
                 {.key = "line", .number = m ? m->line : 0},
                 {.key = "why", .text = m ? m->text : weft_err_text(err)});
    }
    weft_diag_destroy(diag);
}

bool weft_reload__check(weft_reload *r)
{
    bool changes = false;
    /* The files are looked at before they are read: a change in between is seen the next time. */
    for (weft_reloaded *f = r->first; f; f = f->next) {
        uint32_t before = f->n_change;
        f->n_change = note_files(f) ? before + 1 : 0;
        changes = changes || f->n_change > 0;
        if (f->n_change == CHANGES_MAX)
            f->n_change = 0;
        if (before > 0 && f->n_change == 0)
            load(f);
    }
    return changes;
}

static void on_timer(void *user)
{
    weft_reload *r = user;
    uint64_t pause_ns = weft_reload__check(r) ? settle_ns : check_every_ns;
    weft_timer__set(r->loop, &r->timer, weft_clock__now_ns() + pause_ns);
}

weft_reload *weft_reload__create(weft_loop *loop)
{
    weft_reload *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    *r = (weft_reload){.loop = loop, .timer = {.fn = on_timer, .user = r}};
    if (!weft_timer__set(loop, &r->timer, weft_clock__now_ns() + check_every_ns)) {
        free(r);
        return NULL;
    }
    return r;
}

void weft_reload__destroy(weft_reload *r)
{
    if (!r)
        return;
    weft_timer__cancel(r->loop, &r->timer);
    free(r);
}

void weft_reload__look(weft_reloaded *f)
{
    (void)note_files(f);
}

void weft_reload__add(weft_reload *r, weft_reloaded *f)
{
    if (!r)
        return;
    f->next = r->first;
    r->first = f;
}

void weft_reload__all(weft_reload *r)
{
    for (weft_reloaded *f = r->first; f; f = f->next) {
        (void)note_files(f);
        f->n_change = 0;
        load(f);
    }
    weft_timer__set(r->loop, &r->timer, weft_clock__now_ns() + settle_ns);
}

static void put_count(const weft_reload *r, bool failed, weft_buf *out)
{
    const char *name = failed ? "weft_reload_failures_total" : "weft_reloads_total";
    weft_buf_printf(out, "# HELP %s %s\n# TYPE %s counter\n", name,
                    failed ? "Files that could not be read again; the old ones stay in use"
                           : "Files that were read again",
                    name);
    for (const weft_reloaded *f = r->first; f; f = f->next)
        weft_buf_printf(out, "%s{what=\"%s\"} %llu\n", name, f->name,
                        (unsigned long long)(failed ? f->n_failed : f->n_load));
}

void weft_reload__write_metrics(const weft_reload *r, weft_buf *out)
{
    if (!r || !r->first)
        return;
    put_count(r, false, out);
    put_count(r, true, out);
}
