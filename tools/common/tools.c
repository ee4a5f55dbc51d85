/* Messages, small parsers and files, which all verbs share. */
#include "tools/common/tools.h"

#include "base/device_type.h"

#include "base/num.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* -- Reporting ------------------------------------------------------------------------------ */

const char *weft_tool_hint(const char *near)
{
    static char text[96];
    if (!near)
        return "";
    snprintf(text, sizeof text, ", did you mean %s?", near);
    return text;
}

const char *weft_tool_find_device(const weft_verb *verb, const char *name)
{
    const weft_device_type *type = weft_device_type_named(name);
    if (type)
        return type->name;
    (void)weft_tool_usage(verb, "unknown device '%s'; `weft list gpus` shows the known ones%s",
                          name, weft_tool_hint(weft_device_type_near(name)));
    return NULL;
}

int weft_tool_take_device(void *at, const weft_verb *verb, char *arg)
{
    const char *name = weft_tool_find_device(verb, arg);
    *(const char **)at = name;
    return name ? 0 : WEFT_EXIT_USAGE;
}

bool weft_tool_has_color(FILE *stream)
{
    const char *no = getenv("NO_COLOR");
    return isatty(fileno(stream)) && !(no && *no);
}

const char *weft_tool_take_reason(weft_diag *diag, weft_err err, weft_arena *arena)
{
    const char *why = weft_err_text(err);
    for (size_t i = weft_diag_count(diag); i-- > 0;)
        if (weft_diag_at(diag, i)->severity == WEFT_SEV_ERROR)
            why = weft_diag_at(diag, i)->text;
    why = weft_arena_strdup(arena, why);
    weft_diag_clear(diag);
    return why;
}

int weft_tool_usage(const weft_verb *verb, const char *fmt, ...)
{
    fprintf(stderr, "weft %s: ", verb->name);
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\n`weft %s --help` explains the options\n", verb->name);
    return WEFT_EXIT_USAGE;
}

double weft_tool_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

uint64_t weft_tool_resident_bytes(void)
{
    FILE *f = fopen("/proc/self/statm", "re");
    unsigned long long size, resident = 0;
    if (!f)
        return 0;
    if (fscanf(f, "%llu %llu", &size, &resident) != 2)
        resident = 0;
    fclose(f);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

weft_err weft_tool_make_temporary(const char *stem, weft_arena *arena, weft_diag *diag,
                                  const char **out)
{
    const char *dir = getenv("TMPDIR");
    char *path = weft_arena_printf(arena, "%s/%s-XXXXXX", dir && *dir ? dir : "/tmp", stem);
    int fd = mkstemp(path);
    if (fd < 0)
        return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){.file = path},
                               "cannot make a temporary file");
    close(fd);
    *out = path;
    return WEFT_ERR_OK;
}

const char *weft_tool_bytes(uint64_t bytes, char *buf)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    double x = (double)bytes;
    size_t u = 0;
    while (x >= 1000 && u + 1 < sizeof units / sizeof units[0]) {
        x /= 1000;
        u++;
    }
    snprintf(buf, 32, u ? "%.1f %s" : "%.0f %s", x, units[u]);
    return buf;
}

/* -- Parsing -------------------------------------------------------------------------------- */

size_t weft_tool_parse_list(const char *text, int64_t *out, size_t max)
{
    size_t n = 0;
    while (n < max) {
        size_t len = strcspn(text, ",");
        char item[32];
        if (len == 0 || len >= sizeof item)
            return 0;
        memcpy(item, text, len);
        item[len] = '\0';
        if (!weft_parse_i64(item, &out[n]) || out[n] <= 0)
            return 0;
        n++;
        text += len;
        if (*text == '\0')
            return n;
        text++;
    }
    return 0;
}

/* -- Files   -------------------------------------------------------------------------------- */

bool weft_tool_is_text(const char *bytes, size_t len)
{
    return (len >= 3 && memcmp(bytes, "wir", 3) == 0) || (len >= 1 && bytes[0] == '#');
}

bool weft_tool_is_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && S_ISREG(x.st_mode) && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

weft_err weft_tool_sniff(const char *path, weft_diag *diag, weft_file_kind *out)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){.file = path}, "cannot open: %s",
                               strerror(errno));
    char head[8] = {0};
    size_t len = fread(head, 1, sizeof head, f);
    fclose(f);
    if (len >= 4 && memcmp(head, "WEFT", 4) == 0)
        *out = WEFT_FILE_BUNDLE;
    else
        *out = weft_tool_is_text(head, len) ? WEFT_FILE_TEXT : WEFT_FILE_ONNX;
    return WEFT_ERR_OK;
}
