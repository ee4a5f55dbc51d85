/* Private layout of modules. Everything is addressed by index, because the pools move when they
 * grow; types, weights and graphs are records of their own, so that pointers to them stay good.
 *
 *   nodes   op, attributes, location; a slice of the operand pool, a run of the value pool
 *   uses    operands of nodes: the value, and links of the list of that value's uses
 *   values  type, what defines them, first and last of their uses */
#ifndef WEFT_IR_IR_INT_H
#define WEFT_IR_IR_INT_H

#include "base/map.h"
#include "ir/ir.h"

/* Limits of the text form, which is untrusted. */
enum {
    WEFT_TEXT_MAX_BYTES = 256 << 20,
    WEFT_TEXT_MAX_NODES = 1 << 22,
    WEFT_TEXT_MAX_LIST = 1 << 20,
    WEFT_FOLLOW_MAX = 64, /* elements of an integer weight that inference tracks as content */
    WEFT_SELECT_MAX = 256 << 10,  /* bytes of a weight that inference selects elements of */
    WEFT_UNALIGNED_MAX = 64 << 10 /* bytes of a weight that inference copies to align it */
};
#define WEFT_TEXT_MAX_WEIGHT_BYTES ((uint64_t)4 << 30)

typedef struct weft_use_rec {
    uint32_t val; /* 0: omitted operand */
    uint32_t node;
    uint32_t prev, next; /* uses of the same value */
} weft_use_rec;

typedef struct weft_node_rec {
    uint16_t op;
    bool dead;
    uint32_t first_in, n_in, cap_in;
    uint32_t first_out, n_out;
    uint32_t prev, next;
    uint32_t graph; /* index of the graph */
    uint32_t n_attr;
    const weft_attr *attr; /* never changed in place: weft_node_attrs returns it */
    const char *item;
    uint32_t file_id, line;
} weft_node_rec;

typedef struct weft_val_rec {
    uint32_t type;
    uint32_t def; /* node, index of the graph, or weight */
    uint32_t idx; /* which result, which input */
    uint32_t first_use, last_use, n_use;
    uint32_t n_output; /* outputs of all graphs */
    uint8_t kind;      /* weft_val_kind */
} weft_val_rec;

typedef struct weft_type_rec {
    weft_ttype type;
    uint64_t hash;
    uint32_t same_hash; /* next type with this hash */
} weft_type_rec;

typedef struct weft_weight_rec {
    weft_weight_info info;
    weft_hash128 hash;
    bool hashed, random;
    uint64_t seed; /* of the generator, when random */
    weft_val val;
} weft_weight_rec;

typedef struct weft_module_file {
    const char *path;
    weft_file file;
    bool owned;
    bool is_text; /* parsed text: print.c omits locations in it */
} weft_module_file;

typedef struct weft_graph_port {
    const char *name;
    weft_val val;
} weft_graph_port;

typedef struct weft_graph_symbol_rec {
    const char *name;
    weft_dim dim;
} weft_graph_symbol_rec;

struct weft_graph {
    weft_module *m;
    const char *name;
    uint32_t idx;
    uint32_t first, last, n_node;
    WEFT_VEC(weft_graph_symbol_rec) symbols;
    WEFT_VEC(weft_graph_port) inputs;
    WEFT_VEC(weft_graph_port) outputs;
    WEFT_VEC(weft_bucket) buckets;
    WEFT_VEC(weft_part) parts;
    WEFT_VEC(weft_graph_require) requires;
    weft_map *require_of; /* hash of a requirement to its index; NULL: none yet */
    uint64_t limit;       /* of a joint graph */
    bool is_packed;       /* a joint graph of packed sequences */
    bool is_body;
    uint32_t n_user; /* of a body: nodes that run it; set by weft_body_check */
};

struct weft_module {
    weft_arena *arena;
    weft_dimpool *dims;
    weft_names *names;
    weft_stage stage;
    weft_map *type_ids; /* hash of a type to the first type with it */
    weft_map *copies;   /* hash of a weight to the first that weft_weight_add_copy made of it */
    WEFT_VEC(weft_type_rec *) types;
    WEFT_VEC(weft_weight_rec *) weights;
    WEFT_VEC(weft_graph *) graphs;
    weft_map *graph_names; /* hash of a name to the last graph created with it */
    WEFT_VEC(weft_node_rec) nodes;
    WEFT_VEC(weft_use_rec) uses;
    WEFT_VEC(weft_val_rec) vals;
    WEFT_VEC(weft_module_file) files;
};

/* Interned in the module; NULL stays NULL. Names are shown in messages and reports: control
 * characters in them become \xHH. */
const char *weft_module__text(weft_module *m, const char *s);
const char *weft_module__name(weft_module *m, const char *s);
weft_val weft_module__add_val(weft_module *m, const weft_val_rec *rec);
/* Contents of a mapped file, NULL unless the module owns it. */
const weft_file *weft_module__file(const weft_module *m, uint32_t file_id);

/* A symbol of the pool as symbol `name` of the graph. */
void weft_graph__add_symbol(weft_graph *g, const char *name, weft_dim dim);
/* Moves a node to the end of another graph, or before one of its nodes. */
void weft_node__move(weft_graph *from, weft_node n, weft_graph *to, weft_node before);
/* Characters of names in text. */
bool weft_text__is_name(char c);
/* A letter or '_', then name characters. */
bool weft_text__is_ident(const char *s);

typedef struct weft_content {
    const weft_dim *dim; /* NULL: unknown */
    uint32_t n;
} weft_content;

struct weft_contents {
    weft_module *m;
    weft_arena *arena;
    weft_map *entry; /* value to index of its entry */
    WEFT_VEC(weft_content) entries;
};

/* The bytes of a weight, aligned for its type; NULL if that needs too large a copy. */
const void *weft_contents__align(weft_arena *arena, const weft_weight_info *info, weft_dtype dtype,
                                 uint64_t limit);
/* weft_node_infer with the dims made in `pool`. */
WEFT_MUST_USE weft_err weft_node__infer(weft_node n, weft_dimpool *pool, weft_contents *contents,
                                        weft_diag *diag, weft_ttype *out, uint32_t n_out);

/* The same for a node with bodies (body.c). */
WEFT_MUST_USE weft_err weft_body__infer(weft_node n, weft_dimpool *pool, weft_contents *contents,
                                        weft_diag *diag, weft_ttype *out, uint32_t n_out);

/* -- Text ------------------------------------------------------------------------------------- */

/* weft_module_parse with a limit on the bytes of all weights that the text makes. */
WEFT_MUST_USE weft_err weft_module__parse(const char *text, size_t len, const char *file,
                                          const char *dir, uint64_t weight_bytes, weft_diag *diag,
                                          weft_module **out);

/* -- Weights with a generator ----------------------------------------------------------------- */

void weft_weight__set_random(weft_module *m, weft_weight w, uint64_t seed);
bool weft_weight__get_random(const weft_module *m, weft_weight w, uint64_t *out_seed);
/* Fills `bytes` as `random SEED` does: see README.md. */
void weft_weight__generate(weft_dtype dtype, uint64_t seed, uint64_t n, void *bytes);
/* Bytes of a PLAIN type with constant dims; false when it has none, or on overflow. */
bool weft_type__bytes(const weft_module *m, weft_type type, uint64_t *out);

#endif
