/* The table `weft list slices`, which inspects this machine. */
#ifndef WEFT_TOOLS_LIST_SLICES_H
#define WEFT_TOOLS_LIST_SLICES_H

#include <stdbool.h>

/* Returns an exit code. */
int weft_list_slices(bool json);

#endif
