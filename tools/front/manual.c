/* Manual pages: roff with the macros of man(7). */
#include "tools/front/verb_table.h"

#include <ctype.h>
#include <string.h>

/* Text with what roff would interpret escaped. */
static void put_text(const char *text, FILE *to)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", to);
    for (; *text; text++) {
        if (*text == '\\')
            fputs("\\e", to);
        else if (*text == '-')
            fputs("\\-", to);
        else
            fputc(*text, to);
    }
}

static void put_upper(const char *text, FILE *to)
{
    for (; *text; text++)
        fputc(toupper((unsigned char)*text), to);
}

static void put_option(char letter, const char *name, const char *arg, const char *help, FILE *to)
{
    fputs(".TP\n", to);
    if (letter)
        fprintf(to, "\\fB\\-%c\\fR, ", letter);
    fputs("\\fB\\-\\-", to);
    put_text(name, to);
    fputs("\\fR", to);
    if (arg) {
        fputs(" \\fI", to);
        put_text(arg, to);
        fputs("\\fR", to);
    }
    fputc('\n', to);
    put_text(help, to);
    fputc('\n', to);
}

static void put_exit_status(FILE *to)
{
    fputs(".SH EXIT STATUS\n"
          "0: done; 1: failed; 2: wrong usage; 3: infeasible, no plan meets the demands; 4: a "
          "check found "
          "a difference.\n",
          to);
}

static void print_verb(const weft_verb_row *verb, FILE *to)
{
    const char *break_line = "", *section = ".SH OPTIONS\n";
    fprintf(to, ".SH NAME\nweft\\-%s \\- ", verb->name);
    put_text(verb->brief, to);
    fputs("\n.SH SYNOPSIS\n", to);
    for (const weft_option *o = verb->option; o->kind != WEFT_OPTION_END; o++) {
        if (o->kind == WEFT_OPTION_USAGE) {
            fprintf(to, "%s\\fBweft %s\\fR ", break_line, verb->name);
            put_text(o->help, to);
            fputc('\n', to);
            break_line = ".br\n";
        } else if (o->kind == WEFT_OPTION_ABOUT) {
            fputs(".SH DESCRIPTION\n", to);
            put_text(o->help, to);
            fputc('\n', to);
        } else if (o->kind == WEFT_OPTION_HEADING) {
            fputs(".SS ", to);
            put_text(o->help, to);
            fputc('\n', to);
        } else {
            fputs(section, to);
            section = "";
            put_option(o->letter, o->name, o->arg, o->help, to);
        }
    }
    put_option('h', "help", NULL, "print a summary of the options", to);
}

static void print_command(FILE *to)
{
    const weft_verb_row *verb;
    fputs(".SH NAME\nweft \\- compile sets of ONNX models for shared devices, and serve them\n"
          ".SH SYNOPSIS\n\\fBweft\\fR \\fIVERB\\fR [\\fIOPTIONS\\fR] [\\fIARGUMENTS\\fR]\n"
          ".SH DESCRIPTION\nThe command executes the program that has the verb.\n",
          to);
    for (size_t i = 0; (verb = weft_verb_row_at(i)); i++) {
        fprintf(to, ".TP\n\\fBweft %s\\fR (\\fB", verb->name);
        put_text(verb->program, to);
        fputs("\\fR)\n", to);
        put_text(verb->brief, to);
        fputc('\n', to);
    }
    fputs(".SH ENVIRONMENT\n.TP\n\\fBWEFT_LIBEXEC\\fR\n"
          "Folder of the programs. Without it they are searched for beside \\fBweft\\fR, then in "
          "\\fI../libexec/weft\\fR.\n.TP\n\\fBNO_COLOR\\fR\nIf set, messages have no colours.\n",
          to);
}

void weft_manual_print(const weft_verb_row *verb, const char *version, FILE *to)
{
    fputs(".TH WEFT", to);
    if (verb)
        fputs("\\-", to);
    put_upper(verb ? verb->name : "", to);
    fprintf(to, " 1 \"\" \"weft %s\"\n", version);
    if (verb)
        print_verb(verb, to);
    else
        print_command(to);
    put_exit_status(to);
    fputs(".SH SEE ALSO\n", to);
    fputs(verb ? "\\fBweft\\fR(1), \\fBweft\\fR(7)\n" : "\\fBweft\\fR(7),\n", to);
    for (size_t i = 0; !verb && weft_verb_row_at(i); i++)
        fprintf(to, "\\fBweft\\-%s\\fR(1)%s\n", weft_verb_row_at(i)->name,
                weft_verb_row_at(i + 1) ? "," : "");
}
