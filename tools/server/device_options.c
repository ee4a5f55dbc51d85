/* --driver, --gpu and --sms. */
#include "tools/server/device_options.h"

#include "base/num.h"

#include <stdio.h>
#include <string.h>

enum { GPUS_MAX = 1024, SMS_MAX = 4096 };

static bool take_number(const char *text, int64_t lo, int64_t hi, uint32_t *out)
{
    int64_t x;
    if (!weft_parse_i64(text, &x) || x < lo || x > hi)
        return false;
    *out = (uint32_t)x;
    return true;
}

/* "32", "32@64": how many, and from which on. */
static bool take_sms(const char *text, weft_engine_options *out)
{
    char number[16];
    size_t n = strcspn(text, "@");
    if (n == 0 || n >= sizeof number)
        return false;
    memcpy(number, text, n);
    number[n] = 0;
    out->sm_first = 0;
    return take_number(number, 1, SMS_MAX, &out->n_sm) &&
           (!text[n] || take_number(text + n + 1, 0, SMS_MAX, &out->sm_first));
}

int weft_tool_take_device_option(const weft_verb *verb, int opt, const char *arg,
                                 weft_engine_options *out)
{
    switch (opt) {
    case WEFT_DEVICE_OPT_DRIVER:
        if (!weft_driver_find(arg))
            return weft_tool_usage(verb, "no driver is named '%s'", arg);
        out->driver = arg;
        return 0;
    case WEFT_DEVICE_OPT_GPU:
        return take_number(arg, 0, GPUS_MAX, &out->gpu)
                   ? 0
                   : weft_tool_usage(verb, "wrong --gpu '%s'", arg);
    default:
        return take_sms(arg, out) ? 0 : weft_tool_usage(verb, "wrong --sms '%s'", arg);
    }
}
