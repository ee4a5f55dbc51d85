/* Names of models and apps. A file of its own, since programs that read no set file check names
 * too. */
#include "scheduler/scheduler.h"

#include <ctype.h>
#include <string.h>

bool weft_set_name_valid(const char *name)
{
    size_t len = name ? strlen(name) : 0;
    if (len == 0 || len > WEFT_SET_NAME_MAX || !isalnum((unsigned char)name[0]))
        return false;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)name[i];
        if (c >= 0x80 || !(isalnum(c) || c == '_' || c == '.' || c == '-'))
            return false;
    }
    return true;
}
