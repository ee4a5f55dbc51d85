/* Joint graphs as a picture.
 *
 * Draws the joint graphs and the models that are in none. A node of a joint graph belongs to the
 * models whose inputs it depends on and whose outputs depend on it: a slice that takes the part of
 * one model out of a joint value depends on all inputs, but leads to that model only. Nodes of
 * several models are filled in one colour, nodes of one model with a weight that others use too in
 * a lighter one. The nodes and ports of one model are in a box.
 *
 * graphviz does the layout: its program `dot` runs as a child process with the text as input and is
 * stopped after LAYOUT_SECONDS. Names may be hostile: quotes, backslashes, markup and control
 * characters are escaped. */
#include "tools/compiler/merge_report.h"

#include "base/str.h"
#include "tools/common/names.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NODES_MAX = 5000, MODELS_MAX = 64, LAYOUT_SECONDS = 60, ITEM_MAX = 60 };

static const char shared_color[] = "#f6b26b", same_color[] = "#fde9d0";

typedef struct picture {
    weft_module *m;
    weft_arena *arena;
    weft_buf text;
    uint64_t *forth;       /* by value: set of the models whose inputs it depends on */
    uint64_t *back;        /* by value: set of the models whose outputs depend on it */
    uint32_t *uses;        /* by value: how many drawn nodes use this weight */
    uint32_t graph, n_box; /* numbers of the current graph and of the next box */
} picture;

/* -- Text for dot ----------------------------------------------------------------------------- */

/* Text inside quotes; dot interprets backslash escapes and HTML entities there. */
static void put_label(weft_buf *out, const char *s)
{
    weft_buf plain = {0};
    weft_tool_put_name(&plain, s);
    for (const char *c = plain.at ? plain.at : ""; *c; c++) {
        if (*c == '"' || *c == '\\')
            weft_buf_putc(out, '\\');
        if (*c == '&')
            weft_buf_puts(out, "&amp;");
        else
            weft_buf_putc(out, *c);
    }
    out->failed = out->failed || plain.failed;
    weft_buf_finish(&plain);
}

/* -- Models of a node ------------------------------------------------------------------------- */

static uint64_t bit(uint32_t i)
{
    return (uint64_t)1 << i % MODELS_MAX;
}

static void find_models(picture *x, const weft_graph *g)
{
    uint32_t n_part = weft_graph_part_count(g), in = 0, out = 0;
    for (uint32_t i = 0; i < n_part; i++) {
        const weft_part *part = weft_graph_part(g, i);
        for (uint32_t k = 0; k < part->n_in; k++)
            x->forth[weft_graph_input(g, in++).i] |= bit(i);
        for (uint32_t k = 0; k < part->n_out; k++)
            x->back[weft_graph_output(g, out++).i] |= bit(i);
    }
    WEFT_FOREACH_NODE (x->m, g, n) {
        uint64_t models = 0;
        for (uint32_t k = 0; k < weft_node_in_count(x->m, n); k++)
            models |= x->forth[weft_node_in(x->m, n, k).i];
        for (uint32_t k = 0; k < weft_node_out_count(x->m, n); k++)
            x->forth[weft_node_out(x->m, n, k).i] = models;
    }
    for (weft_node n = weft_graph_last(g); n.i; n = weft_node_prev(x->m, n)) {
        uint64_t models = 0;
        for (uint32_t k = 0; k < weft_node_out_count(x->m, n); k++)
            models |= x->back[weft_node_out(x->m, n, k).i];
        for (uint32_t k = 0; k < weft_node_in_count(x->m, n); k++) {
            weft_val v = weft_node_in(x->m, n, k);
            if (v.i && weft_val_get_kind(x->m, v) != WEFT_VAL_WEIGHT)
                x->back[v.i] |= models;
        }
    }
}

static uint64_t models_of(const picture *x, weft_node n)
{
    uint64_t forth = 0, back = 0;
    for (uint32_t k = 0; k < weft_node_out_count(x->m, n); k++) {
        forth |= x->forth[weft_node_out(x->m, n, k).i];
        back |= x->back[weft_node_out(x->m, n, k).i];
    }
    return forth & back ? forth & back : forth | back;
}

/* Whether the node has a weight of at least 64 bytes that several drawn nodes use. */
static bool has_shared_weight(const picture *x, weft_node n)
{
    for (uint32_t k = 0; k < weft_node_in_count(x->m, n); k++) {
        weft_val v = weft_node_in(x->m, n, k);
        if (v.i && weft_val_get_kind(x->m, v) == WEFT_VAL_WEIGHT &&
            weft_weight_get(x->m, weft_val_weight(x->m, v))->bytes >= 64 && x->uses[v.i] > 1)
            return true;
    }
    return false;
}

/* -- Graphs ----------------------------------------------------------------------------------- */

static void put_node(picture *x, weft_node n, bool together)
{
    const char *item = weft_node_loc(x->m, n).item;
    const char *color = together ? shared_color : has_shared_weight(x, n) ? same_color : "white";
    weft_buf_printf(&x->text, "    n%u [fillcolor=\"%s\", label=\"", n.i, color);
    put_label(&x->text, weft_node_opdef(x->m, n)->name);
    if (item && *item) {
        char *cut = weft_arena_strdup(x->arena, item);
        if (strlen(cut) > ITEM_MAX)
            memcpy(cut + ITEM_MAX - 3, "...", 4);
        weft_buf_puts(&x->text, "\\n");
        put_label(&x->text, cut);
    }
    weft_buf_puts(&x->text, "\"];\n");
}

static void put_edges(picture *x, const weft_graph *g)
{
    WEFT_FOREACH_NODE (x->m, g, n)
        for (uint32_t k = 0; k < weft_node_in_count(x->m, n); k++) {
            weft_val v = weft_node_in(x->m, n, k);
            weft_val_kind kind = v.i ? weft_val_get_kind(x->m, v) : WEFT_VAL_WEIGHT;
            if (kind == WEFT_VAL_NODE)
                weft_buf_printf(&x->text, "  n%u -> n%u;\n", weft_val_node(x->m, v).i, n.i);
            else if (kind == WEFT_VAL_INPUT)
                weft_buf_printf(&x->text, "  i%u -> n%u;\n", v.i, n.i);
        }
    for (uint32_t i = 0; i < weft_graph_output_count(g); i++) {
        weft_val v = weft_graph_output(g, i);
        weft_val_kind kind = weft_val_get_kind(x->m, v);
        if (kind == WEFT_VAL_NODE)
            weft_buf_printf(&x->text, "  n%u -> o%u_%u;\n", weft_val_node(x->m, v).i, x->graph, i);
        else if (kind == WEFT_VAL_INPUT)
            weft_buf_printf(&x->text, "  i%u -> o%u_%u;\n", v.i, x->graph, i);
    }
}

static void put_port(picture *x, const char *id, const char *name)
{
    weft_buf_printf(&x->text, "    %s [shape=plaintext, style=\"\", label=\"", id);
    put_label(&x->text, name);
    weft_buf_puts(&x->text, "\"];\n");
}

/* Draws a box with the ports of one model, which begin at *in and *out, and its nodes: those of the
 * set `models`; 0: all nodes. */
static void put_model(picture *x, const weft_graph *g, const weft_part *part, uint64_t models,
                      uint32_t *in, uint32_t *out)
{
    char id[40];
    weft_buf_printf(&x->text, "  subgraph cluster_%u {\n    color=gray; label=\"", x->n_box++);
    put_label(&x->text, part->model);
    weft_buf_puts(&x->text, "\";\n");
    for (uint32_t k = 0; k < part->n_in; k++, ++*in) {
        snprintf(id, sizeof id, "i%u", weft_graph_input(g, *in).i);
        put_port(x, id, weft_graph_input_name(g, *in));
    }
    for (uint32_t k = 0; k < part->n_out; k++, ++*out) {
        snprintf(id, sizeof id, "o%u_%u", x->graph, *out);
        put_port(x, id, weft_graph_output_name(g, *out));
    }
    WEFT_FOREACH_NODE (x->m, g, n)
        if (!models || models_of(x, n) == models)
            put_node(x, n, false);
    weft_buf_puts(&x->text, "  }\n");
}

static void put_graph(picture *x, const weft_graph *g)
{
    uint32_t n_part = weft_graph_part_count(g), in = 0, out = 0;
    weft_part whole = {weft_graph_name(g), weft_graph_input_count(g), weft_graph_output_count(g)};
    if (n_part == 0)
        put_model(x, g, &whole, 0, &in, &out);
    else
        find_models(x, g);
    for (uint32_t i = 0; i < n_part; i++)
        put_model(x, g, weft_graph_part(g, i), bit(i), &in, &out);
    WEFT_FOREACH_NODE (x->m, g, n) {
        uint64_t models = n_part ? models_of(x, n) : 0;
        if (models & (models - 1)) /* several models */
            put_node(x, n, true);
    }
    put_edges(x, g);
    x->graph++;
}

static bool is_in_joint(const weft_module *m, const weft_graph *g)
{
    for (uint32_t i = 0; i < weft_graph_count(m); i++) {
        const weft_graph *joint = weft_graph_at(m, i);
        for (uint32_t k = 0; k < weft_graph_part_count(joint) && !weft_graph_is_packed(joint); k++)
            if (strcmp(weft_graph_part(joint, k)->model, weft_graph_name(g)) == 0)
                return true;
    }
    return false;
}

static void count_uses(picture *x, const weft_graph *g)
{
    WEFT_FOREACH_NODE (x->m, g, n)
        for (uint32_t k = 0; k < weft_node_in_count(x->m, n); k++)
            x->uses[weft_node_in(x->m, n, k).i]++;
}

static void put_legend(picture *x)
{
    for (uint32_t i = 0; i < weft_graph_count(x->m); i++)
        if (weft_graph_part_count(weft_graph_at(x->m, i)) > 1) {
            weft_buf_printf(
                &x->text,
                "  legend [shape=plaintext, style=\"\", label=<<table border=\"0\" "
                "cellspacing=\"4\"><tr><td bgcolor=\"%s\">runs for several models at "
                "once</td></tr><tr><td bgcolor=\"%s\">for one, with a weight that others "
                "use too</td></tr></table>>];\n",
                shared_color, same_color);
            return;
        }
}

static void put_module(picture *x)
{
    /* newrank: rank nodes from top to bottom across boxes; strict: one arrow between two nodes. */
    weft_buf_puts(&x->text, "strict digraph weft {\n  newrank=true;\n"
                            "  node [shape=box, style=\"filled,rounded\", fontsize=10];\n");
    put_legend(x);
    for (int draw = 0; draw < 2; draw++)
        for (uint32_t i = 0; i < weft_graph_count(x->m); i++) {
            const weft_graph *g = weft_graph_at(x->m, i);
            if (weft_graph_is_packed(g) || (weft_graph_part_count(g) == 0 && is_in_joint(x->m, g)))
                continue;
            if (draw)
                put_graph(x, g);
            else
                count_uses(x, g);
        }
    weft_buf_puts(&x->text, "}\n");
}

/* -- Layout ----------------------------------------------------------------------------------- */

static bool wait_for(pid_t pid, int *status)
{
    const struct timespec nap = {.tv_nsec = 5000000};
    for (double end = weft_tool_now_ms() + LAYOUT_SECONDS * 1e3; weft_tool_now_ms() < end;
         nanosleep(&nap, NULL))
        if (waitpid(pid, status, WNOHANG) == pid)
            return true;
    kill(pid, SIGKILL);
    waitpid(pid, status, 0);
    return false;
}

enum { EXIT_NO_DOT = 127 };

static weft_err run_dot(FILE *in, FILE *out, const char *path, weft_diag *diag)
{
    int status = 0;
    weft_where where = {.file = path};
    pid_t pid = fork();
    if (pid < 0)
        return weft_diag_error(diag, WEFT_ERR_IO, where, "cannot run dot: %s", strerror(errno));
    if (pid == 0) {
        char *const argv[] = {"dot", "-Tsvg", NULL};
        if (dup2(fileno(in), STDIN_FILENO) >= 0 && dup2(fileno(out), STDOUT_FILENO) >= 0)
            execvp(argv[0], argv);
        _exit(EXIT_NO_DOT);
    }
    if (!wait_for(pid, &status))
        return weft_diag_error(diag, WEFT_ERR_IO, where,
                               "dot needs more than %d s; name a .dot file instead",
                               LAYOUT_SECONDS);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return WEFT_ERR_OK;
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_NO_DOT)
        return weft_diag_error(diag, WEFT_ERR_UNSUP, where,
                               "a picture needs the program dot of graphviz, which is not "
                               "installed; name a .dot file to get the graph as text");
    return weft_diag_error(diag, WEFT_ERR_IO, where, "dot of graphviz failed");
}

/* Both ends are files, so that neither side waits for the other. */
static weft_err draw(const weft_buf *text, const char *path, weft_diag *diag)
{
    FILE *in = tmpfile(), *out = tmpfile();
    weft_buf svg = {0};
    char chunk[4096];
    weft_err err = WEFT_ERR_OK;
    if (!in || !out || fwrite(text->at, 1, text->len, in) != text->len || fflush(in) != 0)
        err = weft_diag_error(diag, WEFT_ERR_IO, (weft_where){.file = path},
                              "no room for a temporary file");
    if (err == WEFT_ERR_OK) {
        rewind(in);
        err = run_dot(in, out, path, diag);
    }
    if (err == WEFT_ERR_OK) {
        rewind(out);
        for (size_t n; (n = fread(chunk, 1, sizeof chunk, out)) > 0;)
            weft_buf_add(&svg, chunk, n);
        err = svg.failed || !svg.at ? WEFT_ERR_NOMEM : weft_file_write(path, svg.at, svg.len, diag);
    }
    weft_buf_finish(&svg);
    if (in)
        fclose(in);
    if (out)
        fclose(out);
    return err;
}

weft_err weft_tool_write_picture(weft_module *m, const char *path, weft_diag *diag)
{
    picture x = {.m = m, .arena = weft_arena_create(0)};
    size_t n = strlen(path), n_node = 0;
    bool svg = n >= 4 && strcmp(path + n - 4, ".svg") == 0;
    for (uint32_t i = 0; i < weft_graph_count(m); i++)
        n_node += weft_graph_node_count(weft_graph_at(m, i));
    if (!x.arena)
        return WEFT_ERR_NOMEM;
    if (svg && n_node > NODES_MAX) {
        weft_arena_destroy(x.arena);
        return weft_diag_error(diag, WEFT_ERR_UNSUP, (weft_where){.file = path},
                               "%zu nodes are too many for a picture (at most %d); name a .dot "
                               "file instead",
                               n_node, NODES_MAX);
    }
    x.forth = weft_arena_array(x.arena, (size_t)weft_val_count(m) + 1, sizeof *x.forth);
    x.back = weft_arena_array(x.arena, (size_t)weft_val_count(m) + 1, sizeof *x.back);
    x.uses = weft_arena_array(x.arena, (size_t)weft_val_count(m) + 1, sizeof *x.uses);
    put_module(&x);
    weft_err err = x.text.failed ? WEFT_ERR_NOMEM
                   : svg         ? draw(&x.text, path, diag)
                                 : weft_file_write(path, x.text.at, x.text.len, diag);
    weft_buf_finish(&x.text);
    weft_arena_destroy(x.arena);
    return err;
}
