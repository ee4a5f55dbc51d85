/* Linked into each test double: settings, the log of calls, mistakes of the caller, injected
 * errors. */
#include "double.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CALLS_MAX = 256, TEXT_BYTES = 16384 };

static struct {
    unsigned untold;
    char text[TEXT_BYTES], told[TEXT_BYTES];
    unsigned n_call, calls;
    struct {
        const char *name; /* a string literal */
        unsigned n;
    } call[CALLS_MAX];
    int log; /* file descriptor; -1: none */
    bool log_open;
} D = {.log = -1};

static pthread_mutex_t mutex;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_mutex(void)
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&mutex, &attr);
}

void weft_double_lock(void)
{
    pthread_once(&once, make_mutex);
    pthread_mutex_lock(&mutex);
}

void weft_double_unlock(void)
{
    pthread_mutex_unlock(&mutex);
}

/* -- Settings --------------------------------------------------------------------------------- */

const char *weft_double_text(const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "WEFT_DOUBLE_%s", name);
    const char *text = getenv(key);
    return text && *text ? text : NULL;
}

uint64_t weft_double_number(const char *name, uint64_t otherwise)
{
    const char *text = weft_double_text(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

bool weft_double_listed(const char *name, const char *word)
{
    const char *at = weft_double_text(name);
    size_t n = strlen(word);
    while (at && *at) {
        size_t len = strcspn(at, ",");
        if (len == n && memcmp(at, word, n) == 0)
            return true;
        at += len + (at[len] == ',');
    }
    return false;
}

/* -- Log and mistakes ------------------------------------------------------------------------- */

void weft_double_log(const char *format, ...)
{
    if (!D.log_open) {
        const char *path = weft_double_text("LOG");
        D.log = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
        D.log_open = true;
    }
    if (D.log < 0)
        return;
    char line[1024];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    size_t len = n < 0 ? 0 : (size_t)n < sizeof line - 1 ? (size_t)n : sizeof line - 2;
    line[len++] = '\n';
    if (write(D.log, line, len) < 0)
        D.log = -1;
}

void weft_double_mistake(const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    weft_double_lock();
    fprintf(stderr, "%s double: mistake: %s\n", weft_double_library, line);
    weft_double_log("MISTAKE: %s", line);
    size_t used = strlen(D.text);
    snprintf(D.text + used, sizeof D.text - used, "%s\n", line);
    D.untold++;
    weft_double_unlock();
}

unsigned weft_double_mistakes(const char **text)
{
    weft_double_lock();
    unsigned n = D.untold;
    memcpy(D.told, D.text, sizeof D.told);
    D.text[0] = '\0';
    D.untold = 0;
    if (text)
        *text = D.told;
    weft_double_unlock();
    return n;
}

unsigned weft_double_calls(void)
{
    return D.calls;
}

void weft_double_reset(void)
{
    weft_double_lock();
    weft_double_library_reset();
    D.untold = D.n_call = D.calls = 0;
    D.text[0] = '\0';
    if (D.log >= 0)
        close(D.log);
    D.log = -1;
    D.log_open = false;
    weft_double_unlock();
}

/* A program that ends with unreported mistakes fails, so they cannot be overlooked. */
__attribute__((destructor)) static void tell(void)
{
    if (D.untold) {
        fprintf(stderr, "%s double: %u mistakes\n", weft_double_library, D.untold);
        _exit(98);
    }
    weft_double_reset();
}

/* -- Injected errors: WEFT_DOUBLE_FAIL="cuMemAlloc:3=2,*:17=719" ------------------------------ */

static unsigned count_call(const char *call)
{
    D.calls++;
    for (unsigned i = 0; i < D.n_call; i++)
        if (strcmp(D.call[i].name, call) == 0)
            return ++D.call[i].n;
    if (D.n_call == CALLS_MAX)
        return 0;
    D.call[D.n_call].name = call;
    return D.call[D.n_call++].n = 1;
}

unsigned weft_double_fail(const char *call)
{
    unsigned nth = count_call(call);
    const char *at = weft_double_text("FAIL");
    while (at && *at) {
        char name[64];
        unsigned n, code;
        if (sscanf(at, "%63[^:]:%u=%u", name, &n, &code) == 3) {
            if (strcmp(name, "*") == 0 ? n == D.calls : strcmp(name, call) == 0 && n == nth)
                return code;
        }
        at += strcspn(at, ",");
        at += *at == ',';
    }
    return 0;
}

/* FNV-1a over words: only detects changed bytes. */
uint64_t weft_double_sum(const void *data, size_t bytes)
{
    const unsigned char *p = data;
    uint64_t h = 14695981039346656037ull;
    for (; bytes >= 8; bytes -= 8, p += 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        h = (h ^ w) * 1099511628211ull;
        h ^= h >> 29;
    }
    for (; bytes; bytes--, p++)
        h = (h ^ *p) * 1099511628211ull;
    return h ^ h >> 32;
}
