/* weft list: prints tables of this build. */
#include "base/nearest.h"
#include "codegen/codegen.h"
#include "frontend/frontend.h"
#include "passes/passes.h"
#include "runtime/runtime.h"
#include "scheduler/scheduler.h"
#include "tools/compiler/list_slices.h"
#include "tools/common/tools.h"

#include <string.h>

static void list_ops(void)
{
    for (int id = 1; id < WEFT_OP_COUNT; id++) {
        const weft_op *op = weft_op_get((weft_op_id)id);
        printf("%-24s", op->name);
        const char *sep = "";
        for (int a = 0; a < WEFT_OP_ATTR_MAX && op->attrs[a].key; a++) {
            printf("%s%s", sep, weft_attr_key_name((weft_attr_key)op->attrs[a].key));
            sep = " ";
        }
        putchar('\n');
    }
}

static void list_passes(void)
{
    const weft_pass *pass;
    for (size_t i = 0; (pass = weft_pass_at(i)); i++)
        printf("%-16s %s\n", weft_pass_name(pass), weft_pass_brief(pass));
}

static void list_gpus(void)
{
    const weft_device_type *type;
    for (size_t i = 0; (type = weft_device_type_at(i)); i++) {
        char size[32], price[32] = "-"; /* unknown */
        if (type->price_per_hour > 0)
            snprintf(price, sizeof price, "$%.2f/h", type->price_per_hour);
        printf("%-12s %10s  %9s  %s\n", type->name,
               type->mem_bytes ? weft_tool_bytes(type->mem_bytes, size) : "-", price,
               type->mig_slots ? "MIG" : "");
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

static void list_policies(void)
{
    const weft_policy *policy;
    for (size_t i = 0; (policy = weft_policy_at(i)); i++) {
        printf("%-18s %s; splits:", policy->name, policy->brief);
        for (size_t k = 0; k < sizeof split_names / sizeof split_names[0]; k++)
            if (policy->splits & split_names[k].bit)
                printf(" %s", split_names[k].name);
        printf("; %s", policy->cite);
        if (policy->alias)
            printf("; alias %s", policy->alias);
        putchar('\n');
    }
}

static void list_strategies(void)
{
    const weft_merge_strategy *one;
    for (size_t i = 0; (one = weft_merge_strategy_at(i)); i++)
        printf("%-18s %s\n", weft_merge_strategy_name(one), weft_merge_strategy_brief(one));
}

static void list_drivers(void)
{
    const weft_driver *driver;
    char library[48];
    for (size_t i = 0; (driver = weft_driver_at(i)); i++) {
        weft_driver_library(driver, library, sizeof library);
        printf("%-8s %s%s%s\n", weft_driver_name(driver), weft_driver_brief(driver),
               *library ? "; " : "", library);
    }
}

static const struct {
    const char *name;
    void (*print)(void);
} tables[] = {
    {"ops", list_ops},           {"passes", list_passes},         {"gpus", list_gpus},
    {"policies", list_policies}, {"strategies", list_strategies}, {"drivers", list_drivers}};

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
        if (strcmp(tables[i].name, name) == 0) {
            if (o.json)
                return weft_tool_usage(&weft_verb_list, "'%s' is written as text only", name);
            tables[i].print();
            return WEFT_EXIT_DONE;
        }
    return weft_tool_usage(&weft_verb_list, "no table '%s'%s", name,
                           weft_tool_hint(weft_nearest(name, table_at, NULL)));
}

const weft_verb weft_verb_list = {.name = "list", .row = rows, .run = run_list};
