/* Names of models, apps, families and locations. A family's name is those of its models joined by
 * '+', which no other name contains. A file of its own, since programs that read no set file check
 * names too. */
#include "scheduler/input/input.h"

#include <ctype.h>
#include <string.h>

bool weft_set_name_valid(const char *name)
{
    size_t len = name ? strlen(name) : 0;
    if (len == 0 || len > WEFT_SET_NAME_MAX || !isalnum((unsigned char)name[0]))
        return false;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)name[i];
        if (c >= 0x80 || !(isalnum(c) || c == '_' || c == '.' || c == '-'))
            return false;
    }
    return true;
}

bool weft_location__is_name(const char *text)
{
    size_t len = strlen(text);
    for (size_t i = 0; i < len; i++)
        if (!islower((unsigned char)text[i]) && !isdigit((unsigned char)text[i]) &&
            text[i] != '-' && text[i] != '.')
            return false;
    return len > 0 && len <= WEFT_LOCATION_NAME_MAX && islower((unsigned char)text[0]) &&
           isalnum((unsigned char)text[len - 1]);
}

/* -- Families --------------------------------------------------------------------------------- */

enum { SEPARATOR = '+' };

bool weft_family_is_name(const char *name)
{
    return strchr(name, SEPARATOR) != NULL;
}

const char *weft_family_name(const char *const *model, size_t n, weft_arena *arena)
{
    const char *name = n > 0 ? model[0] : "";
    for (size_t i = 1; i < n; i++)
        name = weft_arena_printf(arena, "%s%c%s", name, SEPARATOR, model[i]);
    return name;
}

size_t weft_family_models(const char *name, weft_arena *arena, const char *const **out)
{
    const char **model = NULL;
    size_t n = 0;
    for (const char *end = name; end; name = end + 1) {
        end = strchr(name, SEPARATOR);
        model = weft_arena_grow(arena, model, n * sizeof *model, (n + 1) * sizeof *model);
        model[n++] = weft_arena_strndup(arena, name, end ? (size_t)(end - name) : strlen(name));
        if (!end)
            break;
    }
    *out = model;
    return n;
}

bool weft_family_name_valid(const char *name)
{
    char part[WEFT_SET_NAME_MAX + 1];
    for (const char *end = name; end; name = end + 1) {
        end = strchr(name, SEPARATOR);
        size_t len = end ? (size_t)(end - name) : strlen(name);
        if (len > WEFT_SET_NAME_MAX)
            return false;
        memcpy(part, name, len);
        part[len] = 0;
        if (!weft_set_name_valid(part))
            return false;
        if (!end)
            return true;
    }
    return false;
}

bool weft_family_has(const char *name, const char *model)
{
    size_t len = strlen(model);
    for (const char *at = name; at; at = strchr(at, SEPARATOR)) {
        at += at != name;
        if (strncmp(at, model, len) == 0 && (at[len] == 0 || at[len] == SEPARATOR))
            return true;
    }
    return false;
}
