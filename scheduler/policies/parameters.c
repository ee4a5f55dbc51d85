/* Parameters of policies as text: "key=number,key=number". */
#include "scheduler/policies/policies_int.h"

#include "base/num.h"

#include <stdio.h>
#include <string.h>

enum { NUMBER_MAX = 64 };

/* The parameter at the start of a list. */
typedef struct parameter {
    const char *at;
    size_t name, len; /* of the key; of all: where they are equal, there is no "=" */
} parameter;

static parameter read_parameter(const char *at)
{
    return (parameter){.at = at, .name = strcspn(at, "=,"), .len = strcspn(at, ",")};
}

static const char *next_parameter(const parameter *p)
{
    return p->at + p->len + (p->at[p->len] == ',');
}

static bool is_called(const parameter *p, const char *key)
{
    return strlen(key) == p->name && memcmp(key, p->at, p->name) == 0;
}

/* Copies the value; false: it is too long for a number. */
static bool copy_value(const parameter *p, char out[NUMBER_MAX])
{
    size_t len = p->len - p->name - 1;
    snprintf(out, NUMBER_MAX, "%.*s", (int)(len < NUMBER_MAX ? len : NUMBER_MAX),
             p->at + p->name + 1);
    return len < NUMBER_MAX;
}

static weft_err refuse_key(const parameter *p, const weft_policy *policy, weft_diag *diag)
{
    char keys[256] = "";
    size_t len = 0;
    for (const char *const *key = policy->parameters; *key && len < sizeof keys; key++)
        len += (size_t)snprintf(keys + len, sizeof keys - len, "%s%s", len ? ", " : "", *key);
    return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                           "policy option '%.*s': must be KEY=NUMBER; the keys of %s are %s",
                           (int)p->len, p->at, policy->name, keys);
}

static weft_err check(const parameter *p, const weft_policy *policy, weft_diag *diag)
{
    char text[NUMBER_MAX];
    double value;
    const char *const *key = policy->parameters;
    while (key && *key && !is_called(p, *key))
        key++;
    if (!policy->parameters)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                               "policy option '%.*s': the policy %s has none", (int)p->len, p->at,
                               policy->name);
    if (p->name == p->len || !*key)
        return refuse_key(p, policy, diag);
    if (!copy_value(p, text) || !weft_parse_f64(text, &value))
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = *key},
                               "'%s' is not a number", text);
    return WEFT_ERR_OK;
}

weft_err weft_policy_check(const weft_policy *policy, const char *options, weft_diag *diag)
{
    for (const char *at = options ? options : ""; *at;) {
        parameter p = read_parameter(at);
        WEFT_TRY(check(&p, policy, diag));
        at = next_parameter(&p);
    }
    return WEFT_ERR_OK;
}

double weft_parameter__number(const weft_problem *problem, const char *key, double otherwise)
{
    double value = otherwise;
    for (const char *at = problem->options ? problem->options : ""; *at;) {
        parameter p = read_parameter(at);
        char text[NUMBER_MAX];
        if (is_called(&p, key) && p.name < p.len && copy_value(&p, text))
            (void)weft_parse_f64(text, &value);
        at = next_parameter(&p);
    }
    return value;
}
