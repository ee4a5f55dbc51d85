/* Apps as requests see them, and whether their variants take the same requests and give answers of
 * the same form. */
#include "ir/bundle.h"

#include <string.h>

uint32_t weft_bundle_faces(const weft_bundle *bundle)
{
    return bundle->n_program + bundle->n_app;
}

const weft_bundle_program *weft_bundle_face(const weft_bundle *bundle, uint32_t i)
{
    return i < bundle->n_program ? &bundle->program[i] : &bundle->app[i - bundle->n_program].face;
}

/* What differs between two ports of the same place; NULL: nothing. */
static const char *find_difference(const weft_bundle_program *a, const weft_bundle_port *pa,
                                   const weft_bundle_program *b, const weft_bundle_port *pb)
{
    const weft_ttype *s = &a->value[pa->value - 1].type, *t = &b->value[pb->value - 1].type;
    if (strcmp(pa->name, pb->name) != 0)
        return "the name";
    if (s->dtype != t->dtype)
        return "the type";
    if (s->rank != t->rank)
        return "the rank";
    for (int i = 0; i < s->rank; i++)
        if (weft_dim_is_const(s->dim[i]) && weft_dim_is_const(t->dim[i]) && s->dim[i] != t->dim[i])
            return "a dimension";
    return NULL;
}

static weft_err compare_ports(const weft_bundle_app *app, const weft_bundle_program *a,
                              const weft_bundle_program *b, bool inputs, weft_diag *diag)
{
    uint32_t n = inputs ? a->n_input : a->n_output;
    const weft_bundle_port *pa = inputs ? a->input : a->output;
    const weft_bundle_port *pb = inputs ? b->input : b->output;
    const char *kind = inputs ? "input" : "output";
    if (n != (inputs ? b->n_input : b->n_output))
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = app->name},
                               "'%s' and '%s' differ in their number of %ss", a->name, b->name,
                               kind);
    for (uint32_t i = 0; i < n; i++) {
        const char *what = find_difference(a, &pa[i], b, &pb[i]);
        if (what)
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = app->name},
                                   "'%s' and '%s' differ in %s of %s %u ('%s' and '%s')", a->name,
                                   b->name, what, kind, i, pa[i].name, pb[i].name);
    }
    return WEFT_ERR_OK;
}

weft_err weft_bundle_check_app(const weft_bundle *bundle, const weft_bundle_app *app,
                               weft_diag *diag)
{
    const weft_bundle_program *first = &bundle->program[app->variant[0].program];
    for (uint32_t i = 1; i < app->n_variant; i++) {
        const weft_bundle_program *p = &bundle->program[app->variant[i].program];
        WEFT_TRY(compare_ports(app, first, p, true, diag));
        WEFT_TRY(compare_ports(app, first, p, false, diag));
    }
    return WEFT_ERR_OK;
}
