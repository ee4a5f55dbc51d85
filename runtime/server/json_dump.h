/* Documents of jansson as text, where memory may run out. */
#ifndef WEFT_RUNTIME_SERVER_JSON_DUMP_H
#define WEFT_RUNTIME_SERVER_JSON_DUMP_H

#include <jansson.h>

/* Called once, before the first document: lets weft_json__dump know of parts that are missing. */
void weft_json__watch_memory(void);

/* The text of a document made on this thread; NULL: there was no memory for any part of it. Takes
 * root. */
char *weft_json__dump(json_t *root, size_t flags);

#endif
