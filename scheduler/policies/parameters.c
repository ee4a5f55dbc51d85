/* Parameters of policies as text: "key=number,key=number". */
#include "scheduler/policies/policies_int.h"

#include "base/num.h"

#include <stdio.h>
#include <string.h>

static bool is_key(const char *const *keys, const char *text, size_t len)
{
    for (; *keys; keys++)
        if (strlen(*keys) == len && memcmp(*keys, text, len) == 0)
            return true;
    return false;
}

bool weft_parameter__number(const weft_problem *problem, const char *const *keys, const char *key,
                            double otherwise, weft_diag *diag, double *out)
{
    const char *at = problem->options ? problem->options : "";
    double value = otherwise;
    while (*at) {
        size_t len = strcspn(at, ","), name = strcspn(at, "=,");
        char text[64];
        if (name == len || !is_key(keys, at, name)) {
            (void)weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                                  "policy option '%.*s': must be KEY=NUMBER, and %s is a key",
                                  (int)(len < 64 ? len : 64), at, keys[0] ? keys[0] : "none");
            return false;
        }
        snprintf(text, sizeof text, "%.*s", (int)(len - name - 1), at + name + 1);
        if (strlen(key) == name && memcmp(key, at, name) == 0 &&
            (len - name - 1 >= sizeof text || !weft_parse_f64(text, &value))) {
            (void)weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = key},
                                  "'%s' is not a number", text);
            return false;
        }
        at += len + (at[len] == ',');
    }
    *out = value;
    return true;
}
