/* Settings of log and traces that clients may ask for and change, under the names of Triton's
 * extensions, without a transport. Values are texts, as over HTTP, but for flags and counts. */
#ifndef WEFT_RUNTIME_SERVER_SETTINGS_H
#define WEFT_RUNTIME_SERVER_SETTINGS_H

#include "runtime/server/serve_int.h"

enum { WEFT_SETTINGS_MAX = 8, WEFT_SETTING_TEXT_MAX = 24 };

typedef enum weft_setting_kind {
    WEFT_SETTING_TEXT,
    WEFT_SETTING_FLAG,
    WEFT_SETTING_COUNT,
    WEFT_SETTING_NONE /* in a change: back to what the server was started with */
} weft_setting_kind;

typedef struct weft_setting {
    const char *name;
    weft_setting_kind kind;
    bool flag;
    bool many; /* a text that is a list of one */
    uint32_t count;
    char text[WEFT_SETTING_TEXT_MAX];
} weft_setting;

/* Fill `out`, which has room for WEFT_SETTINGS_MAX; the number of settings. */
size_t weft_settings__list_log(weft_setting *out);
size_t weft_settings__list_trace(const weft_spans *spans, weft_setting *out);
/* All settings are taken, or none: then `text` (WEFT_REQUEST_MESSAGE_MAX bytes) gets what is wrong,
 * and the answer is one that tells why. `model`: NULL or "" for all models. */
weft_answer weft_settings__change_log(const weft_setting *set, size_t n, char *text);
weft_answer weft_settings__change_trace(weft_spans *spans, const char *model,
                                        const weft_setting *set, size_t n, char *text);

#endif
