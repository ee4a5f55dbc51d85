/* Progress lines. A thread writes them, because many phases call nothing that could: one GEMM
 * search, one pass over a large model.
 *
 * Processes of these programs fork and go on in the child (the solver): the thread then holds no
 * lock, neither of ours, nor of the allocator of a sanitizer, which a thread takes while it starts.
 */
#include "tools/common/progress.h"

#include "tools/common/tools.h"

#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { TEXT_MAX = 160, BAR_MAX = 30, BAR_MIN = 10, COLUMNS_USUAL = 80, COLUMNS_MAX = 400 };

static const double bar_after_s = 1, redraw_ms = 200, first_line_ms = 10e3, lines_ms = 30e3;
/* How often the thread looks where there is no terminal. */
static const double look_ms = 1e3;

static struct {
    pthread_mutex_t lock;
    pthread_once_t once;
    sem_t runs; /* the thread has started */
    bool is_quiet, is_terminal, has_color;
    char what[TEXT_MAX]; /* "": no phase */
    double start_ms;
    /* How much is done; total 0: unknown. `counts_ms`: since when, over all phases that count the
     * same. */
    const char *unit;
    double done, total, counts_ms;
    double next_ms; /* when a line is due */
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT};

/* -- The line ------------------------------------------------------------------------------- */

static int columns(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col < COLUMNS_MAX ? size.ws_col : COLUMNS_MAX;
    return COLUMNS_USUAL;
}

static void put_time(double s, char *out, size_t size)
{
    if (s < 90)
        snprintf(out, size, "%.0f s", s);
    else if (s < 5400)
        snprintf(out, size, "%.0f min", s / 60);
    else
        snprintf(out, size, "%.1f h", s / 3600);
}

/* "43 % 12/28 kernels, 3.1/s, 5 s left", or the time that it has taken. */
static void put_figures(double done, double total, const char *unit, double took_s, char *out,
                        size_t size)
{
    char left[32], rate[32] = "";
    bool is_time = strcmp(unit, "s") == 0;
    if (total <= 0 || done <= 0) {
        put_time(took_s, out, size);
        return;
    }
    put_time((total - done) * (is_time ? 1 : took_s / done), left, sizeof left);
    if (!is_time && took_s > 0)
        snprintf(rate, sizeof rate, ", %.*f/s", done / took_s < 10 ? 1 : 0, done / took_s);
    snprintf(out, size, "%3.0f %% %.0f/%.0f %s%s, %s left", 100 * done / total, done, total, unit,
             rate, left);
}

/* `width`: columns of the terminal; 0: for a log. */
static void format_line(const char *what, double done, double total, const char *unit,
                        double took_s, int width, char *out, size_t size)
{
    char figures[96] = "", bar[BAR_MAX + 5] = "";
    bool known = total > 0 && done > 0;
    if (took_s >= bar_after_s)
        put_figures(done, total, unit, took_s, figures, sizeof figures);
    int room = width ? width - 1 : (int)size - 1; /* the last column would wrap */
    int rest = room - (int)strlen(figures) - (figures[0] ? 2 : 0);
    int shown = rest < (int)strlen(what) ? rest : (int)strlen(what);
    shown = shown > 0 ? shown : 0;
    int cells = rest - shown - 4 < BAR_MAX ? rest - shown - 4 : BAR_MAX;
    if (width && known && figures[0] && cells >= BAR_MIN) {
        double part = done < total ? done / total : 1;
        memcpy(bar, "  [", 3);
        memset(bar + 3, '.', (size_t)cells);
        memset(bar + 3, '#', (size_t)(part * cells));
        bar[3 + cells] = ']';
    }
    snprintf(out, size, "%.*s%s%s%.*s", shown, what, bar, figures[0] ? "  " : "",
             room > 0 ? room : 0, figures);
}

/* -- When it is written --------------------------------------------------------------------- */

/* With the lock. */
static void draw(void)
{
    char line[COLUMNS_MAX + 1];
    double now_ms = weft_tool_now_ms();
    double took_s = (now_ms - (state.total > 0 ? state.counts_ms : state.start_ms)) * 1e-3;
    format_line(state.what, state.done, state.total, state.unit ? state.unit : "", took_s,
                state.is_terminal ? columns() : 0, line, sizeof line);
    if (state.is_terminal)
        fprintf(stderr, "\r\033[K%s%s%s", state.has_color ? "\033[36m" : "", line,
                state.has_color ? "\033[0m" : "");
    else
        fprintf(stderr, "%s\n", line);
    fflush(stderr);
    state.next_ms = now_ms + (state.is_terminal ? redraw_ms : lines_ms);
}

static void *redraw(void *unused)
{
    const double pause_ms = state.is_terminal ? redraw_ms : look_ms;
    const struct timespec pause = {.tv_sec = (time_t)(pause_ms / 1e3),
                                   .tv_nsec = (long)(fmod(pause_ms, 1e3) * 1e6)};
    (void)unused;
    sem_post(&state.runs);
    for (;;) {
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&state.lock);
        if (state.what[0] && weft_tool_now_ms() >= state.next_ms)
            draw();
        pthread_mutex_unlock(&state.lock);
    }
    return NULL;
}

static void before_fork(void)
{
    pthread_mutex_lock(&state.lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&state.lock);
}

static void begin(void)
{
    pthread_t thread;
    sigset_t all, before;
    state.is_terminal = isatty(STDERR_FILENO);
    state.has_color = weft_tool_has_color(stderr);
    state.next_ms = weft_tool_now_ms() + first_line_ms;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool ready = sem_init(&state.runs, 0, 0) == 0 &&
                 pthread_atfork(before_fork, after_fork, after_fork) == 0;
    if (ready && pthread_create(&thread, NULL, redraw, NULL) == 0) {
        pthread_detach(thread);
        while (sem_wait(&state.runs) != 0)
            ; /* EINTR */
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void weft_tool_progress(const char *fmt, ...)
{
    va_list ap;
    if (state.is_quiet)
        return;
    if (fmt)
        pthread_once(&state.once, begin);
    pthread_mutex_lock(&state.lock);
    if (!fmt && state.what[0] && state.is_terminal) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
    state.what[0] = '\0';
    state.done = state.total = 0;
    state.start_ms = weft_tool_now_ms();
    if (fmt) {
        va_start(ap, fmt);
        vsnprintf(state.what, sizeof state.what, fmt, ap);
        va_end(ap);
        if (state.is_terminal)
            draw();
    }
    pthread_mutex_unlock(&state.lock);
}

void weft_tool_advance(double done, double total, const char *unit)
{
    if (state.is_quiet)
        return;
    pthread_mutex_lock(&state.lock);
    bool is_new = state.total <= 0 && state.is_terminal; /* drawn without a bar so far */
    if (done <= 0 || !state.unit || strcmp(unit, state.unit) != 0)
        state.counts_ms = state.start_ms;
    state.done = done;
    state.total = total;
    state.unit = unit;
    if (state.what[0] && (is_new || weft_tool_now_ms() >= state.next_ms))
        draw();
    pthread_mutex_unlock(&state.lock);
}

void weft_tool_be_quiet(void)
{
    state.is_quiet = true;
}

bool weft_tool_is_quiet(void)
{
    return state.is_quiet;
}
