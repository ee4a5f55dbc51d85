/* weft sign: signs a bundle, or checks its signature. */
#include "runtime/server/server.h"
#include "tools/common/tools.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct options {
    const char *bundle, *key, *check, *output;
} options;

static weft_err sign(const options *o, weft_diag *diag)
{
    char text[WEFT_SIGNATURE_TEXT];
    char *own = o->output ? NULL : weft_signature_path(o->bundle);
    const char *path = o->output ? o->output : own;
    weft_err err = path ? weft_signature_make(o->bundle, o->key, diag, text) : WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK)
        err = weft_file_write(path, text, strlen(text), diag);
    free(own);
    return err;
}

static weft_err check(const options *o, weft_diag *diag)
{
    int fd;
    WEFT_TRY(weft_file_open(o->bundle, diag, &fd));
    weft_err err = weft_signature_require(fd, NULL, o->bundle, o->check, diag);
    close(fd);
    return err;
}

#define OPTIONS_OF_sign
#define OPTIONS options
#include "tools/common/option_rows.h"

static int run_sign(int argc, char **argv)
{
    options o = {0};
    int code = weft_options_parse_one(&weft_verb_sign, argc, argv, &o, "bundle", &o.bundle);
    if (code >= 0)
        return code;
    if (!o.key == !o.check)
        return weft_tool_usage(&weft_verb_sign, "either --key FILE or --check FILE is needed");
    if (o.check && o.output)
        return weft_tool_usage(&weft_verb_sign, "-o is for --key");
    weft_diag *diag = weft_diag_create();
    weft_tool_progress(o.key ? "signing %s" : "checking %s", o.bundle);
    weft_err err = !diag ? WEFT_ERR_NOMEM : o.key ? sign(&o, diag) : check(&o, diag);
    code = weft_tool_report(diag, err);
    if (o.check && err == WEFT_ERR_OK)
        printf("%s: signed by a key of %s\n", o.bundle, o.check);
    weft_diag_destroy(diag);
    return code;
}

const weft_verb weft_verb_sign = {.name = "sign", .row = rows, .run = run_sign};
