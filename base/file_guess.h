/* What a file of the wrong kind seems to be, for the error that refuses it. */
#ifndef WEFT_BASE_FILE_GUESS_H
#define WEFT_BASE_FILE_GUESS_H

#include <stdbool.h>
#include <stddef.h>

/* What a message ends with, by the first bytes of the file: ": this is an ONNX model; ...", or ""
 * where they tell nothing. `len`: bytes there are; a few dozen are enough. */
const char *weft_file_guess(const void *bytes, size_t len);
/* The same, but for what YAML holds: of files that should be YAML. */
const char *weft_file_guess_format(const void *bytes, size_t len);
/* Whether they begin with ir_version and a field after it, as all exporters of ONNX write. */
bool weft_file_is_onnx(const void *bytes, size_t len);

#endif
