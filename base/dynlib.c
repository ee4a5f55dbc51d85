/* dlopen and dlsym with messages. */
#include "base/dynlib.h"

#include "base/str.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

struct weft_dynlib {
    void *handle;
    char *name;
    const char *what;
};

static weft_err report_missing(const char *what, const char *const *name, size_t n, const char *why,
                               weft_diag *diag)
{
    weft_buf list = {0};
    for (size_t i = 0; i < n; i++)
        weft_buf_printf(&list, "%s%s", i ? ", " : "", name[i]);
    weft_err err = weft_diag_error(diag, WEFT_ERR_NODEV, (weft_where){0},
                                   "%s is not here: looked for %s", what, list.at ? list.at : "");
    if (why)
        weft_diag_note(diag, (weft_where){0}, "%s", why);
    weft_buf_finish(&list);
    return err;
}

/* A message that only says that the file does not exist adds nothing to the list of names tried. */
static bool tells_more(const char *why)
{
    return why && !strstr(why, "No such file");
}

weft_err weft_dynlib_open(const char *what, const char *const *name, size_t n, weft_diag *diag,
                          weft_dynlib **out)
{
    char *why = NULL;
    for (size_t i = 0; i < n; i++) {
        /* RTLD_NODELETE: threads and exit handlers of the library may still run after it is closed.
         */
        void *handle = dlopen(name[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (handle) {
            weft_dynlib *lib = calloc(1, sizeof *lib);
            char *copy = strdup(name[i]);
            free(why);
            if (!lib || !copy) {
                free(lib);
                free(copy);
                dlclose(handle);
                return WEFT_ERR_NOMEM;
            }
            *lib = (weft_dynlib){.handle = handle, .name = copy, .what = what};
            *out = lib;
            return WEFT_ERR_OK;
        }
        const char *said = dlerror();
        if (tells_more(said)) {
            free(why);
            why = strdup(said);
        }
    }
    weft_err err = report_missing(what, name, n, why, diag);
    free(why);
    return err;
}

void weft_dynlib_close(weft_dynlib *lib)
{
    if (!lib)
        return;
    dlclose(lib->handle);
    free(lib->name);
    free(lib);
}

const char *weft_dynlib_name(const weft_dynlib *lib)
{
    return lib->name;
}

void *weft_dynlib_find(const weft_dynlib *lib, const char *symbol)
{
    return dlsym(lib->handle, symbol);
}

weft_err weft_dynlib_resolve(const weft_dynlib *lib, const weft_dynlib_symbol *symbol, size_t n,
                             void *table, weft_diag *diag)
{
    weft_buf missing = {0};
    for (size_t i = 0; i < n; i++) {
        void *at = weft_dynlib_find(lib, symbol[i].name);
        /* POSIX: pointers to functions and to data have the same size. */
        memcpy((char *)table + symbol[i].offset, &at, sizeof at);
        if (!at && symbol[i].need)
            weft_buf_printf(&missing, "%s%s", missing.len ? ", " : "", symbol[i].name);
    }
    weft_err err = WEFT_ERR_OK;
    if (missing.len || missing.failed)
        err = weft_diag_error(diag, WEFT_ERR_NODEV, (weft_where){.file = lib->name},
                              "%s is too old or not what it seems: it lacks %s", lib->what,
                              missing.at ? missing.at : "");
    weft_buf_finish(&missing);
    return err;
}
