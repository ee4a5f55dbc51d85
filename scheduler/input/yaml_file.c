/* Reads set files and fleet files, which are YAML and untrusted.
 *
 * libyaml parses the document into nodes first: this file checks limits on them, and they carry the
 * line numbers and the mappings with free keys (`dims`). libcyaml then loads the document by a
 * schema, which refuses unknown keys, missing keys and values of the wrong kind. Aliases are
 * refused because they let a small file expand into a large one ("billion laughs"), and no file
 * needs them.
 */
#include "scheduler/input/yaml_int.h"

#include "base/file.h"
#include "base/file_guess.h"
#include "base/nearest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- Limits ----------------------------------------------------------------------------------- */

static weft_err fail_at(const weft_yaml *yaml, const yaml_node_t *node, weft_diag *diag,
                        const char *text)
{
    weft_where where = {.file = yaml->file, .line = weft_yaml__line(node)};
    return weft_diag_error(diag, WEFT_ERR_INPUT, where, "%s", text);
}

static bool scalar_equal(const yaml_node_t *a, const yaml_node_t *b)
{
    return a->data.scalar.length == b->data.scalar.length &&
           memcmp(a->data.scalar.value, b->data.scalar.value, a->data.scalar.length) == 0;
}

static weft_err check_keys(weft_yaml *yaml, const yaml_node_t *map, weft_diag *diag)
{
    const yaml_node_pair_t *first = map->data.mapping.pairs.start;
    const yaml_node_pair_t *end = map->data.mapping.pairs.top;
    if (end - first > WEFT_YAML_KEYS_MAX)
        return fail_at(yaml, map, diag, "mapping has more than 64 keys");
    for (const yaml_node_pair_t *p = first; p < end; p++) {
        const yaml_node_t *key = yaml_document_get_node(&yaml->doc, p->key);
        if (!key || key->type != YAML_SCALAR_NODE)
            return fail_at(yaml, map, diag, "key is not a scalar");
        for (const yaml_node_pair_t *q = first; q < p; q++) {
            if (!scalar_equal(key, yaml_document_get_node(&yaml->doc, q->key)))
                continue;
            weft_where where = {.file = yaml->file, .line = weft_yaml__line(key)};
            return weft_diag_error(diag, WEFT_ERR_INPUT, where, "key '%.64s' appears twice",
                                   (const char *)key->data.scalar.value);
        }
    }
    return WEFT_ERR_OK;
}

/* libyaml gives nodes without a tag one of these three; any other tag is in the file. */
static bool has_own_tag(const yaml_node_t *node)
{
    const char *tag = (const char *)node->tag;
    return tag && strcmp(tag, YAML_STR_TAG) != 0 && strcmp(tag, YAML_SEQ_TAG) != 0 &&
           strcmp(tag, YAML_MAP_TAG) != 0;
}

/* Walks the tree with an explicit stack of (node, next child). A node that is reached twice is an
 * alias; the walk then visits more nodes than the document has. */
static weft_err check_tree(weft_yaml *yaml, weft_diag *diag)
{
    struct {
        yaml_node_t *node;
        ptrdiff_t next;
    } stack[WEFT_YAML_DEPTH_MAX];
    ptrdiff_t total = yaml->doc.nodes.top - yaml->doc.nodes.start;
    if (total > WEFT_YAML_NODES_MAX)
        return fail_at(yaml, NULL, diag, "file has more than 200000 values");
    yaml_node_t *node = yaml_document_get_root_node(&yaml->doc);
    ptrdiff_t seen = 0;
    int depth = 0;
    while (node) {
        if (++seen > total)
            return fail_at(yaml, node, diag, "aliases (*name) are not supported");
        if (has_own_tag(node))
            return fail_at(yaml, node, diag, "tags (!name) are not supported");
        if (node->type == YAML_MAPPING_NODE)
            WEFT_TRY(check_keys(yaml, node, diag));
        if (node->type == YAML_MAPPING_NODE || node->type == YAML_SEQUENCE_NODE) {
            if (depth == WEFT_YAML_DEPTH_MAX)
                return fail_at(yaml, node, diag, "nested more than 12 levels deep");
            stack[depth].node = node;
            stack[depth++].next = 0;
        } else if (memchr(node->data.scalar.value, 0, node->data.scalar.length)) {
            return fail_at(yaml, node, diag, "value contains a zero byte");
        }
        node = NULL;
        while (depth > 0 && !node) {
            yaml_node_t *top = stack[depth - 1].node;
            ptrdiff_t i = stack[depth - 1].next++;
            if (top->type == YAML_SEQUENCE_NODE) {
                yaml_node_item_t *item = top->data.sequence.items.start + i;
                if (item < top->data.sequence.items.top)
                    node = yaml_document_get_node(&yaml->doc, *item);
            } else {
                yaml_node_pair_t *pair = top->data.mapping.pairs.start + i;
                if (pair < top->data.mapping.pairs.top) {
                    seen++; /* the key, a scalar of its own */
                    node = yaml_document_get_node(&yaml->doc, pair->value);
                }
            }
            if (!node)
                depth--;
        }
    }
    return WEFT_ERR_OK;
}

/* libyaml's scanner takes quadratic time in the number of open flow brackets, and scans all of them
 * before its parser checks the depth: a megabyte of `[` takes an hour. Brackets inside quotes are
 * counted too, which is stricter than YAML but harmless. */
static weft_err check_brackets(const weft_yaml *yaml, weft_diag *diag)
{
    uint32_t line = 1;
    int depth = 0;
    for (size_t i = 0; i < yaml->len; i++) {
        char c = yaml->text[i];
        line += c == '\n';
        if (c == '[' || c == '{')
            depth++;
        if ((c == ']' || c == '}') && depth > 0)
            depth--;
        if (depth > WEFT_YAML_BRACKETS_MAX)
            return weft_diag_error(diag, WEFT_ERR_INPUT,
                                   (weft_where){.file = yaml->file, .line = line},
                                   "is not YAML: more than 64 brackets are open at once%s",
                                   weft_file_guess_format(yaml->text, yaml->len));
    }
    return WEFT_ERR_OK;
}

/* -- Opening ---------------------------------------------------------------------------------- */

/* Converts an error of libyaml into a diagnostic. */
static weft_err convert_parser_error(const weft_yaml *yaml, const yaml_parser_t *parser,
                                     weft_diag *diag)
{
    weft_where where = {.file = yaml->file, .line = (uint32_t)parser->problem_mark.line + 1};
    if (parser->error == YAML_MEMORY_ERROR)
        return weft_diag_error(diag, WEFT_ERR_NOMEM, where, "yaml: out of memory");
    return weft_diag_error(diag, WEFT_ERR_INPUT, where, "is not YAML: %s%s",
                           parser->problem ? parser->problem : "cannot be read",
                           weft_file_guess_format(yaml->text, yaml->len));
}

static weft_err compose(weft_yaml *yaml, weft_diag *diag)
{
    yaml_parser_t parser;
    yaml_document_t second;
    if (!yaml_parser_initialize(&parser))
        return weft_diag_error(diag, WEFT_ERR_NOMEM, (weft_where){.file = yaml->file},
                               "yaml: out of memory");
    yaml_parser_set_input_string(&parser, (const unsigned char *)yaml->text, yaml->len);
    weft_err err = WEFT_ERR_OK;
    if (!yaml_parser_load(&parser, &yaml->doc)) {
        memset(&yaml->doc, 0, sizeof yaml->doc);
        err = convert_parser_error(yaml, &parser, diag);
    } else if (!yaml_document_get_root_node(&yaml->doc)) {
        err = fail_at(yaml, NULL, diag, "file is empty");
    } else if (!yaml_parser_load(&parser, &second)) {
        err = convert_parser_error(yaml, &parser, diag);
    } else {
        const yaml_node_t *root = yaml_document_get_root_node(&second);
        if (root)
            err = fail_at(yaml, root, diag, "second document; a file must have exactly one");
        yaml_document_delete(&second);
    }
    yaml_parser_delete(&parser);
    return err;
}

weft_err weft_yaml__open(const char *path, weft_diag *diag, weft_yaml *out)
{
    weft_yaml yaml = {.file = path};
    WEFT_TRY(weft_file_read(path, WEFT_YAML_BYTES_MAX, diag, &yaml.text, &yaml.len));
    weft_err err = check_brackets(&yaml, diag);
    if (err == WEFT_ERR_OK)
        err = compose(&yaml, diag);
    if (err == WEFT_ERR_OK)
        err = check_tree(&yaml, diag);
    if (err != WEFT_ERR_OK) {
        weft_yaml__close(&yaml);
        return err;
    }
    *out = yaml;
    return WEFT_ERR_OK;
}

void weft_yaml__close(weft_yaml *yaml)
{
    if (yaml->doc.nodes.start)
        yaml_document_delete(&yaml->doc);
    memset(&yaml->doc, 0, sizeof yaml->doc);
    free(yaml->text);
    yaml->text = NULL;
}

/* -- Loading by schema ------------------------------------------------------------------------ */

typedef struct load_ctx {
    weft_arena *arena;
    char text[256]; /* first error that libcyaml logged */
    uint32_t line;  /* first line number in the log: the innermost */
} load_ctx;

/* libcyaml's allocator on an arena, which can neither resize nor free. A header of 16 bytes stores
 * the capacity of each block; the capacity doubles on growth because libcyaml appends entries to a
 * sequence one by one. */
static void *load_mem(void *ctx_in, void *old, size_t size)
{
    load_ctx *ctx = ctx_in;
    size_t old_room = 0, room = size;
    if (size == 0 || size > SIZE_MAX / 4)
        return NULL;
    if (old)
        memcpy(&old_room, (char *)old - 16, sizeof old_room);
    if (size <= old_room)
        return old;
    if (old_room > 0 && size < 2 * old_room)
        room = 2 * old_room;
    char *now = weft_arena_alloc(ctx->arena, room + 16);
    memcpy(now, &room, sizeof room);
    now += 16;
    if (old)
        memcpy(now, old, old_room);
    return now;
}

/* libcyaml's words for a value of another kind, in those of the documents. */
static void reword_kind(char *text, size_t size)
{
    static const struct {
        const char *word, *text;
    } kinds[] = {{"MAPPING", "keys with values"}, {"MAPPING_START", "keys with values"},
                 {"SEQUENCE", "a list"},          {"SEQUENCE_START", "a list"},
                 {"SCALAR", "a single value"},    {"ALIAS", "an alias"}};
    char kind[2][32];
    const char *word[2] = {kind[0], kind[1]};
    if (sscanf(text, "expecting %31[A-Z_], got event: %31[A-Z_]", kind[0], kind[1]) != 2)
        return;
    for (int w = 0; w < 2; w++)
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
            if (strcmp(kind[w], kinds[i].word) == 0)
                word[w] = kinds[i].text;
    snprintf(text, size, "needs %s here, not %s", word[0], word[1]);
}

static void load_log(cyaml_log_t level, void *ctx_in, const char *fmt, va_list args)
    WEFT_PRINTF(3, 0);

/* libcyaml logs "Load: <error>" first, then a backtrace with "(line: 3, column: 5)" in each entry.
 */
static void load_log(cyaml_log_t level, void *ctx_in, const char *fmt, va_list args)
{
    load_ctx *ctx = ctx_in;
    char text[256];
    if (level < CYAML_LOG_ERROR)
        return;
    vsnprintf(text, sizeof text, fmt, args);
    const char *at = strstr(text, "line: ");
    if (at && ctx->line == 0)
        ctx->line = (uint32_t)strtoul(at + 6, NULL, 10);
    if (ctx->text[0])
        return;
    char *from = strncmp(text, "Load: ", 6) == 0 ? text + 6 : text;
    from[strcspn(from, "\n")] = 0;
    snprintf(ctx->text, sizeof ctx->text, "%s", from);
    if (ctx->text[0] >= 'A' && ctx->text[0] <= 'Z')
        ctx->text[0] = (char)(ctx->text[0] - 'A' + 'a');
    reword_kind(ctx->text, sizeof ctx->text);
}

static const cyaml_schema_field_t *find_field(const cyaml_schema_field_t *field, const char *name)
{
    while (field->key && strcmp(field->key, name) != 0)
        field++;
    return field->key ? field : NULL;
}

/* libcyaml tells the line of the mapping that contains an unknown key. Returns the first key of
 * this name that its mapping may not have, and the keys that the mapping may have. The depth of the
 * recursion is that of the schema. */
static const yaml_node_t *find_unknown(const weft_yaml *yaml, const yaml_node_t *node,
                                       const cyaml_schema_value_t *schema, const char *name,
                                       const cyaml_schema_field_t **out_fields)
{
    const yaml_node_t *at = yaml->doc.nodes.start, *found = NULL;
    if (node->type == YAML_SEQUENCE_NODE && schema->type == CYAML_SEQUENCE)
        for (const yaml_node_item_t *item = node->data.sequence.items.start;
             item < node->data.sequence.items.top && !found; item++)
            found = find_unknown(yaml, at + *item - 1, schema->sequence.entry, name, out_fields);
    if (node->type != YAML_MAPPING_NODE || schema->type != CYAML_MAPPING)
        return found;
    for (const yaml_node_pair_t *p = node->data.mapping.pairs.start;
         p < node->data.mapping.pairs.top && !found; p++) {
        const yaml_node_t *key = at + p->key - 1;
        const char *word = (const char *)key->data.scalar.value;
        const cyaml_schema_field_t *field = find_field(schema->mapping.fields, word);
        if (field) {
            found = find_unknown(yaml, at + p->value - 1, &field->value, name, out_fields);
        } else if (strcmp(word, name) == 0) {
            found = key;
            *out_fields = schema->mapping.fields;
        }
    }
    return found;
}

static const char *field_at(size_t i, const void *user)
{
    return ((const cyaml_schema_field_t *)user)[i].key; /* NULL behind the last */
}

weft_err weft_yaml__load(const weft_yaml *yaml, const cyaml_schema_value_t *schema,
                         weft_arena *arena, weft_diag *diag, void **out)
{
    load_ctx ctx = {.arena = arena};
    cyaml_config_t config = {.log_fn = load_log,
                             .log_ctx = &ctx,
                             .log_level = CYAML_LOG_ERROR,
                             .mem_fn = load_mem,
                             .mem_ctx = &ctx,
                             .flags = CYAML_CFG_NO_ALIAS};
    cyaml_data_t *data = NULL;
    cyaml_err_t code =
        cyaml_load_data((const uint8_t *)yaml->text, yaml->len, &config, schema, &data, NULL);
    if (code == CYAML_OK && data) {
        *out = data;
        return WEFT_ERR_OK;
    }
    static const char unknown[] = "unexpected key: ";
    const cyaml_schema_field_t *fields = NULL;
    const yaml_node_t *key = NULL;
    char known[WEFT_NEAREST_BYTES_MAX] = "";
    if (strncmp(ctx.text, unknown, sizeof unknown - 1) == 0)
        key = find_unknown(yaml, yaml->doc.nodes.start, schema, ctx.text + sizeof unknown - 1,
                           &fields);
    if (key) {
        ctx.line = weft_yaml__line(key);
        weft_nearest_say((const char *)key->data.scalar.value, field_at, fields, known);
    }
    weft_where where = {.file = yaml->file, .line = ctx.line};
    return weft_diag_error(diag, code == CYAML_ERR_OOM ? WEFT_ERR_NOMEM : WEFT_ERR_INPUT, where,
                           "%s%s", ctx.text[0] ? ctx.text : cyaml_strerror(code), known);
}

/* -- Nodes ------------------------------------------------------------------------------------ */

yaml_node_t *weft_yaml__get(weft_yaml *yaml, const yaml_node_t *map, const char *key)
{
    if (!map || map->type != YAML_MAPPING_NODE)
        return NULL;
    for (const yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top;
         p++) {
        const yaml_node_t *k = yaml_document_get_node(&yaml->doc, p->key);
        if (strcmp((const char *)k->data.scalar.value, key) == 0)
            return yaml_document_get_node(&yaml->doc, p->value);
    }
    return NULL;
}

yaml_node_t *weft_yaml__at(weft_yaml *yaml, const yaml_node_t *seq, size_t i)
{
    if (!seq || seq->type != YAML_SEQUENCE_NODE)
        return NULL;
    size_t n = (size_t)(seq->data.sequence.items.top - seq->data.sequence.items.start);
    return i < n ? yaml_document_get_node(&yaml->doc, seq->data.sequence.items.start[i]) : NULL;
}

uint32_t weft_yaml__line(const yaml_node_t *node)
{
    return node ? (uint32_t)node->start_mark.line + 1 : 0;
}
