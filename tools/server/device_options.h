/* Options of the verbs that open a bundle: which driver, which GPU, which part of it. */
#ifndef WEFT_TOOLS_DEVICE_OPTIONS_H
#define WEFT_TOOLS_DEVICE_OPTIONS_H

#include "runtime/runtime.h"
#include "tools/common/tools.h"

enum { WEFT_DEVICE_OPT_DRIVER = 200, WEFT_DEVICE_OPT_GPU, WEFT_DEVICE_OPT_SMS };

/* Rows for getopt_long. */
#define WEFT_DEVICE_OPTIONS                                      \
    {"driver", required_argument, NULL, WEFT_DEVICE_OPT_DRIVER}, \
        {"gpu", required_argument, NULL, WEFT_DEVICE_OPT_GPU},   \
    {                                                            \
        "sms", required_argument, NULL, WEFT_DEVICE_OPT_SMS      \
    }

#define WEFT_DEVICE_USAGE                                                              \
    "      --driver NAME        not that of the bundle's target (weft list drivers)\n" \
    "      --gpu N              this one of the GPUs that CUDA shows (0)\n"            \
    "      --sms N[@FIRST]      N of its multiprocessors only, by a green context\n"

static inline bool weft_device_is_option(int opt)
{
    return opt >= WEFT_DEVICE_OPT_DRIVER && opt <= WEFT_DEVICE_OPT_SMS;
}
/* Returns 0, or an exit code after a usage message. `arg` is kept. */
int weft_tool_take_device_option(const weft_verb *verb, int opt, const char *arg,
                                 weft_engine_options *out);

#endif
