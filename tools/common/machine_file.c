/* Which machine this is, and the file of its calibration; see machine_file.h. */
#include "tools/common/machine_file.h"

#include "base/hash.h"
#include "tools/common/user_path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 512 };

/* Lines of /proc/cpuinfo that say which CPU it is: of x86, then of Arm. */
static const char *const identity[] = {
    "vendor_id",       "cpu family", "model\t",     "model name",       "stepping",    "cache size",
    "CPU implementer", "CPU part",   "CPU variant", "CPU architecture", "CPU revision"};

static bool is_identity(const char *line)
{
    for (size_t i = 0; i < sizeof identity / sizeof identity[0]; i++)
        if (strncmp(line, identity[i], strlen(identity[i])) == 0)
            return true;
    return false;
}

/* Adds the first CPU's lines to the hash, and takes its name. */
static uint64_t hash_cpu(char *name, size_t name_bytes)
{
    char line[LINE_MAX_BYTES];
    uint64_t hash = WEFT_CALIBRATION_VERSION;
    FILE *f = fopen("/proc/cpuinfo", "r");
    snprintf(name, name_bytes, "unknown CPU");
    while (f && fgets(line, sizeof line, f) && line[0] != '\n') {
        const char *colon = strchr(line, ':');
        line[strcspn(line, "\n")] = 0;
        if (!colon || !is_identity(line))
            continue;
        hash = weft_hash64(line, strlen(line), hash);
        if (strncmp(line, "model name", strlen("model name")) == 0 && colon[1] == ' ')
            snprintf(name, name_bytes, "%s", colon + 2);
    }
    if (f)
        fclose(f);
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    return weft_hash64(&cpus, sizeof cpus, hash);
}

weft_err weft_tool_machine_find(weft_diag *diag, weft_tool_machine *out)
{
    weft_tool_machine m;
    char folder[WEFT_TOOL_MACHINE_PATH_MAX];
    uint64_t hash = hash_cpu(m.name, sizeof m.name);
    if (!weft_tool_user_path("XDG_STATE_HOME", "/.local/state", folder, sizeof folder))
        return weft_diag_error(diag, WEFT_ERR_UNSUP, (weft_where){0},
                               "neither XDG_STATE_HOME nor HOME is set: there is no place for the "
                               "calibration of this machine");
    int n = snprintf(m.path, sizeof m.path, "%s/calibration-%016llx.csv", folder,
                     (unsigned long long)hash);
    if (n < 0 || (size_t)n >= sizeof m.path)
        return weft_diag_error(diag, WEFT_ERR_UNSUP, (weft_where){0},
                               "the path of the calibration of this machine is too long");
    *out = m;
    return WEFT_ERR_OK;
}
