/* Reads PTX: kernels, their parameters, registers and instructions, variables of the module. */
#include "tests/ptx/ptx_int.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const op_name[] = {
#define OP(name) #name,
#include "tests/ptx/ptx_names.def"
};

static const char *const flag_name[] = {
#define FLAG(name) #name,
#include "tests/ptx/ptx_names.def"
};

static const struct {
    const char *name;
    unsigned bytes;
    char kind;
} type_row[] = {
    {"", 0, 0},
#define TYPE(name, bytes, kind) {#name, bytes, kind},
#include "tests/ptx/ptx_names.def"
};

unsigned ptx_type_bytes(ptx_type t)
{
    return type_row[t].bytes;
}

char ptx_type_kind(ptx_type t)
{
    return type_row[t].kind;
}

typedef struct label {
    char name[PTX_NAME];
    int at;
} label;

/* A family of registers ("%r<40>"): numbers from 0 to n - 1, or one register (n = 0). */
typedef struct family {
    char name[PTX_NAME];
    int first;
    unsigned n;
} family;

typedef struct reader {
    ptx_module *m;
    ptx_kernel *k; /* being read; NULL: outside of kernels */
    char *why;
    size_t why_size;
    bool failed;
    label *label;
    unsigned n_label;
    family *family;
    unsigned n_family;
    struct {
        unsigned insn;
        char name[PTX_NAME];
    } * jump;
    unsigned n_jump;
    struct {
        unsigned kernel, insn;
        char name[PTX_NAME];
    } * call;
    unsigned n_call;
    /* Shared variables declared outside of kernels. */
    struct {
        char name[PTX_NAME];
        unsigned bytes, align;
        bool dynamic;
    } outer[64];
    unsigned n_outer;
} reader;

static void refuse(reader *r, const char *format, ...)
{
    va_list ap;
    if (r->failed)
        return;
    r->failed = true;
    va_start(ap, format);
    vsnprintf(r->why, r->why_size, format, ap);
    va_end(ap);
}

/* Makes room for one more element of an array of n. */
#define GROW(array, n)                                                                     \
    do {                                                                                   \
        if (((n) & ((n)-1)) == 0) {                                                        \
            void *more_ = realloc((array), ((n) ? 2 * (size_t)(n) : 1) * sizeof *(array)); \
            if (!more_)                                                                    \
                abort();                                                                   \
            (array) = more_;                                                               \
        }                                                                                  \
    } while (0)

static void copy_name(char to[PTX_NAME], const char *from, size_t len)
{
    len = len < PTX_NAME - 1 ? len : PTX_NAME - 1;
    memcpy(to, from, len);
    to[len] = 0;
}

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.';
}

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static ptx_type find_type(const char *name, size_t len)
{
    for (size_t i = 1; i < sizeof type_row / sizeof *type_row; i++)
        if (strlen(type_row[i].name) == len && strncmp(type_row[i].name, name, len) == 0)
            return (ptx_type)i;
    return PTX_NONE;
}

/* -- Registers -------------------------------------------------------------------------------- */

static int add_register(reader *r, const char *name, size_t len, unsigned width, int kind,
                        uint64_t value)
{
    ptx_kernel *k = r->k;
    GROW(k->reg, k->n_reg);
    ptx_register *g = &k->reg[k->n_reg];
    memset(g, 0, sizeof *g);
    copy_name(g->name, name, len);
    g->width = width;
    g->kind = kind;
    g->value = value;
    return (int)k->n_reg++;
}

/* .reg .b32 %r<40>;  .reg .pred p, q; */
static void read_registers(reader *r, const char *at)
{
    at = strchr(at + 4, '.');
    size_t len = at ? strcspn(at + 1, " \t") : 0;
    ptx_type t = at ? find_type(at + 1, len) : PTX_NONE;
    if (t == PTX_NONE) {
        refuse(r, "registers of an unknown type: %.60s", at ? at : "");
        return;
    }
    for (at += 1 + len; *at && *at != ';';) {
        at += strspn(at, " \t,\n");
        size_t n = 0;
        while (is_name(at[n]))
            n++;
        if (!n)
            break;
        GROW(r->family, r->n_family);
        family *f = &r->family[r->n_family++];
        copy_name(f->name, at, n);
        f->first = (int)r->k->n_reg;
        f->n = at[n] == '<' ? (unsigned)strtoul(at + n + 1, NULL, 10) : 0;
        for (unsigned i = 0; i < (f->n ? f->n : 1); i++)
            add_register(r, at, n, ptx_type_bytes(t), PTX_PLAIN, 0);
        at += n;
        if (*at == '<')
            at = strchr(at, '>') + 1;
    }
}

static int find_constant(reader *r, int kind, uint64_t value)
{
    for (unsigned i = 0; i < r->k->n_reg; i++)
        if ((int)r->k->reg[i].kind == kind && r->k->reg[i].value == value && (kind != PTX_SPECIAL))
            return (int)i;
    return add_register(r, "", 0, 8, kind, value);
}

static int find_register(reader *r, const char *name, size_t len)
{
    /* Declared last: the innermost scope. */
    for (unsigned i = r->n_family; i-- > 0;) {
        const family *f = &r->family[i];
        size_t n = strlen(f->name);
        if (n > len || strncmp(f->name, name, n) != 0)
            continue;
        if (f->n == 0 && n == len)
            return f->first;
        if (f->n > 0 && n < len && isdigit((unsigned char)name[n])) {
            char *end;
            unsigned long number = strtoul(name + n, &end, 10);
            if (end == name + len && number < f->n)
                return f->first + (int)number;
        }
    }
    static const char *const special[] = {
        "%tid.x",   "%tid.y",   "%tid.z",    "%ntid.x",   "%ntid.y",   "%ntid.z", "%ctaid.x",
        "%ctaid.y", "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z", "%laneid"};
    for (unsigned i = 0; i < sizeof special / sizeof *special; i++)
        if (strlen(special[i]) == len && strncmp(special[i], name, len) == 0) {
            for (unsigned k = 0; k < r->k->n_reg; k++)
                if (r->k->reg[k].kind == PTX_SPECIAL && r->k->reg[k].value == i)
                    return (int)k;
            return add_register(r, name, len, 4, PTX_SPECIAL, i);
        }
    for (unsigned i = r->k->n_reg; i-- > 0;) /* the innermost scope */
        if (r->k->reg[i].kind >= PTX_SHARED_ADDRESS && strlen(r->k->reg[i].name) == len &&
            strncmp(r->k->reg[i].name, name, len) == 0)
            return (int)i;
    for (unsigned i = 0; i < r->m->n_variable; i++)
        if (strlen(r->m->variable[i].name) == len &&
            strncmp(r->m->variable[i].name, name, len) == 0)
            return find_constant(r, PTX_CONSTANT, (uint64_t)(uintptr_t)r->m->variable[i].at);
    refuse(r, "unknown operand %.*s", (int)len, name);
    return 0;
}

/* A number ("-5", "0x1F", "0f3F800000", "0d..."), a register, or a variable. */
static int read_operand(reader *r, const char *at, size_t len)
{
    if (len == 1 && *at == '_')
        return add_register(r, "_", 1, 8, PTX_PLAIN, 0);
    if (len > 2 && at[0] == '0' && (at[1] == 'f' || at[1] == 'd' || at[1] == 'F' || at[1] == 'D'))
        return find_constant(r, PTX_CONSTANT, strtoull(at + 2, NULL, 16));
    if (isdigit((unsigned char)*at) || *at == '-')
        return find_constant(r, PTX_CONSTANT,
                             *at == '-' ? (uint64_t)strtoll(at, NULL, 0) : strtoull(at, NULL, 0));
    return find_register(r, at, len);
}

/* -- Variables -------------------------------------------------------------------------------- */

/* "[16]" after a name; 1 without; 0: "[]" */
static size_t read_extent(const char *at)
{
    return *at == '[' ? strtoul(at + 1, NULL, 10) : 1;
}

/* .shared .align 16 .b8 name[512]; */
static void read_variable(reader *r, const char *at, bool shared, bool local)
{
    unsigned align = 1;
    const char *name, *p = strstr(at, ".align ");
    const char *end = at + strcspn(at, ";"), *own = at + strcspn(at, ";,)[{");
    if (p && p < own)
        align = (unsigned)strtoul(p + 7, NULL, 10);
    p = p && p < own ? p + 7 : at + 1;
    p = strchr(p, '.');
    size_t len = p ? strcspn(p + 1, " \t") : 0;
    ptx_type t = p ? find_type(p + 1, len) : PTX_NONE;
    if (t == PTX_NONE) {
        refuse(r, "a variable of an unknown type: %.80s", at);
        return;
    }
    name = p + 1 + len;
    name += strspn(name, " \t");
    size_t n = 0;
    while (is_name(name[n]))
        n++;
    size_t count = read_extent(name + n), bytes = count * ptx_type_bytes(t);
    if (shared && !r->k) {
        if (r->n_outer == sizeof r->outer / sizeof *r->outer) {
            refuse(r, "too many shared variables");
            return;
        }
        copy_name(r->outer[r->n_outer].name, name, n);
        r->outer[r->n_outer].bytes = (unsigned)bytes;
        r->outer[r->n_outer].align = align;
        r->outer[r->n_outer++].dynamic = count == 0;
    } else if (shared || local) {
        unsigned *all = shared ? &r->k->shared_bytes : &r->k->local_bytes;
        *all = (*all + align - 1) / align * align;
        add_register(r, name, n, 8, PTX_SHARED_ADDRESS, *all);
        *all += (unsigned)bytes;
    } else {
        GROW(r->m->variable, r->m->n_variable);
        ptx_variable *v = &r->m->variable[r->m->n_variable++];
        copy_name(v->name, name, n);
        v->bytes = bytes;
        v->at = calloc(bytes ? bytes : 1, 1);
        p = memchr(name, '{', (size_t)(end - name));
        for (size_t i = 0; p && v->at && i < count && p < end; i++) {
            uint64_t x = strtoull(p + 1, NULL, 0);
            memcpy(v->at + i * ptx_type_bytes(t), &x, ptx_type_bytes(t));
            p = memchr(p + 1, ',', (size_t)(end - p - 1));
        }
    }
}

/* -- Instructions ----------------------------------------------------------------------------- */

/* The parts of "mul.wide.s32". */
static void read_name(reader *r, ptx_insn *i, const char *at, size_t len)
{
    const char *end = at + len, *name = at;
    size_t n = strcspn(at, ". \t;");
    i->op = PTX_OP_COUNT;
    for (unsigned k = 0; k < PTX_OP_COUNT; k++)
        if (strlen(op_name[k]) == n && strncmp(op_name[k], at, n) == 0)
            i->op = (ptx_op)k;
    if (i->op == PTX_OP_COUNT)
        refuse(r, "unknown instruction %.*s", (int)len, at);
    i->vec = 1;
    i->space = PTX_GENERIC;
    for (at += n; at < end;) {
        at++;
        n = 0;
        while (at + n < end && at[n] != '.')
            n++;
        ptx_type t = find_type(at, n);
        bool known = t != PTX_NONE;
        static const struct {
            const char *name;
            ptx_space space;
        } spaces[] = {{"global", PTX_GLOBAL}, {"shared", PTX_SHARED}, {"shared::cta", PTX_SHARED},
                      {"local", PTX_LOCAL},   {"param", PTX_PARAM},   {"const", PTX_GLOBAL}};
        for (size_t k = 0; k < sizeof spaces / sizeof *spaces; k++)
            if (strlen(spaces[k].name) == n && strncmp(spaces[k].name, at, n) == 0) {
                i->space = spaces[k].space;
                known = true;
            }
        if (t != PTX_NONE) {
            if (i->n_type < PTX_TYPES_MAX)
                i->types[i->n_type++] = t;
            i->type = t;
        } else if (n == 2 && at[0] == 'v') {
            i->vec = (unsigned)(at[1] - '0');
            known = true;
        }
        for (unsigned k = 0; k < PTX_FLAG_COUNT; k++)
            if (strlen(flag_name[k]) == n && strncmp(flag_name[k], at, n) == 0) {
                i->flags[k / 64] |= 1ull << k % 64;
                known = true;
            }
        if (!known)
            refuse(r, "unknown part .%.*s of %.*s", (int)n, at, (int)len, name);
        at += n;
    }
}

/* Which orders of its operands setp accepts. */
static int accepted(const ptx_insn *i)
{
    static const struct {
        unsigned flag;
        int orders;
    } rows[] = {{PTX_F_eq, 2},   {PTX_F_ne, 5},   {PTX_F_lt, 1},  {PTX_F_le, 3},   {PTX_F_gt, 4},
                {PTX_F_ge, 6},   {PTX_F_lo, 1},   {PTX_F_ls, 3},  {PTX_F_hi, 4},   {PTX_F_hs, 6},
                {PTX_F_equ, 10}, {PTX_F_neu, 13}, {PTX_F_ltu, 9}, {PTX_F_leu, 11}, {PTX_F_gtu, 12},
                {PTX_F_geu, 14}, {PTX_F_num, 7},  {PTX_F_nan, 8}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        if (ptx_has(i, rows[k].flag))
            return rows[k].orders;
    return 0;
}

static void add_operand(reader *r, ptx_insn *i, const char *at, size_t len)
{
    bool negated = *at == '!';
    if (i->n == PTX_OPERANDS) {
        refuse(r, "too many operands: %.60s", i->text);
        return;
    }
    i->negated[i->n] = negated;
    i->a[i->n++] = read_operand(r, at + negated, len - negated);
}

static size_t operand_length(const char *at)
{
    size_t n = *at == '-' || *at == '!' ? 1 : 0;
    while (is_name(at[n]))
        n++;
    return n;
}

static bool is_variable(const reader *r, const char *name, size_t len)
{
    for (unsigned i = 0; i < r->k->n_reg; i++)
        if (r->k->reg[i].kind == PTX_SHARED_ADDRESS && strlen(r->k->reg[i].name) == len &&
            strncmp(r->k->reg[i].name, name, len) == 0)
            return true;
    return false;
}

/* "[%rd1+16]", "[param_0+8]" */
static const char *read_address(reader *r, ptx_insn *i, const char *at)
{
    int64_t offset = 0;
    at += strspn(at, " \t");
    size_t n = operand_length(at);
    if (i->space == PTX_PARAM && is_variable(r, at, n))
        i->space = PTX_LOCAL; /* of a call */
    if (i->space == PTX_PARAM) {
        unsigned k = 0;
        while (k < r->k->n_param &&
               !(strlen(r->k->param[k].name) == n && strncmp(r->k->param[k].name, at, n) == 0))
            k++;
        if (k == r->k->n_param)
            refuse(r, "unknown parameter %.*s", (int)n, at);
        i->a[i->n++] = (int)k;
    } else {
        add_operand(r, i, at, n);
    }
    at += n;
    at += strspn(at, " \t");
    if (*at == '+')
        offset = strtoll(at + 1, NULL, 0);
    if (i->n_address == sizeof i->offset / sizeof *i->offset)
        refuse(r, "too many addresses: %.60s", i->text);
    else
        i->offset[i->n_address++] = offset;
    return at + strcspn(at, "]") + 1;
}

static void read_operands(reader *r, ptx_insn *i, const char *at)
{
    while (!r->failed && *at && *at != ';') {
        at += strspn(at, " \t\n,|");
        if (*at == ';')
            break;
        if (i->n_group < sizeof i->group / sizeof *i->group)
            i->group[i->n_group++] = i->n;
        if (*at == '[') {
            at = read_address(r, i, at + 1);
        } else if (*at == '{') {
            for (at++; *at && *at != '}' && !r->failed;) {
                at += strspn(at, " \t\n,");
                size_t n = operand_length(at);
                add_operand(r, i, at, n);
                at += n;
                at += strspn(at, " \t\n,");
            }
            at++;
        } else {
            size_t n = operand_length(at);
            if (n == 0) {
                refuse(r, "operands cannot be read: %.80s", i->text);
                return;
            }
            add_operand(r, i, at, n);
            at += n;
        }
    }
}

/* "(retval0), name, (param0, param1)": operands are the addresses of these variables */
static void read_call(reader *r, ptx_insn *i, const char *at)
{
    while (!r->failed && *at && *at != ';') {
        at += strspn(at, " \t\n,");
        bool list = *at == '(';
        at += list;
        while (*at && *at != ';' && *at != ')') {
            at += strspn(at, " \t\n,");
            size_t n = operand_length(at);
            if (n == 0)
                break;
            if (list) {
                add_operand(r, i, at, n);
            } else {
                GROW(r->call, r->n_call);
                r->call[r->n_call].kernel = r->m->n_kernel - 1;
                r->call[r->n_call].insn = r->k->n_insn;
                copy_name(r->call[r->n_call++].name, at, n);
            }
            at += n;
            at += strspn(at, " \t\n");
            if (!list)
                break;
        }
        at += *at == ')';
    }
}

static void read_instruction(reader *r, const char *at)
{
    ptx_kernel *k = r->k;
    GROW(k->insn, k->n_insn);
    ptx_insn *i = &k->insn[k->n_insn];
    memset(i, 0, sizeof *i);
    i->text = at;
    i->guard = -1;
    if (*at == '@') {
        at++;
        i->guard_not = *at == '!';
        at += i->guard_not;
        size_t n = operand_length(at);
        i->guard = find_register(r, at, n);
        at += n;
        at += strspn(at, " \t\n");
    }
    size_t n = strcspn(at, " \t\n;");
    read_name(r, i, at, n);
    if (r->failed)
        return;
    i->orders = accepted(i);
    at += n;
    if (i->op == PTX_bra) {
        at += strspn(at, " \t\n");
        GROW(r->jump, r->n_jump);
        r->jump[r->n_jump].insn = k->n_insn;
        copy_name(r->jump[r->n_jump++].name, at, strcspn(at, "; \t\n"));
    } else if (i->op == PTX_call) {
        read_call(r, i, at);
    } else {
        read_operands(r, i, at);
    }
    k->n_insn++;
}

/* -- Kernels ---------------------------------------------------------------------------------- */

static void read_params(reader *r, const char *at, const char *end)
{
    while ((at = strstr(at, ".param")) && at < end) {
        at = strchr(at + 6, '.');
        size_t len = strcspn(at + 1, " \t\n");
        ptx_type t = find_type(at + 1, len);
        at += 1 + len;
        at += strspn(at, " \t\n");
        while (*at == '.') { /* .ptr .align 1 */
            at += strcspn(at, " \t\n");
            at += strspn(at, " \t\n0123456789");
        }
        size_t n = 0;
        while (is_name(at[n]))
            n++;
        if (t == PTX_NONE || at[n] == '[') {
            refuse(r, "a parameter of an unknown type: %.60s", at);
            return;
        }
        GROW(r->k->param, r->k->n_param);
        copy_name(r->k->param[r->k->n_param].name, at, n);
        r->k->param[r->k->n_param++].bytes = ptx_type_bytes(t);
    }
}

static void resolve_jumps(reader *r)
{
    for (unsigned i = 0; i < r->n_jump && !r->failed; i++) {
        unsigned l = 0;
        while (l < r->n_label && strcmp(r->label[l].name, r->jump[i].name) != 0)
            l++;
        if (l == r->n_label)
            refuse(r, "unknown label %s", r->jump[i].name);
        else
            r->k->insn[r->jump[i].insn].target = r->label[l].at;
    }
    r->n_jump = r->n_label = r->n_family = 0;
}

static void resolve_calls(reader *r)
{
    for (unsigned i = 0; i < r->n_call && !r->failed; i++) {
        unsigned k = 0;
        while (k < r->m->n_kernel && strcmp(r->m->kernel[k].name, r->call[i].name) != 0)
            k++;
        if (k == r->m->n_kernel)
            refuse(r, "unknown function %.200s", r->call[i].name);
        else
            r->m->kernel[r->call[i].kernel].insn[r->call[i].insn].target = (int)k;
    }
}

static void read_statement(reader *r, const char *at)
{
    if (starts(at, ".reg"))
        read_registers(r, at);
    else if (starts(at, ".shared"))
        read_variable(r, at, true, false);
    else if (starts(at, ".local") || starts(at, ".param"))
        read_variable(r, at, false, true);
    else if (*at != '.') /* .loc, .pragma */
        read_instruction(r, at);
}

/* The body after '{'; returns what follows its '}'. */
static const char *read_body(reader *r, const char *at)
{
    int depth = 1;
    while (!r->failed && *at) {
        at += strspn(at, " \t\n");
        if (*at == '{' || *at == '}') {
            depth += *at == '{' ? 1 : -1;
            at++;
            if (depth == 0)
                return at;
            continue;
        }
        size_t n = strcspn(at, " \t\n;:{");
        if (at[n] == ':' && at[n + 1] != ':') {
            GROW(r->label, r->n_label);
            copy_name(r->label[r->n_label].name, at, n);
            r->label[r->n_label++].at = (int)r->k->n_insn;
            at += n + 1;
            continue;
        }
        read_statement(r, at);
        at += strcspn(at, ";");
        at += *at == ';';
    }
    return at;
}

/* Reads the parameters of a function from `at` to `end` into its local memory. */
static void read_formals(reader *r, const char *at, const char *end)
{
    while ((at = strstr(at, ".param")) && at < end) {
        read_variable(r, at, false, true);
        if (r->failed)
            return;
        const ptx_register *g = &r->k->reg[r->k->n_reg - 1];
        GROW(r->k->formal, r->k->n_formal);
        ptx_param *p = &r->k->formal[r->k->n_formal++];
        memcpy(p->name, g->name, sizeof p->name);
        p->at = (unsigned)g->value;
        p->bytes = r->k->local_bytes - p->at;
        at += strlen(".param");
    }
}

/* ".entry NAME(PARAMETERS) {" or ".func (RESULT) NAME(PARAMETERS) {" */
static const char *read_kernel(reader *r, const char *at, bool is_function)
{
    const char *begin = at, *body = strchr(at, '{');
    if (!body) {
        refuse(r, "a kernel without a body");
        return at;
    }
    if (at + strcspn(at, ";") < body)
        return at + strcspn(at, ";"); /* declared, and defined later */
    at += strlen(is_function ? ".func" : ".entry");
    at += strspn(at, " \t\n");
    if (is_function && *at == '(')
        at = strchr(at, ')') + 1;
    at += strspn(at, " \t\n");
    GROW(r->m->kernel, r->m->n_kernel);
    r->k = &r->m->kernel[r->m->n_kernel++];
    memset(r->k, 0, sizeof *r->k);
    copy_name(r->k->name, at, strcspn(at, "( \t\n"));
    r->k->is_function = is_function;
    const char *most = strstr(at, ".maxntid");
    r->k->threads = most && most < body ? (unsigned)strtoul(most + 8, NULL, 10) : 1024;
    if (is_function)
        read_formals(r, begin, body);
    else
        read_params(r, at, body);
    for (unsigned i = 0; i < r->n_outer; i++) {
        unsigned align = r->outer[i].align;
        r->k->shared_bytes = (r->k->shared_bytes + align - 1) / align * align;
        add_register(r, r->outer[i].name, strlen(r->outer[i].name), 8,
                     r->outer[i].dynamic ? PTX_DYNAMIC_ADDRESS : PTX_SHARED_ADDRESS,
                     r->k->shared_bytes);
        /* Only variables that the kernel names take room. */
        const char *use = strstr(body, r->outer[i].name), *end = strstr(body, "\n}");
        if (!r->outer[i].dynamic && use && end && use < end)
            r->k->shared_bytes += r->outer[i].bytes;
    }
    at = read_body(r, body + 1);
    resolve_jumps(r);
    r->k = NULL;
    return at;
}

static void strip_comments(char *text)
{
    for (char *p = text; *p; p++) {
        if (p[0] == '/' && p[1] == '/') {
            while (*p && *p != '\n')
                *p++ = ' ';
        } else if (p[0] == '/' && p[1] == '*') {
            while (p[0] && !(p[0] == '*' && p[1] == '/'))
                *p++ = ' ';
            if (*p)
                p[0] = p[1] = ' ';
        }
        if (!*p)
            break;
    }
}

ptx_module *ptx_load(const char *text, char *why, size_t why_size)
{
    ptx_module *m = calloc(1, sizeof *m);
    reader r = {.m = m, .why = why, .why_size = why_size};
    if (!m || !(m->text = strdup(text)))
        abort();
    strip_comments(m->text);
    for (const char *at = m->text; *at && !r.failed;) {
        at += strspn(at, " \t\n;");
        if (starts(at, ".visible") || starts(at, ".extern") || starts(at, ".weak")) {
            at += strcspn(at, " \t\n");
        } else if (starts(at, ".entry")) {
            at = read_kernel(&r, at, false);
        } else if (starts(at, ".shared") || starts(at, ".global") || starts(at, ".const")) {
            read_variable(&r, at, starts(at, ".shared"), false);
            at += strcspn(at, ";");
        } else if (starts(at, ".func")) {
            at = read_kernel(&r, at, true);
        } else {
            at += strcspn(at, "\n");
        }
    }
    resolve_calls(&r);
    free(r.call);
    free(r.label);
    free(r.family);
    free(r.jump);
    if (r.failed) {
        ptx_unload(m);
        return NULL;
    }
    return m;
}

void ptx_unload(ptx_module *m)
{
    if (!m)
        return;
    for (unsigned i = 0; i < m->n_kernel; i++) {
        free(m->kernel[i].param);
        free(m->kernel[i].formal);
        free(m->kernel[i].reg);
        free(m->kernel[i].insn);
    }
    for (unsigned i = 0; i < m->n_variable; i++)
        free(m->variable[i].at);
    free(m->kernel);
    free(m->variable);
    free(m->text);
    free(m);
}

size_t ptx_kernels(const ptx_module *m)
{
    return m->n_kernel;
}

void ptx_kernel_at(const ptx_module *m, size_t i, ptx_kernel_info *out)
{
    const ptx_kernel *k = &m->kernel[i];
    *out = (ptx_kernel_info){.name = k->name, .threads = k->threads, .n_param = k->n_param};
}

unsigned ptx_kernel_param(const ptx_module *m, size_t i, unsigned param)
{
    return m->kernel[i].param[param].bytes;
}
