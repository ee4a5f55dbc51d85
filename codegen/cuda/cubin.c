/* Cubins are 64-bit ELF files. Section .nv.info holds records of attributes,
 *
 *   u8 format (4: a length and as many bytes; others have 2 bytes)  u8 attribute  u16 length/value
 *
 * Attributes 0x2f (registers) and 0x11 (stack frame) hold a symbol's number and a value, u32 each.
 * The length of section .nv.shared.NAME is the static shared memory of kernel NAME, plus 1 KiB if
 * the file has a section .nv.shared.reserved.0 (from sm_90 on). That KiB is the system's share of
 * each block; a block needs it from sm_80 on, with or without that section. Names of sections are
 * those that cuobjdump and nvdisasm print. */
#include "codegen/cuda/cubin.h"

#include <string.h>

enum {
    HEADER_BYTES = 64,
    SECTION_BYTES = 64,
    SYMBOL_BYTES = 24,
    SECTION_SYMBOLS = 2, /* SHT_SYMTAB */
    INFO_SIZED = 4,
    INFO_REGISTERS = 0x2f,
    INFO_FRAME = 0x11,
    SYSTEM_BYTES = 1024
};

typedef struct elf {
    const uint8_t *at;
    uint64_t bytes;
    uint64_t table; /* of sections */
    uint32_t n_section, names;
} elf;

typedef struct section {
    const char *name;
    uint32_t type, link;
    const uint8_t *at; /* NULL: not in the file */
    uint64_t bytes;
} section;

static uint64_t get(const uint8_t *at, unsigned bytes)
{
    uint64_t x = 0;
    for (unsigned i = 0; i < bytes; i++)
        x |= (uint64_t)at[i] << 8 * i;
    return x;
}

/* The string at `offset` of a string table; "" if the table does not terminate it. */
static const char *get_text(const section *s, uint64_t offset)
{
    if (!s->at || offset >= s->bytes || !memchr(s->at + offset, 0, (size_t)(s->bytes - offset)))
        return "";
    return (const char *)s->at + offset;
}

static section read_section(const elf *e, uint32_t i, const section *names)
{
    const uint8_t *at = e->at + e->table + (uint64_t)i * SECTION_BYTES;
    section s = {.name = "", .type = (uint32_t)get(at + 4, 4), .link = (uint32_t)get(at + 40, 4)};
    uint64_t offset = get(at + 24, 8);
    s.bytes = get(at + 32, 8);
    if (s.type != 8 && offset <= e->bytes &&
        s.bytes <= e->bytes - offset) /* 8 (SHT_NOBITS): no bytes in the file */
        s.at = e->at + offset;
    if (names)
        s.name = get_text(names, get(at, 4));
    return s;
}

static bool open_elf(const uint8_t *at, size_t bytes, elf *e)
{
    static const uint8_t magic[] = {0x7f, 'E', 'L', 'F', 2, 1};
    if (bytes < HEADER_BYTES || memcmp(at, magic, sizeof magic) != 0)
        return false;
    *e = (elf){at, bytes, get(at + 40, 8), (uint32_t)get(at + 60, 2), (uint32_t)get(at + 62, 2)};
    return get(at + 58, 2) == SECTION_BYTES && e->names < e->n_section && e->table <= bytes &&
           (uint64_t)e->n_section * SECTION_BYTES <= bytes - e->table;
}

static bool is_symbol(const elf *e, const section *symbols, uint32_t i, const char *name)
{
    if (!symbols->at || symbols->link >= e->n_section ||
        (uint64_t)i * SYMBOL_BYTES + SYMBOL_BYTES > symbols->bytes)
        return false;
    section text = read_section(e, symbols->link, NULL);
    return strcmp(get_text(&text, get(symbols->at + (uint64_t)i * SYMBOL_BYTES, 4)), name) == 0;
}

static void read_info(const elf *e, const section *info, const section *symbols, const char *name,
                      weft_bundle_resource *out)
{
    for (uint64_t at = 0; info->at && at + 4 <= info->bytes;) {
        const uint8_t *record = info->at + at;
        uint64_t len = record[0] == INFO_SIZED ? get(record + 2, 2) : 0;
        if (len > info->bytes - at - 4)
            return;
        if (len >= 8 && (record[1] == INFO_REGISTERS || record[1] == INFO_FRAME) &&
            is_symbol(e, symbols, (uint32_t)get(record + 4, 4), name)) {
            uint32_t value = (uint32_t)get(record + 8, 4);
            *(record[1] == INFO_REGISTERS ? &out->registers : &out->local_bytes) = value;
        }
        at += 4 + len;
    }
}

void weft_cubin_resource(const uint8_t *image, size_t bytes, const char *name,
                         weft_bundle_resource *out)
{
    static const char shared[] = ".nv.shared.";
    elf e;
    if (!open_elf(image, bytes, &e))
        return;
    section names = read_section(&e, e.names, NULL), symbols = {0}, info = {0};
    uint64_t system = 0, all = 0;
    for (uint32_t i = 0; i < e.n_section; i++) {
        section s = read_section(&e, i, &names);
        if (s.type == SECTION_SYMBOLS)
            symbols = s;
        else if (strcmp(s.name, ".nv.info") == 0)
            info = s;
        else if (strcmp(s.name, ".nv.shared.reserved.0") == 0)
            system = SYSTEM_BYTES;
        else if (strncmp(s.name, shared, sizeof shared - 1) == 0 &&
                 strcmp(s.name + sizeof shared - 1, name) == 0)
            all = s.bytes;
    }
    out->shared_bytes = (uint32_t)(all > system ? all - system : 0);
    read_info(&e, &info, &symbols, name, out);
}
