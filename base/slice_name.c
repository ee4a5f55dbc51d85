/* Names of slices; slice_name.h. */
#include "base/slice_name.h"

#include "base/num.h"

#include <math.h>
#include <string.h>

static bool parse_share(const char *text, weft_slice_name *out)
{
    if (!weft_parse_percent(text, &out->share) || !(out->share > 0 && out->share <= 1))
        return false;
    double percent = round(out->share * 100);
    if (fabs(percent - out->share * 100) <= 1e-9)
        out->percent = (uint32_t)percent;
    return true;
}

bool weft_slicename_parse(const char *name, weft_slice_name *out)
{
    weft_slice_name parts = {0};
    size_t len = strlen(name), profile = strcspn(name, "/");
    if (len >= WEFT_SLICE_NAME_MAX)
        return false;
    const char *share = profile < len ? name + profile + 1 : NULL;
    if (share && profile == 0)
        return false;
    if (!share && len > 0 && name[len - 1] == '%') {
        share = name;
        profile = 0;
    }
    memcpy(parts.profile, name, profile);
    if (share && !parse_share(share, &parts))
        return false;
    *out = parts;
    return true;
}

bool weft_slicename_cores(const char *name, uint32_t max, uint32_t *out)
{
    char text[WEFT_SLICE_NAME_MAX];
    int64_t cores;
    size_t len = strlen(name);
    if (len < 5 || len >= sizeof text || strcmp(name + len - 4, "core") != 0)
        return false;
    memcpy(text, name, len - 4);
    text[len - 4] = 0;
    if (!weft_parse_i64(text, &cores) || cores < 1 || cores > (int64_t)max)
        return false;
    *out = (uint32_t)cores;
    return true;
}
