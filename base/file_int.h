/* Private to base/file*.c. */
#ifndef WEFT_BASE_FILE_INT_H
#define WEFT_BASE_FILE_INT_H

#include "base/file.h"

/* Adds a message with the text and name of an errno: NOMEM or IO. */
weft_err weft_file__report(weft_diag *diag, const char *path, const char *verb, int code);

#endif
