/* Short names of the YAML writer's functions, for the files that write manifests of Kubernetes, and
 * what these share. */
#ifndef WEFT_SCHEDULER_EXPORT_YAML_WORDS_H
#define WEFT_SCHEDULER_EXPORT_YAML_WORDS_H

#include "scheduler/export/export_int.h"

#define put        weft_export_yaml__put
#define put_number weft_export_yaml__put_number
#define put_bool   weft_export_yaml__put_bool
#define open_map   weft_export_yaml__open_map
#define open_seq   weft_export_yaml__open_seq
#define end_map    weft_export_yaml__end_map
#define end_seq    weft_export_yaml__end_seq

/* The label of a model's pods. */
const char *weft_export__model_key(const export_ctx *ctx, const char *model);

/* Which nodes the pods of a worker may be on (export_scheduling.c). */
void weft_export__write_scheduling(weft_export_yaml *y, const export_ctx *ctx,
                                   const export_worker *w);

#endif
