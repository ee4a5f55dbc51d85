/* Writes and reads plan.json; docs/plan-json.md is the contract. Reading checks keys, kinds and
 * ranges; weft_plan_check tells whether the plan is legal. */
#include "scheduler/builder/builder.h"
#include "scheduler/input/input.h"
#include "scheduler/plan/plan.h"

#include "base/file_guess.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    PLAN_FORMAT_VERSION = 3,
    PLAN_BYTES_MAX = 256 << 20,
    PLAN_DIGITS = 15, /* a decimal of 15 digits converts to double and back without change */
};

/* -- Writing ---------------------------------------------------------------------------------- */

/* An integer if the number is one. NULL, which fails the whole plan, if it is not finite. */
static json_t *number(double x)
{
    return isfinite(x) && x == floor(x) && fabs(x) < 1e15 ? json_integer((json_int_t)x)
                                                          : json_real(x);
}

static json_t *location_to_json(const weft_location *at)
{
    json_t *o = json_object();
    json_object_set_new(o, "node", json_string(at->node));
    json_object_set_new(o, "gpu", json_integer(at->gpu));
    if (at->rack)
        json_object_set_new(o, "rack", json_string(at->rack));
    if (at->zone)
        json_object_set_new(o, "zone", json_string(at->zone));
    if (at->worker)
        json_object_set_new(o, "worker", json_string(at->worker));
    if (at->worker)
        json_object_set_new(o, "port", json_integer(at->port));
    return o;
}

static json_t *placement_to_json(const weft_placement *p)
{
    json_t *o = json_object();
    json_object_set_new(o, "model", json_string(p->model));
    json_object_set_new(o, "device", json_integer(p->device));
    json_object_set_new(o, "type", json_string(p->type));
    json_object_set_new(o, "slice", json_string(p->slice));
    json_object_set_new(o, "slice_id", json_integer(p->slice_id));
    json_object_set_new(o, "mig_start",
                        p->mig_start < 0 ? json_null() : json_integer(p->mig_start));
    json_object_set_new(o, "share", number(p->share));
    json_object_set_new(o, "batch", json_integer(p->batch));
    json_object_set_new(o, "procs", json_integer(p->procs));
    json_object_set_new(o, "rate_per_s", number(p->rate_per_s));
    json_object_set_new(o, "capacity_per_s", number(p->capacity_per_s));
    json_object_set_new(o, "latency_us", number(p->latency_us));
    if (p->exec_us > 0)
        json_object_set_new(o, "exec_us", number(p->exec_us));
    json_object_set_new(o, "mem_bytes", json_integer((json_int_t)p->mem_bytes));
    json_object_set_new(o, "expected_error", number(p->expected_error));
    json_object_set_new(o, "source", json_string(p->source ? p->source : ""));
    if (p->where.node)
        json_object_set_new(o, "where", location_to_json(&p->where));
    return o;
}

static int demand_order(const void *a, const void *b)
{
    const weft_demand *const *p = a, *const *q = b;
    return strcmp((*p)->model, (*q)->model);
}

/* Sorted by name, so that the text does not depend on the order in the set. NULL: out of memory. */
static json_t *demands_to_json(const weft_demands *demands)
{
    const weft_demand **sorted = malloc((demands->n + 1) * sizeof *sorted);
    if (!sorted)
        return NULL;
    for (size_t i = 0; i < demands->n; i++)
        sorted[i] = &demands->at[i];
    qsort(sorted, demands->n, sizeof *sorted, demand_order);
    json_t *list = json_array();
    for (size_t i = 0; i < demands->n; i++) {
        json_t *o = json_object();
        json_object_set_new(o, "model", json_string(sorted[i]->model));
        json_object_set_new(o, "slo_us", number(sorted[i]->slo_us));
        json_object_set_new(o, "rate_per_s", number(sorted[i]->rate_per_s));
        if (sorted[i]->spread != WEFT_DOMAIN_NONE)
            json_object_set_new(o, "spread", json_string(weft_domain_name(sorted[i]->spread)));
        json_array_append_new(list, o);
    }
    free(sorted);
    return list;
}

static const char *const goal_name[] = {
    [WEFT_GOAL_COST] = "cost", [WEFT_GOAL_GOODPUT] = "goodput", [WEFT_GOAL_CARBON] = "carbon"};

enum { GOAL_COUNT = sizeof goal_name / sizeof goal_name[0] };

const char *weft_goal_name(weft_goal goal)
{
    return goal_name[goal];
}

bool weft_goal_parse(const char *text, weft_goal *out)
{
    for (int i = 0; i < GOAL_COUNT; i++)
        if (strcmp(text, goal_name[i]) == 0) {
            *out = (weft_goal)i;
            return true;
        }
    return false;
}

static json_t *interference_to_json(const weft_interference *coeff)
{
    if (coeff->over_time)
        return json_string(coeff->mean ? "mean" : "use");
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof coeff->c / sizeof coeff->c[0]; i++)
        json_array_append_new(list, number(coeff->c[i]));
    return list;
}

static json_t *rules_to_json(const weft_rules *rules)
{
    json_t *o = json_object();
    json_object_set_new(o, "latency", json_string(weft_latency_rule_name(rules->latency)));
    json_object_set_new(o, "whole_ms", json_boolean(rules->whole_ms));
    json_object_set_new(o, "procs_max", json_integer(rules->procs_max));
    json_object_set_new(o, "isolated", json_boolean(rules->isolated));
    json_object_set_new(o, "oversubscribe", json_boolean(rules->oversubscribe));
    json_object_set_new(o, "mem_reserve", number(rules->mem_reserve));
    if (rules->confidence > 0)
        json_object_set_new(o, "confidence", number(rules->confidence));
    if (weft_interference__any(&rules->interference))
        json_object_set_new(o, "interference", interference_to_json(&rules->interference));
    if (rules->survive != WEFT_DOMAIN_NONE)
        json_object_set_new(o, "survive", json_string(weft_domain_name(rules->survive)));
    if (rules->latency != WEFT_RULE_QUEUE)
        return o;
    json_object_set_new(o, "arrivals", json_string(weft_arrival_kind_name(rules->arrivals)));
    if (rules->quantile > 0)
        json_object_set_new(o, "quantile", number(rules->quantile));
    if (rules->burst > 0)
        json_object_set_new(o, "burst", number(rules->burst));
    if (rules->host_us > 0)
        json_object_set_new(o, "host_us", number(rules->host_us));
    return o;
}

weft_err weft_plan_to_json(const weft_plan *plan, const weft_demands *demands, char **out)
{
    json_t *root = json_object(), *list = json_array(), *models = demands_to_json(demands);
    json_object_set_new(root, "format", json_string("weft-plan"));
    json_object_set_new(root, "version", json_integer(PLAN_FORMAT_VERSION));
    json_object_set_new(root, "policy", json_string(plan->policy));
    json_object_set_new(root, "goal", json_string(goal_name[plan->goal]));
    json_object_set_new(root, "rules", rules_to_json(&plan->rules));
    json_object_set_new(root, "gpus", json_integer(plan->gpus));
    json_object_set_new(root, "cost_per_hour", number(plan->cost_per_hour));
    json_object_set_new(root, "goodput_per_s", number(plan->goodput_per_s));
    json_object_set_new(root, "power_w", number(plan->power_w));
    json_object_set_new(root, "lower_bound", number(plan->lower_bound));
    if (plan->cost_bound > 0)
        json_object_set_new(root, "cost_bound", number(plan->cost_bound));
    json_object_set_new(root, "proven", json_boolean(plan->proven));
    if (isfinite(weft_plan_gap(plan)))
        json_object_set_new(root, "gap", number(weft_plan_gap(plan)));
    json_object_set_new(root, "decision_ms", number(plan->decision_ms));
    json_object_set_new(root, "models", models);
    for (size_t i = 0; i < plan->n; i++)
        json_array_append_new(list, placement_to_json(&plan->at[i]));
    bool whole = root && list && models && json_array_size(list) == plan->n;
    json_object_set_new(root, "placements", list);
    char *text = whole ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(PLAN_DIGITS)) : NULL;
    json_decref(root);
    if (!text)
        return WEFT_ERR_NOMEM;
    *out = text;
    return WEFT_ERR_OK;
}

/* -- Reading ---------------------------------------------------------------------------------- */

typedef struct reader {
    const char *file, *item;
    weft_arena *arena;
    weft_diag *diag;
} reader;

static weft_err fail(const reader *rd, const char *key, const char *text)
{
    return weft_diag_error(rd->diag, WEFT_ERR_INPUT,
                           (weft_where){.file = rd->file, .item = rd->item}, "%s: %s", key, text);
}

/* The keys of `o` must be those of the list; a key that starts with '?' may be absent. */
static weft_err check_keys(const reader *rd, const json_t *o, const char *const *keys, size_t n)
{
    const char *key;
    json_t *value;
    if (!json_is_object(o))
        return weft_diag_error(rd->diag, WEFT_ERR_INPUT,
                               (weft_where){.file = rd->file, .item = rd->item},
                               "must be an object");
    json_object_foreach((json_t *)o, key, value)
    {
        bool known = false;
        for (size_t i = 0; i < n; i++)
            known = known || strcmp(keys[i] + (keys[i][0] == '?'), key) == 0;
        if (!known)
            return weft_diag_error(rd->diag, WEFT_ERR_INPUT,
                                   (weft_where){.file = rd->file, .item = rd->item},
                                   "unknown key '%.64s'", key);
    }
    for (size_t i = 0; i < n; i++)
        if (keys[i][0] != '?' && !json_object_get(o, keys[i]))
            return fail(rd, keys[i], "is missing");
    return WEFT_ERR_OK;
}

static weft_err read_text(const reader *rd, const json_t *o, const char *key, size_t max,
                          const char **out)
{
    const json_t *value = json_object_get(o, key);
    if (!json_is_string(value))
        return fail(rd, key, "must be a string");
    const char *text = json_string_value(value);
    if (strlen(text) != json_string_length(value) || strlen(text) > max)
        return fail(rd, key, "is too long or contains a zero byte");
    *out = weft_arena_strdup(rd->arena, text);
    return WEFT_ERR_OK;
}

static weft_err read_integer(const reader *rd, const json_t *o, const char *key, int64_t lo,
                             int64_t hi, int64_t *out)
{
    const json_t *value = json_object_get(o, key);
    if (!json_is_integer(value))
        return fail(rd, key, "must be an integer");
    if (json_integer_value(value) < lo || json_integer_value(value) > hi)
        return fail(rd, key, "is out of range");
    *out = json_integer_value(value);
    return WEFT_ERR_OK;
}

static weft_err read_count(const reader *rd, const json_t *o, const char *key, int64_t lo,
                           uint32_t *out)
{
    int64_t x = 0;
    WEFT_TRY(read_integer(rd, o, key, lo, UINT32_MAX - 1, &x));
    *out = (uint32_t)x;
    return WEFT_ERR_OK;
}

static weft_err read_number(const reader *rd, const json_t *o, const char *key, double *out)
{
    const json_t *value = json_object_get(o, key);
    if (!json_is_number(value))
        return fail(rd, key, "must be a number");
    double x = json_number_value(value);
    if (!isfinite(x) || x < 0)
        return fail(rd, key, "must be a finite number of at least 0");
    *out = x;
    return WEFT_ERR_OK;
}

/* Leaves *out as it is if there is no such key. */
static weft_err read_optional(const reader *rd, const json_t *o, const char *key, double *out)
{
    return json_object_get(o, key) ? read_number(rd, o, key, out) : WEFT_ERR_OK;
}

/* The names go into files of other systems. */
static weft_err read_label(const reader *rd, const json_t *o, const char *key, const char **out)
{
    const char *text;
    if (!json_object_get(o, key))
        return WEFT_ERR_OK;
    WEFT_TRY(read_text(rd, o, key, WEFT_LOCATION_NAME_MAX, &text));
    if (!weft_location__is_name(text))
        return fail(rd, key, "must be lower-case letters, digits, '-' and '.'");
    *out = text;
    return WEFT_ERR_OK;
}

static weft_err read_location(const reader *rd, const json_t *o, weft_location *out)
{
    static const char *const keys[] = {"node", "gpu", "?rack", "?zone", "?worker", "?port"};
    WEFT_TRY(check_keys(rd, o, keys, sizeof keys / sizeof keys[0]));
    WEFT_TRY(read_label(rd, o, "node", &out->node));
    WEFT_TRY(read_label(rd, o, "rack", &out->rack));
    WEFT_TRY(read_label(rd, o, "zone", &out->zone));
    WEFT_TRY(read_label(rd, o, "worker", &out->worker));
    WEFT_TRY(read_count(rd, o, "gpu", 0, &out->gpu));
    if (out->gpu > WEFT_LOCATION_GPU_MAX)
        return fail(rd, "gpu", "is out of range");
    if (!out->worker != !json_object_get(o, "port"))
        return fail(rd, "port", "goes with a worker");
    if (out->worker)
        WEFT_TRY(read_count(rd, o, "port", 1, &out->port));
    return out->port > WEFT_LOCATION_PORT_MAX ? fail(rd, "port", "is out of range") : WEFT_ERR_OK;
}

static weft_err read_placement(reader *rd, const json_t *o, weft_placement *out)
{
    static const char *const keys[] = {
        "model",     "device",         "type",   "slice",      "slice_id",       "mig_start",
        "share",     "batch",          "procs",  "rate_per_s", "capacity_per_s", "latency_us",
        "mem_bytes", "expected_error", "source", "?exec_us",   "?where",
    };
    weft_placement p = {.mig_start = -1};
    int64_t x;
    WEFT_TRY(check_keys(rd, o, keys, sizeof keys / sizeof keys[0]));
    WEFT_TRY(read_text(rd, o, "model", WEFT_FAMILY_NAME_MAX, &p.model));
    if (!weft_family_name_valid(p.model))
        return fail(rd, "model", "is not a name of a model or a family");
    WEFT_TRY(read_count(rd, o, "device", 0, &p.device));
    WEFT_TRY(read_text(rd, o, "type", WEFT_DEVICE_NAME_MAX - 1, &p.type));
    WEFT_TRY(read_text(rd, o, "slice", WEFT_SLICE_NAME_MAX - 1, &p.slice));
    WEFT_TRY(read_count(rd, o, "slice_id", 0, &p.slice_id));
    if (!json_is_null(json_object_get(o, "mig_start"))) {
        WEFT_TRY(read_integer(rd, o, "mig_start", 0, 31, &x));
        p.mig_start = (int32_t)x;
    }
    WEFT_TRY(read_number(rd, o, "share", &p.share));
    WEFT_TRY(read_count(rd, o, "batch", 1, &p.batch));
    WEFT_TRY(read_count(rd, o, "procs", 1, &p.procs));
    WEFT_TRY(read_number(rd, o, "rate_per_s", &p.rate_per_s));
    WEFT_TRY(read_number(rd, o, "capacity_per_s", &p.capacity_per_s));
    WEFT_TRY(read_number(rd, o, "latency_us", &p.latency_us));
    WEFT_TRY(read_optional(rd, o, "exec_us", &p.exec_us));
    WEFT_TRY(read_integer(rd, o, "mem_bytes", 0, INT64_MAX, &x));
    p.mem_bytes = (uint64_t)x;
    WEFT_TRY(read_number(rd, o, "expected_error", &p.expected_error));
    WEFT_TRY(read_text(rd, o, "source", WEFT_SOURCE_NAME_MAX - 1, &p.source));
    if (json_object_get(o, "where"))
        WEFT_TRY(read_location(rd, json_object_get(o, "where"), &p.where));
    *out = p;
    return WEFT_ERR_OK;
}

/* NONE if there is no such key. */
static weft_err read_domain(const reader *rd, const json_t *o, const char *key, weft_domain *out)
{
    const char *text;
    *out = WEFT_DOMAIN_NONE;
    if (!json_object_get(o, key))
        return WEFT_ERR_OK;
    WEFT_TRY(read_text(rd, o, key, 16, &text));
    return weft_domain_parse(text, out) ? WEFT_ERR_OK : fail(rd, key, "is not node, rack or zone");
}

static weft_err check_model(const reader *rd, const json_t *o)
{
    static const char *const keys[] = {"model", "slo_us", "rate_per_s", "?spread"};
    const char *name;
    weft_domain spread;
    double x;
    WEFT_TRY(check_keys(rd, o, keys, 4));
    WEFT_TRY(read_domain(rd, o, "spread", &spread));
    WEFT_TRY(read_text(rd, o, "model", 128, &name));
    if (!weft_set_name_valid(name))
        return fail(rd, "model", "is not a model name");
    WEFT_TRY(read_number(rd, o, "slo_us", &x));
    return read_number(rd, o, "rate_per_s", &x);
}

/* weft_plan does not contain the models of a plan file (weft_plan_demands_from_json reads them), so
 * only their form is checked. */
static weft_err check_models(reader *rd, const json_t *models)
{
    size_t i;
    json_t *o;
    if (!json_is_array(models))
        return fail(rd, "models", "must be an array");
    json_array_foreach((json_t *)models, i, o)
    {
        char item[48];
        snprintf(item, sizeof item, "models[%zu]", i);
        rd->item = item;
        weft_err err = check_model(rd, o);
        rd->item = NULL;
        if (err != WEFT_ERR_OK)
            return err;
    }
    return WEFT_ERR_OK;
}

static weft_err read_bool(const reader *rd, const json_t *o, const char *key, bool *out)
{
    const json_t *value = json_object_get(o, key);
    if (!json_is_boolean(value))
        return fail(rd, key, "must be true or false");
    *out = json_is_true(value);
    return WEFT_ERR_OK;
}

static weft_err read_interference(const reader *rd, const json_t *o, weft_interference *out)
{
    const char *text = json_string_value(o);
    size_t n = sizeof out->c / sizeof out->c[0];
    bool ok = text ? strcmp(text, "use") == 0 || strcmp(text, "mean") == 0
                   : json_is_array(o) && json_array_size(o) == n;
    for (size_t i = 0; ok && !text && i < n; i++) {
        out->c[i] = json_number_value(json_array_get(o, i));
        ok = json_is_number(json_array_get(o, i)) && fabs(out->c[i]) <= WEFT_INTERFERENCE_MAX;
    }
    out->over_time = ok && text;
    out->mean = ok && text && strcmp(text, "mean") == 0;
    return ok ? WEFT_ERR_OK : fail(rd, "interference", "must be use, mean or five numbers");
}

static weft_err read_rules(const reader *rd, const json_t *o, weft_rules *out)
{
    static const char *const keys[] = {
        "latency",     "whole_ms",      "procs_max", "isolated",  "oversubscribe",
        "mem_reserve", "?confidence",   "?arrivals", "?quantile", "?burst",
        "?host_us",    "?interference", "?survive"};
    const char *text;
    WEFT_TRY(check_keys(rd, o, keys, sizeof keys / sizeof keys[0]));
    WEFT_TRY(read_text(rd, o, "latency", 16, &text));
    if (!weft_latency_rule_parse(text, &out->latency))
        return fail(rd, "latency", "is not a latency rule");
    WEFT_TRY(read_bool(rd, o, "whole_ms", &out->whole_ms));
    WEFT_TRY(read_count(rd, o, "procs_max", 0, &out->procs_max));
    WEFT_TRY(read_bool(rd, o, "isolated", &out->isolated));
    WEFT_TRY(read_bool(rd, o, "oversubscribe", &out->oversubscribe));
    WEFT_TRY(read_number(rd, o, "mem_reserve", &out->mem_reserve));
    WEFT_TRY(read_optional(rd, o, "confidence", &out->confidence));
    WEFT_TRY(read_domain(rd, o, "survive", &out->survive));
    WEFT_TRY(read_optional(rd, o, "quantile", &out->quantile));
    WEFT_TRY(read_optional(rd, o, "burst", &out->burst));
    WEFT_TRY(read_optional(rd, o, "host_us", &out->host_us));
    if (json_object_get(o, "arrivals")) {
        WEFT_TRY(read_text(rd, o, "arrivals", 16, &text));
        if (!weft_arrival_kind_parse(text, &out->arrivals))
            return fail(rd, "arrivals", "is not a kind of arrivals");
    }
    if (json_object_get(o, "interference"))
        WEFT_TRY(read_interference(rd, json_object_get(o, "interference"), &out->interference));
    return out->mem_reserve < 1 ? WEFT_ERR_OK : fail(rd, "mem_reserve", "must be below 1");
}

static weft_err read_plan(reader *rd, const json_t *root, weft_plan *out)
{
    static const char *const keys[] = {"format",  "version",    "policy",        "goal",
                                       "rules",   "gpus",       "cost_per_hour", "goodput_per_s",
                                       "power_w", "proven",     "lower_bound",   "decision_ms",
                                       "models",  "placements", "?cost_bound",   "?gap"};
    weft_plan plan = {0};
    const char *format, *goal;
    int64_t version;
    /* Format and version come first, since the keys depend on the version. */
    if (!json_is_object(root))
        return fail(rd, "plan", "must be an object");
    WEFT_TRY(read_text(rd, root, "format", 64, &format));
    if (strcmp(format, "weft-plan") != 0)
        return fail(rd, "format", "must be weft-plan");
    WEFT_TRY(read_integer(rd, root, "version", 1, INT64_MAX, &version));
    if (version != PLAN_FORMAT_VERSION)
        return weft_diag_error(rd->diag, WEFT_ERR_INPUT, (weft_where){.file = rd->file},
                               "version: %lld, this program reads %d; make the plan anew",
                               (long long)version, PLAN_FORMAT_VERSION);
    WEFT_TRY(check_keys(rd, root, keys, sizeof keys / sizeof keys[0]));
    WEFT_TRY(read_text(rd, root, "policy", 64, &plan.policy));
    WEFT_TRY(read_text(rd, root, "goal", 16, &goal));
    if (!weft_goal_parse(goal, &plan.goal))
        return fail(rd, "goal", "is not a goal");
    rd->item = "rules";
    weft_err err = read_rules(rd, json_object_get(root, "rules"), &plan.rules);
    rd->item = NULL;
    if (err != WEFT_ERR_OK)
        return err;
    WEFT_TRY(read_count(rd, root, "gpus", 0, &plan.gpus));
    WEFT_TRY(read_number(rd, root, "cost_per_hour", &plan.cost_per_hour));
    WEFT_TRY(read_number(rd, root, "goodput_per_s", &plan.goodput_per_s));
    WEFT_TRY(read_number(rd, root, "power_w", &plan.power_w));
    WEFT_TRY(read_number(rd, root, "lower_bound", &plan.lower_bound));
    double gap; /* follows from the other fields */
    if (json_object_get(root, "cost_bound"))
        WEFT_TRY(read_number(rd, root, "cost_bound", &plan.cost_bound));
    if (json_object_get(root, "gap"))
        WEFT_TRY(read_number(rd, root, "gap", &gap));
    WEFT_TRY(read_bool(rd, root, "proven", &plan.proven));
    WEFT_TRY(read_number(rd, root, "decision_ms", &plan.decision_ms));
    WEFT_TRY(check_models(rd, json_object_get(root, "models")));
    const json_t *list = json_object_get(root, "placements");
    if (!json_is_array(list))
        return fail(rd, "placements", "must be an array");
    if (json_array_size(list) > WEFT_PLAN_PLACEMENTS_MAX)
        return fail(rd, "placements", "has more than 1048576 entries");
    plan.n = json_array_size(list);
    plan.at = weft_arena_array(rd->arena, plan.n, sizeof *plan.at);
    for (size_t i = 0; i < plan.n; i++) {
        char item[48];
        snprintf(item, sizeof item, "placements[%zu]", i);
        rd->item = item;
        err = read_placement(rd, json_array_get(list, i), &plan.at[i]);
        rd->item = NULL;
        if (err != WEFT_ERR_OK)
            return err;
    }
    *out = plan;
    return WEFT_ERR_OK;
}

static weft_err parse(const char *text, size_t len, const char *file, weft_diag *diag, json_t **out)
{
    json_error_t error;
    *out = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
    if (*out)
        return WEFT_ERR_OK;
    bool is_json = len > 0 && *text == '{';
    return weft_diag_error(
        diag, WEFT_ERR_INPUT, (weft_where){.file = file, .line = (uint32_t)error.line},
        "is no plan: invalid JSON: %s%s", error.text, is_json ? "" : weft_file_guess(text, len));
}

weft_err weft_plan_from_json(const char *text, size_t len, const char *file, weft_arena *arena,
                             weft_diag *diag, weft_plan *out)
{
    json_t *root;
    reader rd = {.file = file, .arena = arena, .diag = diag};
    if (len > PLAN_BYTES_MAX)
        return fail(&rd, "plan", "is larger than 256 MiB");
    WEFT_TRY(parse(text, len, file, diag, &root));
    weft_err err = read_plan(&rd, root, out);
    json_decref(root);
    return err;
}

/* -- Demands of a plan file ------------------------------------------------------------------- */

weft_err weft_plan_demands_from_json(const char *text, size_t len, const char *file,
                                     weft_arena *arena, weft_diag *diag, weft_demands *out)
{
    const weft_where where = {.file = file};
    json_t *root;
    WEFT_TRY(parse(text, len, file, diag, &root));
    const json_t *models = json_object_get(root, "models");
    size_t n = json_array_size(models);
    weft_demand *d = weft_arena_array(arena, n + 1, sizeof *d);
    weft_err err = json_is_array(models)
                       ? WEFT_ERR_OK
                       : weft_diag_error(diag, WEFT_ERR_INPUT, where, "models: must be an array");
    for (size_t i = 0; i < n && err == WEFT_ERR_OK; i++) {
        const json_t *o = json_array_get(models, i);
        const json_t *slo = json_object_get(o, "slo_us"), *rate = json_object_get(o, "rate_per_s");
        const char *name = json_string_value(json_object_get(o, "model"));
        if (!name || !weft_set_name_valid(name) || !json_is_number(slo) || !json_is_number(rate))
            err = weft_diag_error(diag, WEFT_ERR_INPUT, where,
                                  "models[%zu]: needs model, slo_us and rate_per_s", i);
        else
            d[i] = (weft_demand){.model = weft_arena_strdup(arena, name),
                                 .slo_us = json_number_value(slo),
                                 .rate_per_s = json_number_value(rate)};
        const char *spread = json_string_value(json_object_get(o, "spread"));
        if (spread && !weft_domain_parse(spread, &d[i].spread))
            err = weft_diag_error(diag, WEFT_ERR_INPUT, where,
                                  "models[%zu]: spread is not node, rack or zone", i);
    }
    json_decref(root);
    WEFT_TRY(err);
    weft_demands demands = {d, n};
    WEFT_TRY(weft_demands__check(&demands, diag));
    *out = demands;
    return WEFT_ERR_OK;
}
