/* weft list: prints tables of this build. */
#include "base/nearest.h"
#include "codegen/codegen.h"
#include "frontend/frontend.h"
#include "passes/passes.h"
#include "runtime/runtime.h"
#include "scheduler/scheduler.h"
#include "tools/compiler/list_slices.h"
#include "tools/common/tools.h"

#include <jansson.h>
#include <string.h>

/* -- Rows as JSON: NULL behind the last one -------------------------------------------------- */

static json_t *json_op(size_t i)
{
    if (i + 1 >= WEFT_OP_COUNT)
        return NULL;
    const weft_op *op = weft_op_get((weft_op_id)(i + 1));
    json_t *attrs = json_array();
    for (int a = 0; a < WEFT_OP_ATTR_MAX && op->attrs[a].key; a++)
        json_array_append_new(attrs,
                              json_string(weft_attr_key_name((weft_attr_key)op->attrs[a].key)));
    return json_pack("{s:s, s:o}", "name", op->name, "attrs", attrs);
}

static json_t *json_brief(const char *name, const char *brief)
{
    return json_pack("{s:s, s:s}", "name", name, "brief", brief);
}

static json_t *json_pass(size_t i)
{
    const weft_pass *pass = weft_pass_at(i);
    return pass ? json_brief(weft_pass_name(pass), weft_pass_brief(pass)) : NULL;
}

static json_t *json_gpu(size_t i)
{
    const weft_device_type *type = weft_device_type_at(i);
    if (!type)
        return NULL;
    return json_pack("{s:s, s:o, s:o, s:b}", "name", type->name, "mem_bytes",
                     type->mem_bytes ? json_integer((json_int_t)type->mem_bytes) : json_null(),
                     "price_per_hour",
                     type->price_per_hour > 0 ? json_real(type->price_per_hour) : json_null(),
                     "mig", type->mig_slots > 0);
}

static json_t *json_price(size_t i)
{
    for (size_t k = 0;; k++) {
        const weft_device_type *type = weft_device_type_at(k);
        if (!type)
            return NULL;
        if (type->price_per_hour > 0 && i-- == 0)
            return json_pack("{s:s, s:f, s:s, s:s}", "device", type->name, "price_per_hour",
                             type->price_per_hour, "date", type->price_date, "source",
                             type->price_source);
    }
}

static const struct {
    uint32_t bit;
    const char *name;
} split_names[] = {{WEFT_SPLIT_WHOLE, "whole"},
                   {WEFT_SPLIT_MIG, "mig"},
                   {WEFT_SPLIT_MPS, "mps"},
                   {WEFT_SPLIT_CORES, "cores"},
                   {WEFT_SPLIT_TIME, "time"}};

static json_t *json_policy(size_t i)
{
    const weft_policy *policy = weft_policy_at(i);
    if (!policy)
        return NULL;
    json_t *splits = json_array();
    for (size_t k = 0; k < sizeof split_names / sizeof split_names[0]; k++)
        if (policy->splits & split_names[k].bit)
            json_array_append_new(splits, json_string(split_names[k].name));
    return json_pack("{s:s, s:s, s:o, s:s, s:s?}", "name", policy->name, "brief", policy->brief,
                     "splits", splits, "source", policy->cite, "alias", policy->alias);
}

static json_t *json_strategy(size_t i)
{
    const weft_merge_strategy *one = weft_merge_strategy_at(i);
    return one ? json_brief(weft_merge_strategy_name(one), weft_merge_strategy_brief(one)) : NULL;
}

static json_t *json_driver(size_t i)
{
    char library[48];
    const weft_driver *driver = weft_driver_at(i);
    if (!driver)
        return NULL;
    weft_driver_library(driver, library, sizeof library);
    return json_pack("{s:s, s:s, s:s?}", "name", weft_driver_name(driver), "brief",
                     weft_driver_brief(driver), "library", *library ? library : NULL);
}

/* -- Rows as text: from the same objects ----------------------------------------------------- */

static const char *text_of(const json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));
    return text ? text : "";
}

static void print_words(const json_t *words, const char *first)
{
    size_t i;
    json_t *word;
    json_array_foreach(words, i, word) printf("%s%s", i ? " " : first, json_string_value(word));
}

static void print_op(const json_t *row)
{
    printf("%-24s", text_of(row, "name"));
    print_words(json_object_get(row, "attrs"), "");
    putchar('\n');
}

static void print_brief(const json_t *row)
{
    printf("%-18s %s\n", text_of(row, "name"), text_of(row, "brief"));
}

/* Cents of a GPU; a core costs a few cents. */
static int decimals_of(double dollars)
{
    return dollars < 0.1 ? 4 : 2;
}

static void print_gpu(const json_t *row)
{
    char size[32] = "-", price[32] = "-"; /* unknown */
    const json_t *bytes = json_object_get(row, "mem_bytes");
    const json_t *dollars = json_object_get(row, "price_per_hour");
    if (json_is_integer(bytes))
        weft_tool_bytes((uint64_t)json_integer_value(bytes), size);
    if (json_is_real(dollars))
        snprintf(price, sizeof price, "$%.*f/h", decimals_of(json_real_value(dollars)),
                 json_real_value(dollars));
    printf("%-19s %10s  %9s  %s\n", text_of(row, "name"), size, price,
           json_is_true(json_object_get(row, "mig")) ? "MIG" : "");
}

/* A row of the table that --prices reads. */
static void print_price(const json_t *row)
{
    double dollars = json_real_value(json_object_get(row, "price_per_hour"));
    printf("%s,%.*f,%s,%s\n", text_of(row, "device"), decimals_of(dollars), dollars,
           text_of(row, "date"), text_of(row, "source"));
}

static void print_policy(const json_t *row)
{
    printf("%-18s %s; splits:", text_of(row, "name"), text_of(row, "brief"));
    print_words(json_object_get(row, "splits"), " ");
    printf("; %s%s%s\n", text_of(row, "source"), *text_of(row, "alias") ? "; alias " : "",
           text_of(row, "alias"));
}

static void print_driver(const json_t *row)
{
    printf("%-8s %s%s%s\n", text_of(row, "name"), text_of(row, "brief"),
           *text_of(row, "library") ? "; " : "", text_of(row, "library"));
}

static const struct table {
    const char *name;
    json_t *(*row)(size_t i);
    void (*print)(const json_t *row);
    const char *head; /* of the rows as text */
} tables[] = {{"ops", json_op, print_op, NULL},
              {"passes", json_pass, print_brief, NULL},
              {"gpus", json_gpu, print_gpu, NULL},
              {"prices", json_price, print_price, "device,price_per_hour,date,source"},
              {"policies", json_policy, print_policy, NULL},
              {"strategies", json_strategy, print_brief, NULL},
              {"drivers", json_driver, print_driver, NULL}};

static int list_table(const struct table *table, bool json)
{
    json_t *rows_of = json_array(), *row;
    if (!json && table->head)
        puts(table->head);
    for (size_t i = 0; (row = table->row(i)); i++) {
        if (!json)
            table->print(row);
        json_array_append_new(rows_of, row);
    }
    if (json) {
        json_dumpf(rows_of, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
        putchar('\n');
    }
    json_decref(rows_of);
    return WEFT_EXIT_DONE;
}

static const char *table_at(size_t i, const void *user)
{
    const size_t n = sizeof tables / sizeof tables[0];
    (void)user;
    return i < n ? tables[i].name : i == n ? "slices" : NULL;
}

typedef struct options {
    bool json;
} options;

#define OPTIONS_OF_list
#define OPTIONS options
#include "tools/common/option_rows.h"

static int run_list(int argc, char **argv)
{
    options o = {0};
    const char *name = NULL;
    int code = weft_options_parse_one(&weft_verb_list, argc, argv, &o, "table", &name);
    if (code >= 0)
        return code;
    if (strcmp(name, "slices") == 0)
        return weft_list_slices(o.json);
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        if (strcmp(tables[i].name, name) == 0)
            return list_table(&tables[i], o.json);
    return weft_tool_usage(&weft_verb_list, "no table '%s'%s", name,
                           weft_tool_hint(weft_nearest(name, table_at, NULL)));
}

const weft_verb weft_verb_list = {.name = "list", .row = rows, .run = run_list};
