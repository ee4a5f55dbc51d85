/* Options of the verbs that open a bundle: the driver, the GPU, and the part of the GPU. */
#ifndef WEFT_TOOLS_DEVICE_OPTIONS_H
#define WEFT_TOOLS_DEVICE_OPTIONS_H

#include "runtime/runtime.h"
#include "tools/common/tools.h"

/* Values of the options (rows in options.def); `at` is a weft_engine_options. */
int weft_tool_take_driver(void *at, const weft_verb *verb, char *arg);
int weft_tool_take_sms(void *at, const weft_verb *verb, char *arg);

#endif
