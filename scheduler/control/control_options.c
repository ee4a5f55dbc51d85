/* Options of the controller: defaults of a live server, and options as text. */
#include "scheduler/control/control_int.h"

#include "base/num.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

void weft_control_live(weft_control_options *options)
{
    const weft_policy *policy = options->policy;
    weft_try_plan try_plan = options->try_plan;
    *options = (weft_control_options){.policy = policy,
                                      .try_plan = try_plan,
                                      .period_s = 20,
                                      .headroom = 1.05,
                                      .up_s = 2,
                                      .down_s = 60,
                                      .sigma = 4,
                                      .rate_change = 0.2,
                                      .miss_share = 0.01,
                                      .carbon_change = 0.05,
                                      .hold_s = 30,
                                      .payback_s = 300,
                                      .move_s = 2,
                                      .mig_s = 5,
                                      .as_much = true,
                                      .try_s = 5,
                                      .poll_s = 0.5,
                                      .carbon_s = 60};
}

typedef struct key {
    const char *name;
    size_t at;
    enum { SECONDS, PART, FACTOR } kind;
    double lo, hi;
} key;

#define KEY(name, field, kind, lo, hi)                            \
    {                                                             \
        name, offsetof(weft_control_options, field), kind, lo, hi \
    }

static const key keys[] = {KEY("period", period_s, SECONDS, 0, 1e6),
                           KEY("headroom", headroom, FACTOR, 0.1, 100),
                           KEY("up", up_s, SECONDS, 0.01, 1e6),
                           KEY("down", down_s, SECONDS, 0.01, 1e6),
                           KEY("sigma", sigma, FACTOR, 0, 100),
                           KEY("rate", rate_change, PART, 0, 100),
                           KEY("misses", miss_share, PART, 0, 1),
                           KEY("carbon", carbon_change, PART, 0, 100),
                           KEY("hold", hold_s, SECONDS, 0, 1e6),
                           KEY("payback", payback_s, SECONDS, 0, 1e9),
                           KEY("move", move_s, SECONDS, 0, 1e6),
                           KEY("mig", mig_s, SECONDS, 0, 1e6),
                           KEY("trial", try_s, SECONDS, 0, 3600),
                           KEY("poll", poll_s, SECONDS, 0.01, 3600),
                           KEY("intensity", carbon_s, SECONDS, 0.01, 86400)};
enum { KEYS = sizeof keys / sizeof keys[0] };

static bool parse_value(const key *k, const char *text, double *out)
{
    double x;
    if (k->kind == SECONDS) {
        if (!weft_parse_duration_us(text, &x))
            return false;
        x /= 1e6;
    } else if (!(k->kind == PART && weft_parse_percent(text, &x)) && !weft_parse_f64(text, &x)) {
        return false;
    }
    *out = x;
    return x >= k->lo && x <= k->hi;
}

static weft_err set(const char *word, size_t len, weft_diag *diag, weft_control_options *options)
{
    char text[64];
    size_t name = strcspn(word, "=");
    if (len == 4 && memcmp(word, "live", 4) == 0) {
        weft_control_live(options);
        return WEFT_ERR_OK;
    }
    for (size_t i = 0; name < len && i < KEYS; i++) {
        const key *k = &keys[i];
        if (strlen(k->name) != name || memcmp(k->name, word, name) != 0)
            continue;
        double value;
        snprintf(text, sizeof text, "%.*s", (int)(len - name - 1), word + name + 1);
        if (len - name - 1 >= sizeof text || !parse_value(k, text, &value))
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = k->name},
                                   "'%s' must be a %s from %g to %g", text,
                                   k->kind == SECONDS ? "time such as 20s" : "number", k->lo,
                                   k->hi);
        *(double *)((char *)options + k->at) = value;
        return WEFT_ERR_OK;
    }
    weft_buf known = {0};
    for (size_t i = 0; i < KEYS; i++)
        weft_buf_printf(&known, " %s", keys[i].name);
    weft_err err = weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                                   "'%.*s': must be live or KEY=VALUE with a key of:%s",
                                   (int)(len < 64 ? len : 64), word, known.at ? known.at : "");
    weft_buf_finish(&known);
    return err;
}

weft_err weft_control_parse(const char *text, weft_diag *diag, weft_control_options *options)
{
    weft_control_options o = *options;
    for (const char *at = text; *at;) {
        size_t len = strcspn(at, ",");
        WEFT_TRY(set(at, len, diag, &o));
        at += len + (at[len] == ',');
    }
    if (o.up_s > 0 && o.down_s < o.up_s)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = "down"},
                               "%g s must be at least the %g s of up", o.down_s, o.up_s);
    *options = o;
    return WEFT_ERR_OK;
}
