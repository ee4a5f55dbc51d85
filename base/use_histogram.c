/* Joint histograms of compute and bandwidth over time. */
#include "base/use_histogram.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TOP = WEFT_USEHIST_LEVELS - 1 };

/* -- Making ----------------------------------------------------------------------------------- */

/* The level below a value, and the part of the time that belongs to the next one. */
static int level_below(double value, double *out_next)
{
    double x = fmin(1, fmax(0, value)) * TOP; /* NaN counts as 0 */
    int level = x >= TOP ? TOP - 1 : (int)x;
    *out_next = x - level;
    return level;
}

void weft_usehist_add(weft_usehist_time *sum, double compute, double bandwidth, double time)
{
    double u, v;
    int i = level_below(compute, &u), j = level_below(bandwidth, &v);
    if (!(time > 0) || !isfinite(time))
        return;
    sum->at[i][j] += time * (1 - u) * (1 - v);
    sum->at[i + 1][j] += time * u * (1 - v);
    sum->at[i][j + 1] += time * (1 - u) * v;
    sum->at[i + 1][j + 1] += time * u * v;
}

/* Rounds by the largest remainder, so that the parts sum to 255. */
bool weft_usehist_make(const weft_usehist_time *sum, weft_usehist *out)
{
    const double *at = &sum->at[0][0];
    double whole = 0, rest[WEFT_USEHIST_CELLS];
    uint8_t part[WEFT_USEHIST_CELLS];
    int left = WEFT_USEHIST_WHOLE;
    for (int i = 0; i < WEFT_USEHIST_CELLS; i++)
        whole += at[i];
    if (!(whole > 0) || !isfinite(whole))
        return false;
    for (int i = 0; i < WEFT_USEHIST_CELLS; i++) {
        double exact = at[i] / whole * WEFT_USEHIST_WHOLE;
        part[i] = (uint8_t)fmin(exact, WEFT_USEHIST_WHOLE);
        rest[i] = exact - part[i];
        left -= part[i];
    }
    for (; left > 0; left--) {
        int most = 0;
        for (int i = 1; i < WEFT_USEHIST_CELLS; i++)
            if (rest[i] > rest[most])
                most = i;
        part[most]++;
        rest[most] = -1;
    }
    memcpy(out->part, part, sizeof part);
    return true;
}

/* -- Reading ---------------------------------------------------------------------------------- */

bool weft_usehist_is_known(const weft_usehist *use)
{
    int sum = 0;
    for (int i = 0; i < WEFT_USEHIST_LEVELS; i++)
        for (int j = 0; j < WEFT_USEHIST_LEVELS; j++)
            sum += use->part[i][j];
    return sum == WEFT_USEHIST_WHOLE;
}

void weft_usehist_levels(const weft_usehist *use, weft_usehist_kind kind,
                         double out[WEFT_USEHIST_LEVELS])
{
    memset(out, 0, WEFT_USEHIST_LEVELS * sizeof *out);
    for (int i = 0; i < WEFT_USEHIST_LEVELS; i++)
        for (int j = 0; j < WEFT_USEHIST_LEVELS; j++)
            out[kind == WEFT_USEHIST_COMPUTE ? i : j] +=
                (double)use->part[i][j] / WEFT_USEHIST_WHOLE;
}

double weft_usehist_mean(const weft_usehist *use, weft_usehist_kind kind)
{
    return weft_usehist_above(use, kind, 0);
}

double weft_usehist_quantile(const weft_usehist *use, weft_usehist_kind kind, double part)
{
    double level[WEFT_USEHIST_LEVELS], sum = 0;
    int i = 0;
    weft_usehist_levels(use, kind, level);
    for (sum = level[0]; i < TOP && sum < part - 1e-9; sum += level[i])
        i++;
    return (double)i / TOP;
}

double weft_usehist_above(const weft_usehist *use, weft_usehist_kind kind, double limit)
{
    double level[WEFT_USEHIST_LEVELS], sum = 0;
    weft_usehist_levels(use, kind, level);
    for (int i = 0; i < WEFT_USEHIST_LEVELS; i++)
        sum += level[i] * fmax(0, (double)i / TOP - limit);
    return sum;
}

double weft_usehist_conflict(const weft_usehist *a, const weft_usehist *b, weft_usehist_kind kind)
{
    double level[WEFT_USEHIST_LEVELS], sum = 0;
    weft_usehist_levels(a, kind, level);
    for (int i = 0; i < WEFT_USEHIST_LEVELS; i++)
        if (level[i] > 0)
            sum += level[i] * weft_usehist_above(b, kind, (double)(TOP - i) / TOP);
    return sum;
}

/* -- Text ------------------------------------------------------------------------------------- */

void weft_usehist_format(const weft_usehist *use, char out[WEFT_USEHIST_TEXT_MAX])
{
    size_t len = 0;
    out[0] = 0;
    for (int i = 0; i < WEFT_USEHIST_LEVELS; i++)
        for (int j = 0; j < WEFT_USEHIST_LEVELS; j++)
            if (use->part[i][j] > 0)
                len += (size_t)snprintf(out + len, WEFT_USEHIST_TEXT_MAX - len, "%s%d%d:%d",
                                        len > 0 ? " " : "", i, j, use->part[i][j]);
}

static bool is_level(char c)
{
    return c >= '0' && c < '0' + WEFT_USEHIST_LEVELS;
}

bool weft_usehist_parse(const char *text, weft_usehist *out)
{
    weft_usehist use = {{{0}}};
    for (const char *at = text; *at;) {
        int n = 0, digits = 0;
        if (!is_level(at[0]) || !is_level(at[1]) || at[2] != ':')
            return false;
        uint8_t *part = &use.part[at[0] - '0'][at[1] - '0'];
        for (at += 3; *at >= '0' && *at <= '9' && digits < 3; at++, digits++)
            n = n * 10 + (*at - '0');
        if (n < 1 || n > WEFT_USEHIST_WHOLE || *part > 0 || (*at && *at != ' '))
            return false;
        *part = (uint8_t)n;
        at += *at == ' ';
    }
    if (!weft_usehist_is_known(&use))
        return false;
    *out = use;
    return true;
}
