/* Options, plans and folders of exports. */
#include "tools/planner/export_folder.h"

#include "base/file.h"
#include "base/num.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PLAN_BYTES_MAX = 256 << 20, NODES_BYTES_MAX = 16 << 20 };

/* -- Options ---------------------------------------------------------------------------------- */

int weft_tool_take_exporter(void *at, const weft_verb *verb, char *arg)
{
    (void)verb;
    *(const weft_exporter **)at = weft_exporter_find(arg);
    return 0;
}

int weft_tool_take_buffer(void *at, const weft_verb *verb, char *arg)
{
    return weft_parse_bytes(arg, at)
               ? 0
               : weft_tool_usage(verb, "--buffer takes bytes such as 128KiB, not '%s'", arg);
}

int weft_tool_take_sbatch(void *at, const weft_verb *verb, char *arg)
{
    weft_tool_export *e = at;
    if (e->o.n_sbatch == WEFT_TOOL_SBATCH_MAX)
        return weft_tool_usage(verb, "more than %d times --sbatch", WEFT_TOOL_SBATCH_MAX);
    e->sbatch[e->o.n_sbatch++] = arg;
    return 0;
}

int weft_tool_export_check(const weft_verb *verb, const weft_tool_export *e,
                           const weft_exporter *system, const weft_exporter *front)
{
    const weft_export_options *o = &e->o;
    const struct {
        bool given;
        const char *option, *readers;
    } of_some[] = {{o->image, "image", "kubernetes"},
                   {o->claim, "claim", "kubernetes"},
                   {o->bundle_image, "bundle-image", "kubernetes"},
                   {o->in_place, "rollout", "kubernetes"},
                   {o->queue, "queue", "kubernetes"},
                   {o->n_sbatch > 0, "sbatch", "slurm"},
                   {o->worker_tls, "worker-tls", "systemd, slurm, haproxy and envoy"},
                   {o->bind, "bind", "haproxy and envoy"},
                   {o->front_tls, "front-tls", "haproxy and envoy"},
                   {o->published, "published", "haproxy"},
                   {o->least, "balance", "haproxy and envoy"},
                   {o->buffer_bytes > 0, "buffer", "haproxy and envoy"},
                   {o->socket, "socket", "haproxy"}};
    for (size_t i = 0; i < sizeof of_some / sizeof of_some[0]; i++)
        if (of_some[i].given && !strstr(of_some[i].readers, system->name) &&
            !(front && strstr(of_some[i].readers, front->name)))
            return weft_tool_usage(verb, "--%s is for %s, not for %s%s%s", of_some[i].option,
                                   of_some[i].readers, system->name, front ? " and " : "",
                                   front ? front->name : "");
    return -1;
}

weft_err weft_tool_export_prepare(weft_tool_export *e, weft_arena *arena, weft_diag *diag)
{
    char *text = NULL;
    size_t len = 0;
    e->o.sbatch = e->sbatch;
    if (!e->nodes)
        return WEFT_ERR_OK;
    WEFT_TRY(weft_file_read(e->nodes, NODES_BYTES_MAX, diag, &text, &len));
    e->o.nodes = weft_arena_strndup(arena, text, len);
    e->o.nodes_path = e->nodes;
    free(text);
    return WEFT_ERR_OK;
}

/* -- Plans ------------------------------------------------------------------------------------ */

weft_err weft_tool_export_plan(const char *path, weft_arena *arena, weft_diag *diag, weft_plan *out,
                               weft_demands *out_demands)
{
    char *text = NULL;
    size_t len = 0;
    WEFT_TRY(weft_file_read(path, PLAN_BYTES_MAX, diag, &text, &len));
    weft_err err = weft_plan_from_json(text, len, path, arena, diag, out);
    if (err == WEFT_ERR_OK)
        err = weft_plan_demands_from_json(text, len, path, arena, diag, out_demands);
    free(text);
    return err;
}

/* -- Folders ---------------------------------------------------------------------------------- */

/* Creates the missing folders on the way to `path`. */
static weft_err make_folders(const char *path, weft_arena *arena, weft_diag *diag)
{
    char *copy = weft_arena_strdup(arena, path);
    for (char *at = copy + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        if (mkdir(copy, 0777) != 0 && errno != EEXIST)
            return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){.file = copy},
                                   "cannot be made: %s", strerror(errno));
        *at = '/';
    }
    return WEFT_ERR_OK;
}

static weft_err write_file(const char *folder, const weft_export_file *file, weft_arena *arena,
                           weft_diag *diag)
{
    const char *path = weft_arena_printf(arena, "%s/%s", folder, file->path);
    WEFT_TRY(make_folders(path, arena, diag));
    WEFT_TRY(weft_file_write(path, file->text, file->len, diag));
    if (file->executable) {
        mode_t mask = umask(0);
        umask(mask);
        if (chmod(path, 0777 & ~mask) != 0)
            return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){.file = path},
                                   "cannot be made executable: %s", strerror(errno));
    }
    return WEFT_ERR_OK;
}

weft_err weft_tool_export_write(const char *folder, const weft_export_file *file, size_t n,
                                weft_arena *arena, weft_diag *diag)
{
    for (size_t i = 0; i < n; i++)
        WEFT_TRY(write_file(folder, &file[i], arena, diag));
    return WEFT_ERR_OK;
}
