/* Regions of shared memory, and the tensors of requests in them. */
#include "runtime/server/regions.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct region {
    struct region *next;
    weft_regions *regions;
    char name[WEFT_REGION_NAME_MAX], key[WEFT_REGION_KEY_MAX];
    uint64_t offset, bytes;
    int fd;
    uint32_t n_use; /* 1 while it is registered, and 1 for each tensor */
} region;

struct weft_regions {
    const char *prefix;
    region *first;
    uint32_t n;
    pthread_mutex_t
        lock; /* of n_use, and of `first` and `next`, which only the loop's thread changes */
};

/* A tensor in a region. */
typedef struct use {
    region *region; /* NULL: in none */
    uint64_t offset, bytes;
    void *data; /* of an input that is loaded */
} use;

struct weft_region_uses {
    uint32_t n_input, n_output;
    use use[]; /* inputs, then outputs */
};

weft_answer weft_regions__check_on(const weft_regions *regions, char *text)
{
    return regions ? WEFT_ANSWER_OK
                   : weft_answer__refuse(
                         WEFT_ANSWER_UNSUPPORTED, text,
                         "shared memory is off: the server was started without --shared-memory");
}

/* -- Regions -------------------------------------------------------------------------------- */

static void leave(region *r)
{
    weft_regions *all = r->regions;
    pthread_mutex_lock(&all->lock);
    bool last = --r->n_use == 0;
    pthread_mutex_unlock(&all->lock);
    if (!last)
        return;
    close(r->fd);
    free(r);
}

weft_regions *weft_regions__open(const char *prefix)
{
    weft_regions *all = calloc(1, sizeof *all);
    if (!all)
        return NULL;
    all->prefix = prefix;
    pthread_mutex_init(&all->lock, NULL);
    return all;
}

void weft_regions__close(weft_regions *regions)
{
    char text[WEFT_REQUEST_MESSAGE_MAX];
    if (!regions)
        return;
    (void)weft_regions__unregister(regions, NULL, text);
    pthread_mutex_destroy(&regions->lock);
    free(regions);
}

static region *find(const weft_regions *all, const char *name)
{
    region *r = all->first;
    while (r && strcmp(r->name, name) != 0)
        r = r->next;
    return r;
}

static weft_answer check_names(const weft_regions *all, const weft_region_info *i, char *text)
{
    if (!i->name[0] || strlen(i->name) >= WEFT_REGION_NAME_MAX)
        return weft_answer__refuse(WEFT_ANSWER_INVALID, text,
                                   "the name of a region has 1 to %d bytes",
                                   WEFT_REGION_NAME_MAX - 1);
    /* Lists of regions in JSON and Protocol Buffers have the texts. */
    if (!weft_utf8_is_text(i->name, strlen(i->name)) || !weft_utf8_is_text(i->key, strlen(i->key)))
        return weft_answer__refuse(WEFT_ANSWER_INVALID, text,
                                   "the name or key of a region is not UTF-8");
    if (find(all, i->name))
        return weft_answer__refuse(WEFT_ANSWER_INVALID, text, "region '%s' is registered already",
                                   i->name);
    if (i->key[0] != '/' || !i->key[1] || strchr(i->key + 1, '/') ||
        strlen(i->key) >= WEFT_REGION_KEY_MAX)
        return weft_answer__refuse(
            WEFT_ANSWER_INVALID, text,
            "the key of region '%s' is no name of shm_open: a slash and 1 to %d bytes", i->name,
            WEFT_REGION_KEY_MAX - 2);
    if (strncmp(i->key, all->prefix, strlen(all->prefix)) != 0)
        return weft_answer__refuse(
            WEFT_ANSWER_INVALID, text,
            "the key of region '%s' must begin with '%.64s' here (--shared-memory)", i->name,
            all->prefix);
    if (all->n == WEFT_REGIONS_MAX)
        return weft_answer__refuse(WEFT_ANSWER_UNAVAILABLE, text,
                                   "%d regions are registered already", WEFT_REGIONS_MAX);
    return WEFT_ANSWER_OK;
}

/* Whether `bytes` at `offset` are within `of`. */
static bool is_within(uint64_t offset, uint64_t bytes, uint64_t of)
{
    return offset <= of && bytes <= of - offset;
}

static weft_answer open_object(region *r, char *text)
{
    struct stat s;
    /* Non-blocking: an object with a lease (fcntl F_SETLEASE) is refused, and not waited for until
     * its owner gives the lease up. */
    r->fd = shm_open(r->key, O_RDWR | O_CLOEXEC | O_NONBLOCK, 0);
    if (r->fd < 0)
        return weft_answer__refuse(WEFT_ANSWER_INVALID, text,
                                   "region '%s': '%.64s' cannot be opened: %s", r->name, r->key,
                                   strerror(errno));
    if (fstat(r->fd, &s) == 0 && S_ISREG(s.st_mode) && r->bytes > 0 &&
        is_within(r->offset, r->bytes, (uint64_t)s.st_size))
        return WEFT_ANSWER_OK;
    close(r->fd);
    return weft_answer__refuse(WEFT_ANSWER_INVALID, text,
                               "region '%s': '%.64s' has no %" PRIu64 " bytes at %" PRIu64, r->name,
                               r->key, r->bytes, r->offset);
}

weft_answer weft_regions__register(weft_regions *regions, const weft_region_info *info, char *text)
{
    weft_answer answer = weft_regions__check_on(regions, text);
    if (answer == WEFT_ANSWER_OK)
        answer = check_names(regions, info, text);
    if (answer != WEFT_ANSWER_OK)
        return answer;
    region *r = calloc(1, sizeof *r);
    if (!r)
        return weft_answer__refuse(WEFT_ANSWER_INTERNAL, text, "out of memory");
    *r = (region){.next = regions->first,
                  .regions = regions,
                  .offset = info->offset,
                  .bytes = info->bytes,
                  .n_use = 1};
    strcpy(r->name, info->name);
    strcpy(r->key, info->key);
    answer = open_object(r, text);
    if (answer != WEFT_ANSWER_OK) {
        free(r);
        return answer;
    }
    pthread_mutex_lock(&regions->lock);
    regions->first = r;
    pthread_mutex_unlock(&regions->lock);
    regions->n++;
    return WEFT_ANSWER_OK;
}

weft_answer weft_regions__unregister(weft_regions *regions, const char *name, char *text)
{
    if (!regions)
        return weft_regions__check_on(regions, text);
    for (region **at = &regions->first, *r; (r = *at);) {
        if (name && name[0] && strcmp(r->name, name) != 0) {
            at = &r->next;
            continue;
        }
        pthread_mutex_lock(&regions->lock);
        *at = r->next;
        pthread_mutex_unlock(&regions->lock);
        regions->n--;
        leave(r);
    }
    return WEFT_ANSWER_OK;
}

weft_answer weft_regions__list(const weft_regions *regions, const char *name, weft_region_info *out,
                               size_t *out_n, char *text)
{
    bool all = !name || !name[0];
    *out_n = 0;
    if (!regions)
        return weft_regions__check_on(regions, text);
    for (const region *r = regions->first; r; r = r->next)
        if (all || strcmp(r->name, name) == 0)
            out[(*out_n)++] = (weft_region_info){r->name, r->key, r->offset, r->bytes};
    return all || *out_n ? WEFT_ANSWER_OK
                         : weft_answer__refuse(WEFT_ANSWER_NOT_FOUND, text,
                                               "there is no region '%.64s'", name);
}

/* -- Tensors of requests -------------------------------------------------------------------- */

/* The places of the request's tensors; NULL: out of memory. */
static weft_region_uses *uses_of(const weft_bundle_program *p, weft_request *r)
{
    if (r->regions)
        return r->regions;
    r->regions = calloc(1, sizeof *r->regions + ((size_t)p->n_input + p->n_output) * sizeof(use));
    if (r->regions) {
        r->regions->n_input = p->n_input;
        r->regions->n_output = p->n_output;
    }
    return r->regions;
}

/* Finds the region of a place, and counts a use of it. */
static weft_answer enter(weft_regions *regions, const weft_region_place *where, region **out,
                         char *text)
{
    weft_answer answer = WEFT_ANSWER_OK;
    pthread_mutex_lock(&regions->lock);
    region *of = *out = find(regions, where->name);
    if (!of)
        answer = weft_answer__refuse(WEFT_ANSWER_INVALID, text, "there is no region '%.64s'",
                                     where->name);
    else if (!is_within(where->offset, where->bytes, of->bytes))
        answer = weft_answer__refuse(WEFT_ANSWER_INVALID, text,
                                     "region '%s' has no %" PRIu64 " bytes at %" PRIu64, of->name,
                                     where->bytes, where->offset);
    else
        of->n_use++;
    pthread_mutex_unlock(&regions->lock);
    return answer;
}

/* `at`: among inputs and outputs. */
static weft_answer place(weft_regions *regions, const weft_bundle_program *p, weft_request *r,
                         uint32_t at, const weft_region_place *where, char *text)
{
    region *of;
    if (!regions)
        return weft_regions__check_on(regions, text);
    weft_region_uses *uses = uses_of(p, r);
    if (!uses)
        return weft_answer__refuse(WEFT_ANSWER_INTERNAL, text, "out of memory");
    weft_answer answer = enter(regions, where, &of, text);
    if (answer == WEFT_ANSWER_OK)
        uses->use[at] = (use){.region = of, .offset = where->offset, .bytes = where->bytes};
    return answer;
}

weft_answer weft_regions__place_input(weft_regions *regions, const weft_bundle_program *program,
                                      weft_request *request, uint32_t at,
                                      const weft_region_place *where, char *text)
{
    size_t bytes = weft_tensor_bytes(&request->in[at]);
    if (regions && where->bytes != bytes)
        return weft_answer__refuse(WEFT_ANSWER_INVALID, text,
                                   "input '%s' has %" PRIu64
                                   " bytes of shared memory, its shape needs %zu",
                                   program->input[at].name, where->bytes, bytes);
    return place(regions, program, request, at, where, text);
}

weft_answer weft_regions__place_output(weft_regions *regions, const weft_bundle_program *program,
                                       weft_request *request, uint32_t at,
                                       const weft_region_place *where, char *text)
{
    return place(regions, program, request, program->n_input + at, where, text);
}

bool weft_regions__has_input(const weft_request *request, uint32_t at)
{
    return request->regions && request->regions->use[at].region;
}

bool weft_regions__find_output(const weft_request *request, uint32_t at, weft_region_place *out)
{
    const weft_region_uses *uses = request->regions;
    const use *u = uses ? &uses->use[uses->n_input + at] : NULL;
    if (!u || !u->region)
        return false;
    *out = (weft_region_place){u->region->name, u->offset, u->bytes};
    return true;
}

bool weft_regions__has_inputs(const weft_request *request)
{
    for (uint32_t i = 0; request->regions && i < request->regions->n_input; i++)
        if (request->regions->use[i].region)
            return true;
    return false;
}

size_t weft_regions__input_bytes(const weft_request *request)
{
    size_t bytes = 0;
    for (uint32_t i = 0; request->regions && i < request->regions->n_input; i++)
        bytes += request->regions->use[i].region ? request->regions->use[i].bytes : 0;
    return bytes;
}

bool weft_regions__has_outputs(const weft_request *request)
{
    const weft_region_uses *uses = request->regions;
    for (uint32_t i = 0; uses && i < uses->n_output; i++)
        if (uses->use[uses->n_input + i].region)
            return true;
    return false;
}

static weft_answer load(use *u, char *text)
{
    size_t have = 0;
    u->data = malloc(u->bytes + 64);
    if (!u->data)
        return weft_answer__refuse(WEFT_ANSWER_INTERNAL, text, "out of memory");
    while (have < u->bytes) {
        ssize_t n = pread(u->region->fd, (char *)u->data + have, u->bytes - have,
                          (off_t)(u->region->offset + u->offset + have));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return weft_answer__refuse(n < 0 ? WEFT_ANSWER_INTERNAL : WEFT_ANSWER_INVALID, text,
                                       "region '%s' cannot be read: %s", u->region->name,
                                       n < 0 ? strerror(errno) : "its object has become smaller");
        have += (size_t)n;
    }
    return WEFT_ANSWER_OK;
}

weft_answer weft_regions__load(weft_request *request, char *text)
{
    weft_region_uses *uses = request->regions;
    for (uint32_t i = 0; i < uses->n_input; i++) {
        if (!uses->use[i].region)
            continue;
        weft_answer answer = load(&uses->use[i], text);
        if (answer != WEFT_ANSWER_OK)
            return answer;
        request->in[i].data = uses->use[i].data;
    }
    return WEFT_ANSWER_OK;
}

void weft_regions__drop_inputs(weft_request *request, weft_offload *offload)
{
    for (uint32_t i = 0; request->regions && i < request->regions->n_input; i++) {
        use *u = &request->regions->use[i];
        weft_offload__free(offload, u->data, u->bytes);
        u->data = NULL;
    }
}

static weft_answer store(const use *u, const weft_tensor *t, char *text)
{
    struct stat s;
    uint64_t at = u->region->offset + u->offset;
    size_t bytes = weft_tensor_bytes(t), have = 0;
    if (bytes > u->bytes)
        return weft_answer__refuse(WEFT_ANSWER_INVALID, text,
                                   "an output has %zu bytes, its place in region '%s' %" PRIu64,
                                   bytes, u->region->name, u->bytes);
    /* Writing must not make the object larger again. */
    if (fstat(u->region->fd, &s) != 0 || !is_within(at, bytes, (uint64_t)s.st_size))
        return weft_answer__refuse(WEFT_ANSWER_INVALID, text,
                                   "region '%s' cannot be written: its object has become smaller",
                                   u->region->name);
    while (have < bytes) {
        ssize_t n =
            pwrite(u->region->fd, (const char *)t->data + have, bytes - have, (off_t)(at + have));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return weft_answer__refuse(WEFT_ANSWER_INTERNAL, text,
                                       "region '%s' cannot be written: %s", u->region->name,
                                       n < 0 ? strerror(errno) : "no more space");
        have += (size_t)n;
    }
    return WEFT_ANSWER_OK;
}

weft_answer weft_regions__store(const weft_request *request, char *text)
{
    const weft_region_uses *uses = request->regions;
    weft_answer answer = WEFT_ANSWER_OK;
    for (uint32_t i = 0; uses && i < uses->n_output && answer == WEFT_ANSWER_OK; i++)
        if (uses->use[uses->n_input + i].region)
            answer = store(&uses->use[uses->n_input + i], &request->out[i], text);
    return answer;
}

void weft_regions__end_uses(weft_region_uses *uses)
{
    if (!uses)
        return;
    for (uint32_t i = 0; i < uses->n_input + uses->n_output; i++) {
        free(uses->use[i].data);
        if (uses->use[i].region)
            leave(uses->use[i].region);
    }
    free(uses);
}
