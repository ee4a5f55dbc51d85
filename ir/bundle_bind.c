/* Values of a program's symbols from the dims of its inputs. */
#include "ir/bundle.h"

static weft_err fail_input(const weft_bundle_program *p, uint32_t i, weft_diag *diag,
                           const char *text)
{
    return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = p->name}, "input %s %s",
                           p->input[i].name, text);
}

static weft_err bind_dim(const weft_bundle_program *p, uint32_t i, uint32_t d, int64_t size,
                         int64_t *value, weft_diag *diag)
{
    weft_dim dim = p->value[p->input[i].value - 1].type.dim[d];
    uint32_t symbol = weft_dim_is_const(dim) ? UINT32_MAX : weft_dim_as_symbol(p->dims, dim);

    if (symbol < p->n_symbol && value[symbol] < 0) {
        if (size < p->symbol[symbol].lo || size > p->symbol[symbol].hi)
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = p->name},
                                   "input %s: dimension %u (%s) is %lld, outside %lld to %lld",
                                   p->input[i].name, d, p->symbol[symbol].name, (long long)size,
                                   (long long)p->symbol[symbol].lo,
                                   (long long)p->symbol[symbol].hi);
        value[symbol] = size;
        return WEFT_ERR_OK;
    }
    int64_t want;
    if (!weft_dim_eval(p->dims, dim, value, p->n_symbol, &want))
        return WEFT_ERR_OK; /* depends on a symbol that a later input binds */
    if (want != size && symbol < p->n_symbol)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = p->name},
                               "input %s: dimension %u is %lld, but %s is %lld elsewhere; `dims:` "
                               "of a set file with a range for %s_%u makes it independent",
                               p->input[i].name, d, (long long)size, p->symbol[symbol].name,
                               (long long)want, p->input[i].name, d);
    if (want != size)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = p->name},
                               "input %s: dimension %u is %lld, must be %lld", p->input[i].name, d,
                               (long long)size, (long long)want);
    return WEFT_ERR_OK;
}

/* Names the node, both sizes, and the symbols that they depend on. */
static weft_err fail_require(const weft_bundle_program *p, const weft_bundle_require *r, int64_t a,
                             int64_t b, const int64_t *value, weft_diag *diag)
{
    weft_buf text = {0};
    for (uint32_t i = 0; i < p->n_symbol; i++)
        if (weft_dim_uses(p->dims, r->a, i) || weft_dim_uses(p->dims, r->b, i))
            weft_buf_printf(&text, "%s%s = %lld", text.len ? ", " : "", p->symbol[i].name,
                            (long long)value[i]);
    weft_err err =
        weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = p->name, .item = r->item},
                        "%s: %lld and %lld %s where %s", r->what, (long long)a, (long long)b,
                        r->kind == WEFT_REQUIRE_FITS     ? "do not broadcast"
                        : r->kind == WEFT_REQUIRE_DIFFER ? "are equal"
                                                         : "differ",
                        text.at ? text.at : "");
    weft_buf_finish(&text);
    return err;
}

static weft_err check_requires(const weft_bundle_program *p, const int64_t *value, weft_diag *diag)
{
    for (uint32_t i = 0; i < p->n_require; i++) {
        const weft_bundle_require *r = &p->require[i];
        int64_t guard, a, b;
        if (weft_dim_eval(p->dims, r->guard, value, p->n_symbol, &guard) && guard != 0 &&
            weft_dim_eval(p->dims, r->a, value, p->n_symbol, &a) &&
            weft_dim_eval(p->dims, r->b, value, p->n_symbol, &b) &&
            !weft_require_holds(r->kind, a, b))
            return fail_require(p, r, a, b, value, diag);
    }
    return WEFT_ERR_OK;
}

/* Symbols that have no value are -1, before and after. */
static weft_err bind_inputs(const weft_bundle_program *p, const weft_tensor *in, uint32_t n_in,
                            int64_t *out, weft_diag *diag)
{
    if (n_in != p->n_input)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = p->name},
                               "%u inputs are given, the model has %u", n_in, p->n_input);
    for (uint32_t i = 0; i < n_in; i++) {
        const weft_ttype *type = &p->value[p->input[i].value - 1].type;
        if (in[i].dtype != type->dtype)
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = p->name},
                                   "input %s is %s, must be %s", p->input[i].name,
                                   weft_dtype_name(in[i].dtype), weft_dtype_name(type->dtype));
        if (in[i].rank != type->rank)
            return fail_input(p, i, diag, "has another rank than the model's");
        if (weft_numel(in[i].dim, in[i].rank) < 0)
            return fail_input(p, i, diag, "has no valid dimensions");
    }
    /* Two rounds: the second one checks dims that depend on symbols of later inputs. */
    for (int round = 0; round < 2; round++)
        for (uint32_t i = 0; i < n_in; i++)
            for (int32_t d = 0; d < in[i].rank; d++)
                WEFT_TRY(bind_dim(p, i, (uint32_t)d, in[i].dim[d], out, diag));
    return WEFT_ERR_OK;
}

weft_err weft_bundle_bind(const weft_bundle_program *p, const weft_tensor *in, uint32_t n_in,
                          int64_t *out, weft_diag *diag)
{
    for (uint32_t i = 0; i < p->n_symbol; i++)
        out[i] = -1;
    WEFT_TRY(bind_inputs(p, in, n_in, out, diag));
    for (uint32_t i = 0; i < p->n_symbol; i++)
        if (out[i] < 0)
            out[i] = p->symbol[i].lo;
    return check_requires(p, out, diag);
}

weft_err weft_bundle_bind_body(const weft_bundle_program *p, const int64_t *known,
                               const weft_tensor *in, uint32_t n_in, int64_t *out, weft_diag *diag)
{
    for (uint32_t i = 0; i < p->n_symbol; i++) {
        out[i] = known[i];
        if (out[i] >= 0 && (out[i] < p->symbol[i].lo || out[i] > p->symbol[i].hi))
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = p->name},
                                   "%s is %lld, outside %lld to %lld", p->symbol[i].name,
                                   (long long)out[i], (long long)p->symbol[i].lo,
                                   (long long)p->symbol[i].hi);
    }
    WEFT_TRY(bind_inputs(p, in, n_in, out, diag));
    return check_requires(p, out, diag);
}
