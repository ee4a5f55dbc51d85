/* Key files: any bytes are keys or are refused with a text. Checked: names and rights are inside
 * their bounds, and written out they read as the same keys. */
#include "base/str.h"
#include "runtime/server/access_int.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool parse(const void *data, size_t size, weft_diag *diag, weft_key_file *out)
{
    char *text = malloc(size + 1);
    if (!text)
        abort();
    memcpy(text, data, size);
    text[size] = '\0';
    return weft_key_file__parse(text, size, "keys", diag, out) == WEFT_ERR_OK;
}

static void write_key(weft_buf *out, const weft_key *key)
{
    static const char *const groups[] = {
#define GROUP(name, text) text,
#include "runtime/server/api_groups.def"
#undef GROUP
    };
    weft_buf_printf(out, "%s ", key->name);
    for (int i = 0; i < WEFT_KEY_BYTES && key->kind == WEFT_KEY_SECRET; i++)
        weft_buf_printf(out, "%02x", key->sha256[i]);
    if (key->kind != WEFT_KEY_SECRET)
        weft_buf_puts(out, key->kind == WEFT_KEY_NONE ? "none" : "certificate");
    weft_buf_printf(out, " %s", key->models);
    for (int i = 0, n = 0; i < WEFT_API_GROUPS; i++)
        if (key->groups & 1u << i)
            weft_buf_printf(out, "%s%s", n++ ? "," : " ", groups[i]);
    weft_buf_putc(out, ' ');
    if (key->rate_per_s > 0)
        weft_buf_put_f64(out, key->rate_per_s);
    weft_buf_putc(out, '\n');
}

static void check_same(const weft_key_file *a, const weft_key_file *b)
{
    if (a->n != b->n)
        abort();
    for (uint32_t i = 0; i < a->n; i++) {
        const weft_key *x = &a->key[i], *y = &b->key[i];
        if (strcmp(x->name, y->name) != 0 || strcmp(x->models, y->models) != 0 ||
            x->kind != y->kind || x->groups != y->groups || x->rate_per_s != y->rate_per_s ||
            memcmp(x->sha256, y->sha256, sizeof x->sha256) != 0)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_diag *diag = weft_diag_create();
    weft_key_file file, again;
    weft_buf text = {0};
    if (!diag)
        return 0;
    if (!parse(data, size, diag, &file)) {
        if (weft_diag_count(diag) == 0)
            abort();
        weft_diag_destroy(diag);
        return 0;
    }
    if (file.n == 0 || file.n > WEFT_KEYS_MAX)
        abort();
    for (uint32_t i = 0; i < file.n; i++) {
        const weft_key *key = &file.key[i];
        if (!weft_key__is_name(key->name, strlen(key->name)) || key->groups == 0 ||
            key->groups >> WEFT_API_GROUPS || key->rate_per_s < 0)
            abort();
        (void)weft_key__names_model(key->models, "digits");
        write_key(&text, key);
    }
    if (!parse(text.at, text.len, diag, &again))
        abort();
    check_same(&file, &again);
    weft_key_file__finish(&file);
    weft_key_file__finish(&again);
    weft_buf_finish(&text);
    weft_diag_destroy(diag);
    return 0;
}
