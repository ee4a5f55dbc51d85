/* Finds and loads the calibration of this machine's CPU; see machine_calibration.h. */
#include "tools/profile/machine_calibration.h"

#include "tools/profile/calibration_file.h"

#include <unistd.h>

weft_err weft_tool_machine_calibration(weft_arena *arena, weft_diag *diag, weft_calibration *out,
                                       const char **out_path)
{
    weft_tool_machine m;
    if (weft_tool_machine_find(NULL, &m) != WEFT_ERR_OK || access(m.path, F_OK) != 0)
        return WEFT_ERR_OK;
    WEFT_TRY(weft_tool_calibration_load(m.path, diag, out));
    *out_path = weft_arena_strdup(arena, m.path);
    weft_diag_note(diag, (weft_where){.file = *out_path},
                   "is the calibration of this CPU, which estimates use (--calibration none: not)");
    return WEFT_ERR_OK;
}
