# A manual page, with the macros of man(7), of a document in Markdown: headings, paragraphs, lists, tables,
# fenced text; code and emphasis inside lines. A row of a table is a paragraph with a tag: the first cell, and
# in brackets all but the last one, which is the text.
#
# usage: awk -v name=weft-set -v section=5 -v brief=TEXT -v release=TEXT [-v only='HEADING|HEADING']
#            [-v see='PAGE(N), PAGE(N)'] -f man_page.awk DOCUMENT.md
#   only  headings of the second level to keep (default: all); what stands before the first is kept always

function escape(text)
{
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    gsub(/–/, "\\(en", text)
    return text
}

function tag_of(text)
{
    return text ~ /`/ ? inline(text) : "\\fB" inline(text) "\\fR"
}

# Links become their text; `code` and **text** bold, *text* italic.
function inline(text,    part, n, i, out)
{
    while (match(text, /\[[^][]*\]\([^)]*\)/)) {
        out = substr(text, RSTART + 1, index(substr(text, RSTART), "](") - 2)
        text = substr(text, 1, RSTART - 1) out substr(text, RSTART + RLENGTH)
    }
    n = split(text, part, "`")
    out = ""
    for (i = 1; i <= n; i++) {
        if (i % 2 == 0) {
            out = out "\\fB" escape(part[i]) "\\fR"
            continue
        }
        part[i] = escape(part[i])
        while (match(part[i], /\*\*[^*]+\*\*/))
            part[i] = substr(part[i], 1, RSTART - 1) "\\fB" substr(part[i], RSTART + 2, RLENGTH - 4) "\\fR" \
                substr(part[i], RSTART + RLENGTH)
        while (match(part[i], /\*[^* ][^*]*\*/))
            part[i] = substr(part[i], 1, RSTART - 1) "\\fI" substr(part[i], RSTART + 1, RLENGTH - 2) "\\fR" \
                substr(part[i], RSTART + RLENGTH)
        out = out part[i]
    }
    return out
}

# A line of text that roff would take for a request.
function put(text)
{
    print (text ~ /^[.']/ ? "\\&" : "") text
}

function flush()
{
    if (paragraph != "") {
        print opening
        put(inline(paragraph))
    }
    paragraph = ""
    opening = ".PP"
}

function heading(level, text)
{
    flush()
    header = ""
    if (level == 1 && !titles++)
        return
    if (level == 1)
        parts = 1
    if (level == 2 && only != "")
        skipped = index("|" only "|", "|" text "|") == 0
    if (skipped)
        return
    gsub(/`/, "", text)
    print (level == 1 || (level == 2 && !parts) ? ".SH " : ".SS ") "\"" \
        escape(level == 2 && !parts ? toupper(text) : text) "\""
}

function row(line,    cell, n, i, note)
{
    gsub(/\\\|/, "\001", line)
    sub(/^\| */, "", line)
    sub(/ *\|[ ]*$/, "", line)
    n = split(line, cell, / *\| */)
    for (i = 1; i <= n; i++)
        gsub(/\001/, "|", cell[i])
    if (header == "") {
        header = line == "" ? " " : line
        for (i = 1; i <= n; i++)
            title[i] = cell[i]
        return
    }
    if (cell[1] ~ /^-+$/)
        return
    for (i = 2; i < n; i++)
        if (cell[i] != "")
            note = note (note == "" ? "" : "; ") (title[i] == "" ? "" : title[i] ": ") cell[i]
    print ".TP"
    put(tag_of(cell[1]) (note == "" ? "" : " (" inline(note) ")"))
    put(inline(cell[n]))
}

BEGIN {
    printf ".TH %s %s \"\" \"%s\"\n", escape(toupper(name)), section, release
    printf ".SH NAME\n%s \\- %s\n.SH DESCRIPTION\n", escape(name), escape(brief)
    opening = ".PP"
}

/^```/ {
    if (!skipped) {
        flush()
        print fenced ? ".fi\n.RE" : ".PP\n.RS 4\n.nf"
    }
    fenced = !fenced
    next
}
fenced {
    if (!skipped)
        put(escape($0))
    next
}
/^#+ / {
    text = $0
    sub(/^#+ /, "", text)
    heading(index($0, " ") - 1, text)
    next
}
skipped { next }
/^\|/ {
    flush()
    row($0)
    next
}
{ header = "" }
/^[-*] / {
    flush()
    opening = ".IP \\(bu 2"
    paragraph = substr($0, 3)
    next
}
/^ *$/ {
    flush()
    next
}
{
    sub(/^ +/, "")
    paragraph = paragraph (paragraph == "" ? "" : " ") $0
}

END {
    flush()
    print ".SH \"SEE ALSO\""
    put(escape(see))
}
