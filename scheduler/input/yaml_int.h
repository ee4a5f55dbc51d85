/* Reader of YAML files with limits, used for set files and fleet files. */
#ifndef WEFT_SCHEDULER_INPUT_YAML_INT_H
#define WEFT_SCHEDULER_INPUT_YAML_INT_H

#include "scheduler/scheduler.h"

#include <cyaml/cyaml.h>
#include <yaml.h>

enum {
    WEFT_YAML_BYTES_MAX = 1 << 20,
    WEFT_YAML_NODES_MAX = 200000,
    WEFT_YAML_DEPTH_MAX = 12,
    WEFT_YAML_BRACKETS_MAX = 64,
    WEFT_YAML_KEYS_MAX = 64, /* in one mapping */
};

/* One document within the limits above, without aliases, tags, duplicate keys or a second document.
 * weft_yaml__load reads what a fixed schema describes; the nodes tell line numbers and give access
 * to mappings whose keys are free. */
typedef struct weft_yaml {
    const char *file;
    char *text;
    size_t len;
    yaml_document_t doc;
} weft_yaml;

WEFT_MUST_USE weft_err weft_yaml__open(const char *path, weft_diag *diag, weft_yaml *out);
void weft_yaml__close(weft_yaml *yaml);
/* Loads the document by a libcyaml schema; the result lives in `arena`. INPUT, with the line: an
 * unknown or missing key, or a value of the wrong kind. */
WEFT_MUST_USE weft_err weft_yaml__load(const weft_yaml *yaml, const cyaml_schema_value_t *schema,
                                       weft_arena *arena, weft_diag *diag, void **out);
/* The value of `key` in a mapping and the i-th item of a sequence; NULL: absent, or the node is of
 * another kind. */
yaml_node_t *weft_yaml__get(weft_yaml *yaml, const yaml_node_t *map, const char *key);
yaml_node_t *weft_yaml__at(weft_yaml *yaml, const yaml_node_t *seq, size_t i);
uint32_t weft_yaml__line(const yaml_node_t *node); /* from 1; 0 for NULL */

#endif
