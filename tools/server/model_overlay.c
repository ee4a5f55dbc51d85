/* A model of a repository with another configuration, as clients of Triton load one.
 *
 * The configuration comes in protobuf's JSON (https://protobuf.dev/programming-guides/json) and is
 * written as config.pbtxt: messages are objects, repeated fields arrays, maps objects with any
 * keys; words of enumerations and 64-bit numbers are strings. The reader of config.pbtxt knows the
 * fields; here it matters only which are texts and which are maps. */
#include "tools/server/model_overlay.h"

#include "base/file.h"
#include "base/str.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH_MAX = 16 };

/* -- JSON as the text format ------------------------------------------------------------------ */

static bool is_among(const char *const *list, const char *name)
{
    while (*list && strcmp(*list, name) != 0)
        list++;
    return *list != NULL;
}

static void put_string(weft_buf *out, const char *s)
{
    weft_buf_putc(out, '"');
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            weft_buf_printf(out, "\\%c", *s);
        else if (iscntrl((unsigned char)*s))
            weft_buf_printf(out, "\\%03o", (unsigned)(unsigned char)*s);
        else
            weft_buf_putc(out, *s);
    }
    weft_buf_putc(out, '"');
}

/* A word or number, unless the field is a text. */
static void put_text(weft_buf *out, const char *field, const char *s)
{
    static const char *const texts[] = {
        "name",       "platform", "backend", "runtime",        "default_model_filename",
        "model_name", "key",      "value",   "label_filename", "string_value",
        NULL};
    static const char word[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
    if (is_among(texts, field) || !*s || s[strspn(s, word)])
        put_string(out, s);
    else
        weft_buf_puts(out, s);
}

/* The name of a field, which JSON may also give in lowerCamelCase. NULL: it cannot be one. */
static const char *field_name(weft_arena *arena, const char *key)
{
    weft_buf out = {0};
    for (const char *c = key; *c; c++) {
        if (!isalnum((unsigned char)*c) && *c != '_') {
            weft_buf_finish(&out);
            return NULL;
        }
        if (isupper((unsigned char)*c))
            weft_buf_putc(&out, '_');
        weft_buf_putc(&out, (char)tolower((unsigned char)*c));
    }
    const char *name = out.at && !out.failed ? weft_arena_strdup(arena, out.at) : NULL;
    weft_buf_finish(&out);
    return name;
}

static bool put_fields(weft_buf *out, const json_t *object, weft_arena *arena, int depth);

/* A field, once for each of its values. */
static bool put_field(weft_buf *out, const char *field, json_t *value, weft_arena *arena, int depth)
{
    static const char *const maps[] = {"input_map",          "output_map",  "parameters",
                                       "cc_model_filenames", "metric_tags", NULL};
    const char *key;
    json_t *item;
    size_t i;
    if (depth > DEPTH_MAX)
        return false;
    if (json_is_array(value)) {
        json_array_foreach(value, i, item)
        {
            if (!put_field(out, field, item, arena, depth + 1))
                return false;
        }
        return true;
    }
    if (json_is_object(value) && is_among(maps, field)) {
        json_object_foreach(value, key, item)
        {
            weft_buf_printf(out, "%s { key: ", field);
            put_string(out, key);
            weft_buf_putc(out, ' ');
            if (!put_field(out, "value", item, arena, depth + 1))
                return false;
            weft_buf_puts(out, "}\n");
        }
        return true;
    }
    if (json_is_null(value))
        return true;
    weft_buf_puts(out, field);
    if (json_is_object(value)) {
        weft_buf_puts(out, " {\n");
        bool ok = put_fields(out, value, arena, depth + 1);
        weft_buf_puts(out, "}\n");
        return ok;
    }
    weft_buf_puts(out, ": ");
    if (json_is_string(value))
        put_text(out, field, json_string_value(value));
    else if (json_is_integer(value))
        weft_buf_put_i64(out, json_integer_value(value));
    else if (json_is_real(value))
        weft_buf_put_f64(out, json_real_value(value));
    else
        weft_buf_puts(out, json_is_true(value) ? "true" : "false");
    weft_buf_putc(out, '\n');
    return true;
}

static bool put_fields(weft_buf *out, const json_t *object, weft_arena *arena, int depth)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        const char *field = field_name(arena, key);
        if (!field || !put_field(out, field, value, arena, depth))
            return false;
    }
    return true;
}

static weft_err write_config(const char *json, const char *path, weft_arena *arena, weft_diag *diag)
{
    json_error_t where;
    weft_buf out = {0};
    json_t *root = json_loads(json, JSON_REJECT_DUPLICATES, &where);
    weft_err err = WEFT_ERR_OK;
    if (!root)
        err =
            weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                            "'config' is no JSON object: %s (column %d)", where.text, where.column);
    else if (!json_is_object(root) || !put_fields(&out, root, arena, 0))
        err = weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                              "'config' is not the JSON of a model's configuration");
    else if (out.failed)
        err = WEFT_ERR_NOMEM;
    else
        err = weft_file_write(path, out.at ? out.at : "", out.len, diag);
    json_decref(root);
    weft_buf_finish(&out);
    return err;
}

/* -- Folders ---------------------------------------------------------------------------------- */

static weft_err make_folder(const char *path, weft_diag *diag)
{
    return mkdir(path, 0700) == 0 ? WEFT_ERR_OK
                                  : weft_diag_error(diag, WEFT_ERR_IO, (weft_where){.file = path},
                                                    "cannot be created: %s", strerror(errno));
}

/* Links to all entries of a folder but one. */
static weft_err link_entries(const char *from, const char *to, const char *but, weft_arena *arena,
                             weft_diag *diag)
{
    weft_err err = WEFT_ERR_OK;
    char *real = realpath(from, NULL);
    DIR *dir = real ? opendir(real) : NULL;
    if (!dir)
        err = weft_diag_error(diag, WEFT_ERR_IO, (weft_where){.file = from}, "cannot be read: %s",
                              strerror(errno));
    for (const struct dirent *e; err == WEFT_ERR_OK && (e = readdir(dir));) {
        if (e->d_name[0] == '.' || strcmp(e->d_name, but) == 0)
            continue;
        const char *link = weft_arena_printf(arena, "%s/%s", to, e->d_name);
        if (symlink(weft_arena_printf(arena, "%s/%s", real, e->d_name), link) != 0)
            err = weft_diag_error(diag, WEFT_ERR_IO, (weft_where){.file = link},
                                  "cannot be created: %s", strerror(errno));
    }
    if (dir)
        closedir(dir);
    free(real);
    return err;
}

weft_err weft_overlay_make(const char *repository, const char *model, const char *json,
                           const char *folder, weft_arena *arena, weft_diag *diag)
{
    const char *of = weft_arena_printf(arena, "%s/%s", folder, model);
    WEFT_TRY(make_folder(folder, diag));
    WEFT_TRY(make_folder(of, diag));
    WEFT_TRY(write_config(json, weft_arena_printf(arena, "%s/config.pbtxt", of), arena, diag));
    WEFT_TRY(link_entries(repository, folder, model, arena, diag));
    return link_entries(weft_arena_printf(arena, "%s/%s", repository, model), of, "config.pbtxt",
                        arena, diag);
}

void weft_overlay_remove(const char *folder, const char *model, weft_arena *arena)
{
    weft_file_remove_folder(weft_arena_printf(arena, "%s/%s", folder, model));
    weft_file_remove_folder(folder);
}
