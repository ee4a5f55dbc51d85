#!/usr/bin/env bash
# Libraries never print, exit or abort: errors are values. One exception is documented in
# base/arena.h: an arena that is exhausted with no one to unwind to aborts.
. "$(dirname "${BASH_SOURCE[0]}")/lint.sh"

pattern='(^|[^A-Za-z0-9_.>])(exit|_exit|_Exit|quick_exit|abort|printf|vprintf|puts|putchar|perror)[[:space:]]*\(|(fprintf|vfprintf|fputs|fputc|putc)[[:space:]]*\([^;]*(stderr|stdout)'
cd "$root"
for library in $libraries; do
    while read -r file; do
        case "$file" in "$library"/*) ;; *) continue ;; esac
        while IFS= read -r hit; do
            case "$file:$hit" in
            base/arena.c:*abort*) continue ;;
            # A child process ends itself after fork(), a worker in a signal handler: there is no
            # caller to return to.
            runtime/server/worker.c:*_exit* | scheduler/solve_cbc.c:*_exit* | runtime/server/worker_process.c:*_exit* | runtime/machine/mps.c:*_exit*) continue ;;
            esac
            fail "$file:$hit"
        done < <(
            # Comments are blanked, line numbers kept; a call broken over two lines is not searched.
            awk '{ line = $0; text = ""
                   while (length(line)) {
                       if (inside) { at = index(line, "*/"); if (!at) { line = ""; break }
                                     line = substr(line, at + 2); inside = 0 }
                       else { at = index(line, "/*"); if (!at) { text = text line; line = ""; break }
                              text = text substr(line, 1, at - 1) " "; line = substr(line, at + 2); inside = 1 } }
                   sub(/\/\/.*/, "", text); gsub(/"([^"\\]|\\.)*"/, "\"\"", text); print NR ": " text }' "$file" |
                grep -E "$pattern" || true
        )
    done < <(tree '*.c' '*.h' '*.def')
done
finish
