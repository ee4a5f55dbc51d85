/* Values of --driver and --sms. */
#include "tools/server/device_options.h"

#include "base/num.h"

#include <stdio.h>
#include <string.h>

enum { SMS_MAX = 4096 };

static bool parse_number(const char *text, int64_t lo, int64_t hi, uint32_t *out)
{
    int64_t x;
    if (!weft_parse_i64(text, &x) || x < lo || x > hi)
        return false;
    *out = (uint32_t)x;
    return true;
}

/* "32" or "32@64": number of multiprocessors, and the first one. */
static bool parse_sms(const char *text, weft_engine_options *out)
{
    char number[16];
    size_t n = strcspn(text, "@");
    if (n == 0 || n >= sizeof number)
        return false;
    memcpy(number, text, n);
    number[n] = 0;
    out->sm_first = 0;
    return parse_number(number, 1, SMS_MAX, &out->n_sm) &&
           (!text[n] || parse_number(text + n + 1, 0, SMS_MAX, &out->sm_first));
}

int weft_tool_take_driver(void *at, const weft_verb *verb, char *arg)
{
    weft_engine_options *out = at;
    out->driver = arg;
    return weft_driver_find(arg) ? 0 : weft_tool_usage(verb, "no driver is named '%s'", arg);
}

int weft_tool_take_sms(void *at, const weft_verb *verb, char *arg)
{
    return parse_sms(arg, at) ? 0
                              : weft_tool_usage(verb, "--sms takes N or N@FIRST, not '%s'", arg);
}
