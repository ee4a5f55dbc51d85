/* Checks of a machine: the list of them, and reading of small files below a root. */
#include "tools/doctor/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_MAX = 1024, LINE_BYTES = 8192 };

static const struct {
    const char *name, *text;
} uses[] = {
#define USE(id, name, text) {name, text},
    WEFT_DOCTOR_USES(USE)
#undef USE
};

const char *weft_doctor_use_name(uint32_t i)
{
    return i < WEFT_DOCTOR_N_USE ? uses[i].name : NULL;
}

const char *weft_doctor_use_text(uint32_t i)
{
    return uses[i].text;
}

uint32_t weft_doctor_ready(const weft_doctor *d)
{
    uint32_t ready = (1u << WEFT_DOCTOR_N_USE) - 1;
    for (uint32_t i = 0; i < d->check.len; i++)
        ready &= ~d->check.at[i].blocks;
    return ready;
}

void weft_doctor__add(weft_doctor *d, const char *item, weft_doctor_state state, uint32_t blocks,
                      const char *remedy, const char *fmt, ...)
{
    char text[TEXT_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    weft_doctor_check check = {.item = item,
                               .text = weft_arena_strdup(d->arena, text),
                               .remedy = remedy,
                               .state = state,
                               .blocks = blocks};
    WEFT_VEC_PUSH(d->arena, &d->check, check);
}

const char *weft_doctor__path(const weft_doctor *d, const char *path)
{
    return weft_arena_printf(d->arena, "%s%s", d->root, path);
}

const char *weft_doctor__value(const weft_doctor *d, const char *path, const char *key)
{
    char line[LINE_BYTES];
    const char *found = NULL;
    FILE *f = fopen(weft_doctor__path(d, path), "re");
    while (f && !found && fgets(line, sizeof line, f)) {
        size_t len = strlen(key),
               gap = strspn(line + (strncmp(line, key, len) == 0 ? len : 0), " \t");
        if (strncmp(line, key, len) != 0 || line[len + gap] != ':')
            continue;
        line[strcspn(line, "\n")] = 0;
        const char *at = line + len + gap + 1;
        found = weft_arena_strdup(d->arena, at + strspn(at, " \t"));
    }
    if (f)
        fclose(f);
    return found;
}
