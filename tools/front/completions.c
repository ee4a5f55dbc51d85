/* Completions of verbs, options and words for three shells. Arguments that are files are left to
 * the shell. */
#include "tools/front/verb_table.h"

#include <string.h>

/* Text inside single quotes of a shell; characters of `escape` get a backslash. */
static void put_quoted(const char *text, const char *escape, const char *quote, FILE *to)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs(quote, to);
        else
            fprintf(to, strchr(escape, *text) ? "\\%c" : "%c", *text);
    }
}

/* The words of an argument with spaces between them. */
static void put_words(const char *arg, FILE *to)
{
    size_t len;
    const char *word;
    for (size_t i = 0; (word = weft_options_word(arg, i, &len)) && len > 0; i++)
        fprintf(to, "%s%.*s", i ? " " : "", (int)len, word);
}

static bool has_words(const char *arg)
{
    size_t len;
    return weft_options_word(arg, 0, &len) != NULL;
}

/* -- bash ------------------------------------------------------------------------------------- */

static void put_bash_verb(const weft_verb_row *verb, FILE *to)
{
    for (const weft_option *o = verb->option; o->kind != WEFT_OPTION_END; o++) {
        if (!o->name || !has_words(o->arg))
            continue;
        fprintf(to, "    '%s --%s') words='", verb->name, o->name);
        put_words(o->arg, to);
        fputs("' ;;\n", to);
    }
    fprintf(to, "    '%s '*) words='--help", verb->name);
    for (const weft_option *o = verb->option; o->kind != WEFT_OPTION_END; o++)
        if (o->name)
            fprintf(to, " --%s", o->name);
    fputs("' ;;\n", to);
}

static void print_bash(FILE *to)
{
    const weft_verb_row *verb;
    fputs("# Completions of weft for bash.\n"
          "_weft() {\n"
          "    local words='' current=${COMP_WORDS[COMP_CWORD]}\n"
          "    case \"${COMP_WORDS[1]} ${COMP_WORDS[COMP_CWORD - 1]}\" in\n",
          to);
    for (size_t i = 0; (verb = weft_verb_row_at(i)); i++)
        put_bash_verb(verb, to);
    fputs("    esac\n"
          "    [ \"$COMP_CWORD\" -gt 1 ] || words='--help --version",
          to);
    for (size_t i = 0; (verb = weft_verb_row_at(i)); i++)
        fprintf(to, " %s", verb->name);
    fputs("'\n"
          "    # Without a dash an argument is a file, unless the option before it has words.\n"
          "    case $words in --*) [ \"$COMP_CWORD\" -eq 1 ] || [ \"${current#-}\" != \"$current\" "
          "] ||\n"
          "        words='' ;; esac\n"
          "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
          "}\n"
          "complete -o default -F _weft weft\n",
          to);
}

/* -- zsh -------------------------------------------------------------------------------------- */

static void put_zsh_option(const weft_option *o, FILE *to)
{
    const char *const special = "[]:\\";
    if (o->letter)
        fprintf(to, " \\\n            '(-%c --%s)'{-%c,--%s", o->letter, o->name, o->letter,
                o->name);
    else
        fprintf(to, " \\\n            '--%s", o->name);
    fputs(o->letter ? "}'[" : o->arg ? "=[" : "[", to);
    put_quoted(o->help, special, "'\\''", to);
    fputc(']', to);
    if (o->arg) {
        fputc(':', to);
        put_quoted(has_words(o->arg) ? o->name : o->arg, special, "'\\''", to);
        fputs(has_words(o->arg) ? ":(" : ":_files", to);
        put_words(o->arg, to);
        fputs(has_words(o->arg) ? ")" : "", to);
    }
    fputc('\'', to);
}

static void print_zsh(FILE *to)
{
    const weft_verb_row *verb;
    fputs("#compdef weft\n"
          "# Completions of weft for zsh.\n"
          "_weft() {\n"
          "    local -a verbs=(",
          to);
    for (size_t i = 0; (verb = weft_verb_row_at(i)); i++) {
        fprintf(to, "\n        '%s:", verb->name);
        put_quoted(verb->brief, ":\\", "'\\''", to);
        fputc('\'', to);
    }
    fputs(")\n"
          "    if (( CURRENT == 2 )); then\n"
          "        _describe verb verbs\n"
          "        return\n"
          "    fi\n"
          "    local verb=$words[2]\n"
          "    shift words\n"
          "    (( CURRENT-- ))\n"
          "    case $verb in\n",
          to);
    for (size_t i = 0; (verb = weft_verb_row_at(i)); i++) {
        fprintf(to, "    %s)\n        _arguments '--help[print this text]' '*:file:_files'",
                verb->name);
        for (const weft_option *o = verb->option; o->kind != WEFT_OPTION_END; o++)
            if (o->name)
                put_zsh_option(o, to);
        fputs("\n        ;;\n", to);
    }
    fputs("    esac\n}\n_weft \"$@\"\n", to);
}

/* -- fish ------------------------------------------------------------------------------------- */

static void put_fish_option(const char *verb, const weft_option *o, FILE *to)
{
    fprintf(to, "complete -c weft -n '__fish_seen_subcommand_from %s' -l %s", verb, o->name);
    if (o->letter)
        fprintf(to, " -s %c", o->letter);
    if (has_words(o->arg)) {
        fputs(" -x -a '", to);
        put_words(o->arg, to);
        fputc('\'', to);
    } else if (o->arg) {
        fputs(" -r", to);
    }
    fputs(" -d '", to);
    put_quoted(o->help, "\\", "\\'", to);
    fputs("'\n", to);
}

static void print_fish(FILE *to)
{
    const weft_verb_row *verb;
    fputs("# Completions of weft for fish.\n", to);
    for (size_t i = 0; (verb = weft_verb_row_at(i)); i++) {
        fprintf(to, "complete -c weft -n __fish_use_subcommand -f -a %s -d '", verb->name);
        put_quoted(verb->brief, "\\", "\\'", to);
        fputs("'\n", to);
        for (const weft_option *o = verb->option; o->kind != WEFT_OPTION_END; o++)
            if (o->name)
                put_fish_option(verb->name, o, to);
    }
}

bool weft_completions_print(const char *shell, FILE *to)
{
    static const struct {
        const char *name;
        void (*print)(FILE *to);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++)
        if (strcmp(shells[i].name, shell) == 0) {
            shells[i].print(to);
            return true;
        }
    return false;
}
