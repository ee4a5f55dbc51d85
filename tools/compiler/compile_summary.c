/* The summary of a compilation. */
#include "tools/compiler/compile_summary.h"

#include "tools/common/tools.h"

#include <inttypes.h>
#include <math.h>
#include <sys/stat.h>

static const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

static void print_weights(const weft_bundle *b)
{
    uint64_t stored = 0, used = 0;
    char size[32], saved[32];
    for (uint32_t w = 0; w < b->n_weight; w++) {
        stored += b->weight[w].bytes;
        used += b->weight[w].bytes * b->weight[w].n_users;
    }
    printf("weights: %" PRIu32 " of %s", b->n_weight, weft_tool_bytes(stored, size));
    if (used > stored)
        printf("; sharing saves %s (%.0f %%)", weft_tool_bytes(used - stored, saved),
               100 * (double)(used - stored) / (double)used);
    else if (b->n_program > 1)
        printf("; the models share none");
    printf("\n");
}

static void print_merges(const weft_bundle *b, const weft_merge_log *log, bool merges)
{
    uint32_t joined = 0;
    double least = INFINITY, most = 0;
    for (size_t i = 0; i < log->rows.len; i++) {
        const weft_merge_row *row = &log->rows.at[i];
        if (!row->joined)
            continue;
        joined++;
        least = fmin(least, fmax(row->gain_small, row->gain_large));
        most = fmax(most, fmax(row->gain_small, row->gain_large));
    }
    if (b->n_program < 2)
        printf("merged: nothing, there is one model\n");
    else if (!merges)
        printf("merged: nothing, as asked for\n");
    else if (joined == 0)
        printf("merged: nothing pays; --report FILE tells why\n");
    else
        printf("merged: %" PRIu32 " joint program%s, %" PRIu32
               " super-GEMM%s, predicted gains %.2f to %.2f; --report FILE has all\n",
               b->n_joint, plural(b->n_joint), joined, plural(joined), least, most);
}

static void print_kernels(const weft_bundle *b, const weft_codegen_cache *cache)
{
    if (b->n_kernel == 0)
        return;
    printf("kernels: %" PRIu32, b->n_kernel);
    if (cache && cache->n_found > 0)
        printf("; of %" PRIu32 " images, %" PRIu32 " were compiled before\n", cache->n_image,
               cache->n_found);
    else
        printf("\n");
}

void weft_tool_print_compiled(const char *path, const weft_bundle *b, const weft_merge_log *log,
                              bool merges, const weft_codegen_cache *cache)
{
    struct stat info;
    char size[32];
    bool known = stat(path, &info) == 0;
    printf("%s: %" PRIu32 " model%s for %s, %s\n", path, b->n_program, plural(b->n_program),
           b->target, known ? weft_tool_bytes((uint64_t)info.st_size, size) : "size unknown");
    print_weights(b);
    print_merges(b, log, merges);
    print_kernels(b, cache);
}
