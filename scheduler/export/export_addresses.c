/* What texts of the site must look like: addresses of nodes and of a front, options of jobs. */
#include "scheduler/export/export_int.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>

bool weft_export__is_plain(const char *text, size_t max)
{
    size_t len = strlen(text);
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("-_./:@", text[i]))
            return false;
    return len > 0 && len <= max && (isalnum((unsigned char)text[0]) || text[0] == '/');
}

weft_err weft_export__fail(const export_ctx *ctx, const char *item, const char *text,
                           const char *value)
{
    return weft_diag_error(ctx->diag, WEFT_ERR_INPUT, (weft_where){.item = item}, "%s '%.128s'",
                           text, value);
}

/* -- Nodes ------------------------------------------------------------------------------------ */

/* The next line of a text as words; false: the text has ended. */
static bool next_line(const export_ctx *ctx, const char **at, const char *word[3], uint32_t *out_n)
{
    const char *end = strchr(*at, '\n');
    if (!**at)
        return false;
    char *line = weft_arena_strndup(ctx->arena, *at, end ? (size_t)(end - *at) : strlen(*at));
    *at = end ? end + 1 : *at + strlen(*at);
    *out_n = 0;
    line[strcspn(line, "#")] = 0;
    char *save = NULL;
    for (char *w = strtok_r(line, " \t\r", &save); w; w = strtok_r(NULL, " \t\r", &save))
        if (*out_n < 3)
            word[(*out_n)++] = w;
    return true;
}

bool weft_export__is_ip(const char *text)
{
    unsigned char at[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, text, at) == 1 || inet_pton(AF_INET6, text, at) == 1;
}

/* Letters, digits and -_. with some that are no digits, which would be an address. */
bool weft_export__is_host_name(const char *text)
{
    return weft_export__is_plain(text, WEFT_EXPORT_ADDRESS_MAX) && !strpbrk(text, "/@:") &&
           text[strspn(text, "0123456789.")];
}

/* A name, or an address of IPv4 or IPv6, without a port. */
static bool is_address(const char *text)
{
    return weft_export__is_host_name(text) || weft_export__is_ip(text);
}

const char *weft_export__host_of(weft_arena *arena, const char *address)
{
    return strchr(address, ':') ? weft_arena_printf(arena, "[%s]", address) : address;
}

static weft_err take_line(export_ctx *ctx, const char *const word[3], uint32_t n, uint32_t line)
{
    weft_where where = {.file = ctx->o.nodes_path, .line = line};
    if (n != 2 || !is_address(word[1]))
        return weft_diag_error(ctx->diag, WEFT_ERR_INPUT, where,
                               "a line has the name of a node and its address");
    for (uint32_t i = 0; i < ctx->n_node; i++) {
        export_node *node = &ctx->node[i];
        if (strcmp(node->name, word[0]) != 0)
            continue;
        if (node->address)
            return weft_diag_error(ctx->diag, WEFT_ERR_INPUT, where, "node '%s' has two addresses",
                                   node->name);
        node->address = word[1];
        return WEFT_ERR_OK;
    }
    if (ctx->o.some_nodes)
        return WEFT_ERR_OK;
    return weft_diag_error(ctx->diag, WEFT_ERR_INPUT, where, "the plan has no node '%.128s'",
                           word[0]);
}

weft_err weft_export__find_addresses(export_ctx *ctx)
{
    const char *at = ctx->o.nodes ? ctx->o.nodes : "", *word[3];
    uint32_t n;
    for (uint32_t line = 1; next_line(ctx, &at, word, &n); line++)
        if (n > 0)
            WEFT_TRY(take_line(ctx, word, n, line));
    for (uint32_t i = 0; i < ctx->n_node; i++) {
        export_node *node = &ctx->node[i];
        if (!node->address && ctx->o.nodes)
            return weft_diag_error(ctx->diag, WEFT_ERR_INPUT,
                                   (weft_where){.file = ctx->o.nodes_path},
                                   "node '%s' has no address", node->name);
        node->address = node->address ? node->address : node->name;
    }
    return WEFT_ERR_OK;
}

const char *weft_export__address_of(const export_ctx *ctx, const char *node)
{
    const char *at = ctx->o.nodes ? ctx->o.nodes : "", *word[3];
    uint32_t n;
    while (next_line(ctx, &at, word, &n))
        if (n == 2 && strcmp(word[0], node) == 0)
            return word[1];
    return node;
}

weft_err weft_export__check_distinct(const export_ctx *ctx)
{
    for (uint32_t i = 0; i < ctx->n_node; i++)
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(ctx->node[i].address, ctx->node[k].address) == 0)
                return weft_diag_error(ctx->diag, WEFT_ERR_INPUT,
                                       (weft_where){.file = ctx->o.nodes_path},
                                       "nodes '%s' and '%s' have one address, and equal ports",
                                       ctx->node[k].name, ctx->node[i].name);
    return WEFT_ERR_OK;
}

/* -- Front ------------------------------------------------------------------------------------ */

weft_err weft_export__check_ips(const export_ctx *ctx)
{
    if (strcmp(ctx->front_host, "*") != 0 && !weft_export__is_ip(ctx->front_host))
        return weft_export__fail(ctx, "bind", "must begin with an IP address, not",
                                 ctx->front_host);
    for (uint32_t i = 0; i < ctx->n_node; i++)
        if (!weft_export__is_ip(ctx->node[i].address))
            return weft_diag_error(ctx->diag, WEFT_ERR_INPUT,
                                   (weft_where){.file = ctx->o.nodes_path},
                                   "node '%s' needs an IP address: the endpoints of this front are "
                                   "not looked up by name (--nodes)",
                                   ctx->node[i].name);
    return WEFT_ERR_OK;
}

/* Of a path, for HAProxy's own name while it starts; socat ends one at a colon. */
enum { SOCKET_MAX = 97 };

weft_err weft_export__check_front(export_ctx *ctx)
{
    const char *bind = ctx->o.bind, *colon = strrchr(bind, ':');
    uint32_t port = 0;
    bool good = colon && colon > bind && colon[1];
    ctx->front_host = good ? weft_arena_strndup(ctx->arena, bind, (size_t)(colon - bind)) : "";
    size_t len = strlen(ctx->front_host);
    if (len > 2 && bind[0] == '[' && colon[-1] == ']') {
        ctx->front_host = weft_arena_strndup(ctx->arena, bind + 1, len - 2);
        good = strchr(ctx->front_host, ':') && weft_export__is_ip(ctx->front_host);
    } else {
        good = good && (strcmp(ctx->front_host, "*") == 0 || is_address(ctx->front_host));
    }
    for (const char *c = colon ? colon + 1 : ""; good && *c; c++) {
        good = isdigit((unsigned char)*c) && port < 10000;
        port = 10 * port + (uint32_t)(*c - '0');
    }
    if (!good || port == 0 || port > 65533)
        return weft_export__fail(ctx, "bind", "must be ADDRESS:PORT, with a port up to 65533, not",
                                 bind);
    ctx->front_port = port;
    if (strlen(ctx->o.socket) > SOCKET_MAX || strchr(ctx->o.socket, ':'))
        return weft_export__fail(ctx, "socket", "must be at most 97 bytes without a colon, not",
                                 ctx->o.socket);
    if (ctx->o.buffer_bytes < 16 << 10 || ctx->o.buffer_bytes > 64 << 20)
        return weft_diag_error(ctx->diag, WEFT_ERR_INPUT, (weft_where){.item = "buffer"},
                               "must be from 16 KiB to 64 MiB, not %llu bytes",
                               (unsigned long long)ctx->o.buffer_bytes);
    return WEFT_ERR_OK;
}

/* -- Jobs ------------------------------------------------------------------------------------- */

static bool is_option(const char *text)
{
    static const char *const keys[] = {
        "account", "constraint",  "cpus-per-task", "exclude",  "mem",   "nice",  "partition",
        "qos",     "reservation", "time",          "time-min", "chdir", "output"};
    size_t len = strcspn(text, "="), n = strlen(text);
    bool known = false;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        known = known || (strlen(keys[i]) == len && strncmp(keys[i], text, len) == 0);
    for (size_t i = len; i < n; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("-_./:@,=+&|[]*%", text[i]))
            return false;
    return known && n > len + 1 && n <= 1024;
}

weft_err weft_export__check_sbatch(const export_ctx *ctx)
{
    for (size_t i = 0; i < ctx->o.n_sbatch; i++)
        if (!is_option(ctx->o.sbatch[i]))
            return weft_export__fail(ctx, "sbatch",
                                     "is no KEY=VALUE that jobs may have:", ctx->o.sbatch[i]);
    return WEFT_ERR_OK;
}
