/* Messages and exit codes at the end of a verb. */
#include "tools/common/tools.h"

int weft_tool_report(const weft_diag *diag, weft_err err)
{
    static const char *const words[] = {
        [WEFT_SEV_ERROR] = "error", [WEFT_SEV_WARNING] = "warning", [WEFT_SEV_NOTE] = "note"};
    static const char *const colours[] = {[WEFT_SEV_ERROR] = "\033[1;31m",
                                          [WEFT_SEV_WARNING] = "\033[1;35m",
                                          [WEFT_SEV_NOTE] = "\033[1;36m"};
    weft_tool_progress(NULL);
    bool colour = weft_tool_has_color(stderr);
    size_t n = diag ? weft_diag_count(diag) : 0;
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        const weft_message *msg = weft_diag_at(diag, i);
        char text[2048];
        weft_diag_format(msg, text, sizeof text);
        fprintf(stderr, "%s%s:%s %s\n", colour ? colours[msg->severity] : "", words[msg->severity],
                colour ? "\033[0m" : "", text);
        any = any || msg->severity == WEFT_SEV_ERROR;
    }
    if (err != WEFT_ERR_OK && !any)
        fprintf(stderr, "error: %s\n", weft_err_text(err));
    if (err == WEFT_ERR_OK)
        return WEFT_EXIT_DONE;
    return err == WEFT_ERR_INFEASIBLE ? WEFT_EXIT_INFEASIBLE : WEFT_EXIT_FAILED;
}
