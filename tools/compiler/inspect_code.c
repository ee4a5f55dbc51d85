/* The part of `weft inspect` that shows device code for GPUs. */
#include "tools/compiler/inspect_code.h"

#include "tools/common/tools.h"

#include <stdlib.h>

static json_t *list_images(const weft_bundle *b)
{
    json_t *images = json_array();
    for (uint32_t i = 0; i < b->n_image; i++) {
        json_t *o = json_object();
        char checksum[24];
        snprintf(checksum, sizeof checksum, "%016llx", (unsigned long long)b->image[i].checksum);
        json_object_set_new(o, "module", json_integer(b->image[i].module));
        json_object_set_new(o, "arch", json_string(b->image[i].arch));
        json_object_set_new(o, "bytes", json_integer((json_int_t)b->image[i].bytes));
        json_object_set_new(o, "checksum", json_string(checksum));
        json_array_append_new(images, o);
    }
    return images;
}

/* Counts the commands that launch each kernel. */
static json_int_t *count_uses(const weft_bundle *b)
{
    json_int_t *uses = calloc((size_t)b->n_kernel + 1, sizeof *uses);
    for (uint32_t i = 0; uses && i < b->n_program + b->n_joint; i++)
        for (uint32_t l = 0; l < b->program[i].n_launch; l++)
            for (uint32_t s = 0; s < b->program[i].launch[l].n_command; s++) {
                const weft_bundle_command *command = &b->program[i].launch[l].command[s];
                if (weft_command_is_kernel(command->kind))
                    uses[command->kernel]++;
            }
    return uses;
}

static json_t *list_kernels(const weft_bundle *b)
{
    json_t *kernels = json_array();
    json_int_t *uses = count_uses(b);
    for (uint32_t i = 0; i < b->n_kernel; i++) {
        const weft_bundle_kernel *k = &b->kernel[i];
        json_t *o = json_object(), *on = json_array();
        for (uint32_t a = 0; a < b->n_arch; a++) {
            json_t *r = json_object();
            json_object_set_new(r, "arch", json_string(b->arch[a]));
            json_object_set_new(r, "registers", json_integer(k->resource[a].registers));
            json_object_set_new(r, "shared_bytes", json_integer(k->resource[a].shared_bytes));
            json_object_set_new(r, "local_bytes", json_integer(k->resource[a].local_bytes));
            json_array_append_new(on, r);
        }
        json_object_set_new(o, "name", json_string(k->name));
        json_object_set_new(o, "module", json_integer(k->module));
        json_object_set_new(o, "threads", json_integer(k->threads));
        json_object_set_new(o, "dynamic_shared_bytes", json_integer(k->shared_bytes));
        json_object_set_new(o, "uses", json_integer(uses ? uses[i] : 0));
        json_object_set_new(o, "resources", on);
        json_array_append_new(kernels, o);
    }
    free(uses);
    return kernels;
}

static json_t *count_commands(const weft_bundle *b)
{
    static const char *const name[WEFT_COMMAND_KINDS] = {"kernel", "gemm", "copy",  "fill",
                                                         "finish", "conv", "after", "instead"};
    json_int_t count[WEFT_COMMAND_KINDS] = {0};
    for (uint32_t i = 0; i < b->n_program + b->n_joint; i++)
        for (uint32_t l = 0; l < b->program[i].n_launch; l++)
            for (uint32_t s = 0; s < b->program[i].launch[l].n_command; s++)
                count[b->program[i].launch[l].command[s].kind]++;
    json_t *commands = json_object();
    for (uint32_t i = 0; i < WEFT_COMMAND_KINDS; i++)
        json_object_set_new(commands, name[i], json_integer(count[i]));
    return commands;
}

static json_t *list_tunings(const weft_bundle *b)
{
    json_t *tuned = json_array();
    for (uint32_t i = 0; i < b->n_tuning; i++) {
        const weft_bundle_tuning *t = &b->tuning[i];
        json_t *o = json_object();
        json_object_set_new(o, "device", json_string(t->device));
        json_object_set_new(o, "sms", json_integer(t->sms));
        json_object_set_new(o, "cublaslt", json_integer((json_int_t)t->version));
        json_object_set_new(o, "gemms", json_integer(t->n_algo));
        json_array_append_new(tuned, o);
    }
    return tuned;
}

static json_t *list_conv_plans(const weft_bundle *b)
{
    json_t *planned = json_array();
    for (uint32_t i = 0; i < b->n_conv_plans; i++) {
        const weft_bundle_conv_plans *p = &b->conv_plans[i];
        json_array_append_new(
            planned, json_pack("{s:s, s:s, s:I, s:I, s:I}", "arch", b->arch[p->arch], "device",
                               p->device, "cudnn", (json_int_t)p->version, "convolutions",
                               (json_int_t)p->n_plan, "without", (json_int_t)p->n_none));
    }
    return planned;
}

json_t *weft_tool_code_json(const weft_bundle *b)
{
    if (b->n_arch == 0)
        return json_null();
    json_t *code = json_object(), *arch = json_array();
    for (uint32_t i = 0; i < b->n_arch; i++)
        json_array_append_new(arch, json_string(b->arch[i]));
    json_object_set_new(code, "arch", arch);
    json_object_set_new(code, "commands", count_commands(b));
    json_object_set_new(code, "images", list_images(b));
    json_object_set_new(code, "kernels", list_kernels(b));
    json_object_set_new(code, "tuned", list_tunings(b));
    json_object_set_new(code, "planned", list_conv_plans(b));
    return code;
}

static long long get(const json_t *o, const char *key)
{
    return (long long)json_integer_value(json_object_get(o, key));
}

void weft_tool_code_print(const json_t *code)
{
    size_t i, k;
    const json_t *o, *r, *commands = json_object_get(code, "commands");
    json_int_t bytes = 0;
    char size[32];
    if (json_is_null(code))
        return;
    json_array_foreach(json_object_get(code, "images"), i, o) bytes += get(o, "bytes");
    printf("  code     %zu kernels, %zu images of %s; commands: %lld kernels, %lld GEMMs, %lld "
           "convolutions, %lld copies, %lld fills\n",
           json_array_size(json_object_get(code, "kernels")),
           json_array_size(json_object_get(code, "images")), weft_tool_bytes((uint64_t)bytes, size),
           get(commands, "kernel"), get(commands, "gemm"), get(commands, "conv"),
           get(commands, "copy"), get(commands, "fill"));
    json_array_foreach(json_object_get(code, "kernels"), i, o)
    {
        printf("  kernel   %s x%lld: %lld threads", json_string_value(json_object_get(o, "name")),
               get(o, "uses"), get(o, "threads"));
        if (get(o, "dynamic_shared_bytes"))
            printf(", %lld bytes of dynamic shared memory", get(o, "dynamic_shared_bytes"));
        json_array_foreach(json_object_get(o, "resources"), k, r)
        {
            printf("; %s %lld registers", json_string_value(json_object_get(r, "arch")),
                   get(r, "registers"));
            if (get(r, "shared_bytes"))
                printf(", %lld shared", get(r, "shared_bytes"));
            if (get(r, "local_bytes"))
                printf(", %lld local", get(r, "local_bytes"));
        }
        printf("\n");
    }
    json_array_foreach(json_object_get(code, "planned"), i, o)
        printf("  planned  %lld convolutions for %s (%s), cuDNN %lld; %lld have no plan\n",
               get(o, "convolutions"), json_string_value(json_object_get(o, "arch")),
               json_string_value(json_object_get(o, "device")), get(o, "cudnn"), get(o, "without"));
    json_array_foreach(json_object_get(code, "tuned"), i, o)
        printf("  tuned    %lld GEMMs on %s with %lld SMs, cuBLASLt %lld\n", get(o, "gemms"),
               json_string_value(json_object_get(o, "device")), get(o, "sms"), get(o, "cublaslt"));
}
