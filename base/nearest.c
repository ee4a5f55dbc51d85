/* Optimal string alignment distance: Damerau (1964), no substring edited twice. */
#include "base/nearest.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { LEN_MAX = 63 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static int fold(char c)
{
    return tolower((unsigned char)c);
}

/* Both words are of at most LEN_MAX characters. */
static size_t distance(const char *a, const char *b)
{
    size_t row[3][LEN_MAX + 1]; /* of the last three characters of `a` */
    size_t len = strlen(b);
    size_t *two = row[0], *one = row[1], *now = row[2];
    for (size_t j = 0; j <= len; j++)
        one[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        now[0] = i;
        for (size_t j = 1; j <= len; j++) {
            int x = fold(a[i - 1]), y = fold(b[j - 1]);
            now[j] = least(least(one[j], now[j - 1]) + 1, one[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == fold(b[j - 2]) && fold(a[i - 2]) == y)
                now[j] = least(now[j], two[j - 2] + 1);
        }
        size_t *free_row = two;
        two = one;
        one = now;
        now = free_row;
    }
    return one[len];
}

const char *weft_nearest(const char *word, const char *(*at)(size_t i, const void *user),
                         const void *user)
{
    const char *best = NULL, *known;
    size_t len = strlen(word), limit = (len + 1) / 3 + 1;
    if (len == 0 || len > LEN_MAX)
        return NULL;
    for (size_t i = 0; (known = at(i, user)) != NULL; i++) {
        if (strlen(known) > LEN_MAX)
            continue;
        if (len >= 3 && strncasecmp(word, known, len) == 0)
            return known;
        size_t d = distance(word, known);
        if (d < limit) {
            limit = d;
            best = known;
        }
    }
    return best;
}

const char *weft_nearest_say(const char *word, const char *(*at)(size_t i, const void *user),
                             const void *user, char buf[WEFT_NEAREST_BYTES_MAX])
{
    enum { SHOWN = 8, NAME_MAX_SHOWN = 48 };
    const char *near = weft_nearest(word, at, user), *known;
    size_t n = 0, len = 0;
    buf[0] = '\0';
    if (near) {
        snprintf(buf, WEFT_NEAREST_BYTES_MAX, ", did you mean %.256s?", near);
        return buf;
    }
    while (at(n, user))
        n++;
    for (size_t i = 0; i < SHOWN && (known = at(i, user)) != NULL; i++)
        len += (size_t)snprintf(buf + len, WEFT_NEAREST_BYTES_MAX - len, "%s%.*s",
                                i == 0       ? n == 1 ? "; there is " : "; there are "
                                : i + 1 == n ? " and "
                                             : ", ",
                                NAME_MAX_SHOWN, known);
    if (n > SHOWN)
        snprintf(buf + len, WEFT_NEAREST_BYTES_MAX - len, " and %zu more", n - SHOWN);
    return buf;
}
