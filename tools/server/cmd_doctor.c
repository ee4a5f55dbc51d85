/* weft doctor: what this machine is ready for, what is missing, and how to mend it. */
#include "base/nearest.h"
#include "tools/common/tools.h"
#include "tools/doctor/doctor.h"

#include <jansson.h>
#include <string.h>
#include <unistd.h>

typedef struct options {
    bool json;
    const char *root;
    uint32_t need; /* WEFT_DOCTOR_* uses */
} options;

static const char *use_at(size_t i, const void *user)
{
    (void)user;
    return weft_doctor_use_name((uint32_t)i);
}

static int take_need(void *at, const weft_verb *verb, char *arg)
{
    for (char *save, *name = strtok_r(arg, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
        uint32_t i = 0;
        while (weft_doctor_use_name(i) && strcmp(weft_doctor_use_name(i), name) != 0)
            i++;
        if (!weft_doctor_use_name(i))
            return weft_tool_usage(verb, "--need knows no use '%s'%s", name,
                                   weft_tool_hint(weft_nearest(name, use_at, NULL)));
        *(uint32_t *)at |= 1u << i;
    }
    return 0;
}

#define OPTIONS_OF_doctor
#define OPTIONS options
#include "tools/common/option_rows.h"

static const char *const states[] = {"ok", "note", "missing"};

static void print_text(const weft_doctor *d)
{
    for (uint32_t i = 0; i < d->check.len; i++) {
        const weft_doctor_check *c = &d->check.at[i];
        printf("%-8s %-15s %s\n", states[c->state], c->item, c->text);
        if (c->remedy)
            printf("%-8s %-15s -> %s\n", "", "", c->remedy);
    }
    putchar('\n');
    for (uint32_t i = 0; weft_doctor_use_name(i); i++)
        printf("%-13s %-8s %s\n", weft_doctor_ready(d) >> i & 1 ? "ready for" : "not ready for",
               weft_doctor_use_name(i), weft_doctor_use_text(i));
}

static weft_err print_json(const weft_doctor *d)
{
    json_t *checks = json_array(), *ready = json_object();
    for (uint32_t i = 0; i < d->check.len; i++) {
        const weft_doctor_check *c = &d->check.at[i];
        json_t *blocks = json_array();
        for (uint32_t k = 0; weft_doctor_use_name(k); k++)
            if (c->blocks >> k & 1)
                json_array_append_new(blocks, json_string(weft_doctor_use_name(k)));
        json_array_append_new(checks, json_pack("{s:s, s:s, s:s, s:s?, s:o}", "item", c->item,
                                                "state", states[c->state], "text", c->text,
                                                "remedy", c->remedy, "blocks", blocks));
    }
    for (uint32_t i = 0; weft_doctor_use_name(i); i++)
        json_object_set_new(ready, weft_doctor_use_name(i),
                            json_boolean(weft_doctor_ready(d) >> i & 1));
    json_t *out = json_pack("{s:o, s:o}", "checks", checks, "ready", ready);
    int failed = out ? json_dumpf(out, stdout, JSON_INDENT(2)) : -1;
    json_decref(out);
    putchar('\n');
    return failed ? WEFT_ERR_NOMEM : WEFT_ERR_OK;
}

/* What is asked for and not ready is an error that names what blocks it. */
static weft_err check_needs(const weft_doctor *d, uint32_t need, weft_diag *diag)
{
    weft_err err = WEFT_ERR_OK;
    for (uint32_t i = 0; weft_doctor_use_name(i); i++)
        for (uint32_t k = 0; need >> i & 1 && k < d->check.len; k++)
            if (d->check.at[k].blocks >> i & 1) {
                err = weft_diag_error(diag, WEFT_ERR_NODEV, (weft_where){0},
                                      "not ready for %s: %s: %s", weft_doctor_use_name(i),
                                      d->check.at[k].item, d->check.at[k].text);
                break;
            }
    return err;
}

static int run_doctor(int argc, char **argv)
{
    options o = {.root = ""};
    int code = weft_options_parse(&weft_verb_doctor, argc, argv, &o);
    if (code >= 0)
        return code;
    if (optind < argc)
        return weft_tool_usage(&weft_verb_doctor, "takes no argument '%s'", argv[optind]);
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    weft_doctor d = {.arena = arena, .root = o.root};
    weft_err err = diag && arena ? weft_doctor_check_cpu(&d) : WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK)
        err = weft_doctor_check_gpus(&d, diag);
    if (err == WEFT_ERR_OK && o.json)
        err = print_json(&d);
    else if (err == WEFT_ERR_OK)
        print_text(&d);
    if (err == WEFT_ERR_OK)
        err = check_needs(&d, o.need, diag);
    code = weft_tool_report(diag, err);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return code;
}

const weft_verb weft_verb_doctor = {.name = "doctor", .row = rows, .run = run_doctor};
