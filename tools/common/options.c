/* Parsing command lines by their tables, and the text of --help. */
#include "tools/common/options.h"

#include "base/nearest.h"
#include "base/num.h"

#include <getopt.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { ROWS_MAX = 64, FIRST_VALUE = 256, TEXT_COLUMN = 27, WIDTH = 92 };

/* -- Values ----------------------------------------------------------------------------------- */

const char *weft_options_word(const char *arg, size_t i, size_t *out_len)
{
    *out_len = 0;
    if (!arg || !strchr(arg, '|') || strpbrk(arg, "=./[,"))
        return NULL;
    for (; *arg && i > 0; i--) {
        arg += strcspn(arg, "|");
        arg += *arg == '|';
    }
    *out_len = strcspn(arg, "|");
    return arg;
}

/* Writes "a, b or c" for "a|b|c". */
static const char *list_words(const char *arg, char *buf, size_t size)
{
    size_t len, n = 0, last = 0;
    for (const char *word; (word = weft_options_word(arg, last, &len)) && len > 0;)
        last++;
    for (size_t i = 0; i < last && n < size; i++) {
        const char *word = weft_options_word(arg, i, &len);
        n += (size_t)snprintf(buf + n, size - n, "%s%.*s",
                              i == 0          ? ""
                              : i + 1 == last ? " or "
                                              : ", ",
                              (int)len, word);
    }
    return buf;
}

static int refuse_number(const weft_verb *verb, const weft_option *o, const char *arg)
{
    bool whole = o->kind != WEFT_OPTION_NUMBER;
    const char *what = whole ? "a whole number" : "a number";
    if (o->hi >= 0x1p63)
        return weft_tool_usage(verb, "--%s takes %s from %.15g, not '%s'", o->name, what, o->lo,
                               arg);
    return weft_tool_usage(verb, "--%s takes %s from %.15g to %.15g, not '%s'", o->name, what,
                           o->lo, o->hi, arg);
}

static int take_count(const weft_verb *verb, const weft_option *o, const char *arg, void *at)
{
    int64_t x;
    if (!weft_parse_i64(arg, &x) || (double)x < o->lo || (double)x > o->hi)
        return refuse_number(verb, o, arg);
    if (o->kind == WEFT_OPTION_COUNT)
        *(uint64_t *)at = (uint64_t)x;
    else
        *(uint32_t *)at = (uint32_t)x;
    return 0;
}

static int take_number(const weft_verb *verb, const weft_option *o, const char *arg, double *at)
{
    double x, us;
    bool ok = weft_parse_f64(arg, &x);
    if (!ok && strcmp(o->arg, "SECONDS") == 0 && weft_parse_duration_us(arg, &us)) {
        x = us / 1e6;
        ok = true;
    }
    if (!ok || !(x >= o->lo && x <= o->hi))
        return refuse_number(verb, o, arg);
    *at = x;
    return 0;
}

static int take_seconds(const weft_verb *verb, const weft_option *o, const char *arg, double *at)
{
    double us;
    if (!weft_parse_duration_us(arg, &us) || !(us >= 0) || us > 1e15)
        return weft_tool_usage(verb, "--%s takes a time such as 30s or 2ms, not '%s'", o->name,
                               arg);
    *at = us / 1e6;
    return 0;
}

static int refuse_word(const weft_verb *verb, const weft_option *o, const char *arg)
{
    char words[256] = "";
    return weft_tool_usage(verb, "--%s takes %s, not '%s'", o->name,
                           list_words(o->arg, words, sizeof words), arg);
}

static bool is_word(const weft_option *o, size_t i, const char *arg)
{
    size_t len;
    const char *word = weft_options_word(o->arg, i, &len);
    return word && len > 0 && strlen(arg) == len && strncmp(word, arg, len) == 0;
}

static bool has_word(const weft_option *o, const char *arg)
{
    size_t len;
    if (!weft_options_word(o->arg, 0, &len))
        return true;
    for (size_t i = 0; weft_options_word(o->arg, i, &len) && len > 0; i++)
        if (is_word(o, i, arg))
            return true;
    return false;
}

static int take_value(const weft_verb *verb, const weft_option *o, char *arg, char *options)
{
    void *at = options + o->at;
    if (!has_word(o, arg ? arg : ""))
        return refuse_word(verb, o, arg);
    switch (o->kind) {
    case WEFT_OPTION_FLAG:
        *(bool *)at = true;
        return 0;
    case WEFT_OPTION_TEXT:
        *(const char **)at = arg;
        return 0;
    case WEFT_OPTION_COUNT:
    case WEFT_OPTION_COUNT32:
        return take_count(verb, o, arg, at);
    case WEFT_OPTION_NUMBER:
        return take_number(verb, o, arg, at);
    case WEFT_OPTION_SECONDS:
        return take_seconds(verb, o, arg, at);
    case WEFT_OPTION_SECOND:
        *(bool *)at = is_word(o, 1, arg);
        return 0;
    default:
        return o->take(at, verb, arg);
    }
}

/* -- Parsing ---------------------------------------------------------------------------------- */

/* Fills the tables of getopt_long; the value of a long option is FIRST_VALUE + its row. */
static void list_options(const weft_option *row, struct option *longs, char *shorts)
{
    size_t n = 0, at = 0;
    shorts[at++] = ':'; /* errors are reported here, not by getopt */
    shorts[at++] = 'h';
    longs[n++] = (struct option){"help", no_argument, NULL, 'h'};
    for (int i = 0; row[i].kind != WEFT_OPTION_END; i++) {
        if (!row[i].name)
            continue;
        longs[n++] = (struct option){row[i].name, row[i].arg ? required_argument : no_argument,
                                     NULL, FIRST_VALUE + i};
        if (row[i].letter)
            shorts[at++] = row[i].letter;
        if (row[i].letter && row[i].arg)
            shorts[at++] = ':';
    }
    longs[n] = (struct option){0};
    shorts[at] = '\0';
}

static const weft_option *find_row(const weft_option *row, int value)
{
    if (value >= FIRST_VALUE)
        return &row[value - FIRST_VALUE];
    while (row->kind != WEFT_OPTION_END && row->letter != value)
        row++;
    return row;
}

/* The i-th option of the rows. */
static const char *name_at(size_t i, const void *user)
{
    for (const weft_option *row = user; row->kind != WEFT_OPTION_END; row++)
        if (row->name && i-- == 0)
            return row->name;
    return NULL;
}

/* A long option that is none, or is short for several. */
static int refuse_option(const weft_verb *verb, const char *word)
{
    char name[64], dashed[80];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    const char *near = weft_nearest(name + strspn(name, "-"), name_at, verb->row);
    snprintf(dashed, sizeof dashed, "--%s", near ? near : "");
    return weft_tool_usage(verb, "no option '%s'%s", word, weft_tool_hint(near ? dashed : NULL));
}

static const char *file_of(const weft_option *o, const char *options)
{
    return *(const char *const *)(options + o->at);
}

/* Whether the verb is to read this file: as an argument, or by an option. */
static bool is_read(const weft_verb *verb, int argc, char **argv, const char *options,
                    const char *file)
{
    for (int i = optind; i < argc && !verb->takes_names; i++)
        if (weft_tool_is_same_file(argv[i], file))
            return true;
    for (const weft_option *o = verb->row; o->kind != WEFT_OPTION_END; o++)
        if (o->reads && file_of(o, options) && weft_tool_is_same_file(file_of(o, options), file))
            return true;
    return false;
}

/* A file that is read would be lost if an option had it written. */
static int check_written(const weft_verb *verb, int argc, char **argv, const char *options)
{
    for (const weft_option *o = verb->row; o->kind != WEFT_OPTION_END; o++) {
        const char *file = o->writes ? file_of(o, options) : NULL;
        if (file && is_read(verb, argc, argv, options, file))
            return weft_tool_usage(verb, "--%s %s would overwrite what is read: name another file",
                                   o->name, file);
    }
    return -1;
}

int weft_options_parse(const weft_verb *verb, int argc, char **argv, void *options)
{
    struct option longs[ROWS_MAX + 2];
    char shorts[2 * ROWS_MAX + 3];
    int value;
    list_options(verb->row, longs, shorts);
    optind = 1;
    opterr = 0;
    while ((value = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
        if (value == 'h') {
            weft_options_print(verb->name, verb->row, stdout);
            return WEFT_EXIT_DONE;
        }
        if (value == ':')
            return weft_tool_usage(verb, "%s needs an argument", argv[optind - 1]);
        if (value == '?' && optopt > 0 && optopt < FIRST_VALUE)
            return weft_tool_usage(verb, "no option '-%c'", optopt);
        if (value == '?' && optopt >= FIRST_VALUE)
            return weft_tool_usage(verb, "--%s takes no argument",
                                   find_row(verb->row, optopt)->name);
        if (value == '?')
            return refuse_option(verb, argv[optind - 1]);
        int code = take_value(verb, find_row(verb->row, value), optarg, options);
        if (code)
            return code;
    }
    return check_written(verb, argc, argv, options);
}

int weft_options_parse_one(const weft_verb *verb, int argc, char **argv, void *options,
                           const char *what, const char **out)
{
    int code = weft_options_parse(verb, argc, argv, options);
    if (code >= 0)
        return code;
    if (argc - optind != 1)
        return weft_tool_usage(verb, "name one %s", what);
    *out = argv[optind];
    return -1;
}

int weft_tool_take_quiet(void *at, const weft_verb *verb, char *arg)
{
    (void)at;
    (void)verb;
    (void)arg;
    weft_tool_be_quiet();
    return 0;
}

/* -- Help ------------------------------------------------------------------------------------- */

/* Prints the words of `text`, wrapped at column WIDTH. `column`: column of the first word;
 * `indent`: column of further lines. */
static void print_wrapped(const char *text, size_t column, size_t indent, FILE *to)
{
    const char *space = "";
    while (*text) {
        size_t len = strcspn(text, " ");
        if (*space && column + 1 + len > WIDTH) {
            fprintf(to, "\n%*s", (int)indent, "");
            column = indent;
            space = "";
        }
        fprintf(to, "%s%.*s", space, (int)len, text);
        column += strlen(space) + len;
        space = " ";
        text += len;
        text += strspn(text, " ");
    }
    fputc('\n', to);
}

static void print_option(char letter, const char *name, const char *arg, const char *help, FILE *to)
{
    char left[128];
    int n = letter ? snprintf(left, sizeof left, "  -%c, --%s", letter, name)
                   : snprintf(left, sizeof left, "      --%s", name);
    if (arg)
        n += snprintf(left + n, sizeof left - (size_t)n, " %s", arg);
    fputs(left, to);
    if (n + 2 > TEXT_COLUMN) /* too long: the text begins on the next line */
        fputc('\n', to);
    fprintf(to, "%*s", n + 2 > TEXT_COLUMN ? TEXT_COLUMN : TEXT_COLUMN - n, "");
    print_wrapped(help, TEXT_COLUMN, TEXT_COLUMN, to);
}

void weft_options_print(const char *verb, const weft_option *row, FILE *to)
{
    const char *intro = "usage:", *gap = "\n";
    for (; row->kind != WEFT_OPTION_END; row++) {
        bool below = row->kind == WEFT_OPTION_HEADING || row->name;
        if ((below && *gap) || row->kind == WEFT_OPTION_HEADING)
            fputc('\n', to);
        gap = below ? "" : gap;
        if (row->kind == WEFT_OPTION_USAGE)
            fprintf(to, "%-6s weft %s %s\n", intro, verb, row->help);
        else if (row->kind == WEFT_OPTION_ABOUT)
            print_wrapped(row->help, 0, 0, to);
        else if (row->kind == WEFT_OPTION_HEADING)
            fprintf(to, "%s\n", row->help);
        else
            print_option(row->letter, row->name, row->arg, row->help, to);
        intro = "";
    }
    print_option('h', "help", NULL, "print this text", to);
}
