/* Asynchronous runs: a queue and one thread for each session that uses them. */
#include "api/api_int.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct api_job {
    api_job *next;
    weft_done *done;
    void *user;
    uint32_t n_in, n_out;
    weft_array array[]; /* inputs, then outputs */
};

/* Takes the next job; waits for one. NULL: the session stops. */
static api_job *next_job(api_session *s)
{
    pthread_mutex_lock(&s->queue_lock);
    s->is_busy = false;
    pthread_cond_broadcast(&s->changed);
    while (!s->first && !s->is_stopping)
        pthread_cond_wait(&s->changed, &s->queue_lock);
    api_job *job = s->first;
    if (job) {
        s->first = job->next;
        s->last = s->first ? s->last : NULL;
        s->is_busy = true;
    }
    pthread_mutex_unlock(&s->queue_lock);
    return job;
}

static void *run_jobs(void *user)
{
    api_session *s = user;
    for (api_job *job; (job = next_job(s)) != NULL; free(job)) {
        weft_error error = {.status = WEFT_OK};
        weft_array *out = job->array + job->n_in;
        weft_status status = weft_run(s, job->array, job->n_in, out, job->n_out, &error);
        job->done(job->user, out, job->n_out, status == WEFT_OK ? NULL : &error);
    }
    return NULL;
}

/* The thread takes no signals. The queue is locked. */
static bool start_thread(api_session *s)
{
    sigset_t all, before;
    if (s->has_thread)
        return true;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    s->has_thread = pthread_create(&s->thread, NULL, run_jobs, s) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return s->has_thread;
}

weft_status weft_run_async(api_session *session, const weft_array *in, uint32_t n_in,
                           const weft_array *out, uint32_t n_out, weft_done *done, void *user,
                           weft_error *error)
{
    api_session *s = session;
    if (!done || n_in != s->n_input || n_out != s->n_output || (n_in > 0 && !in) ||
        (n_out > 0 && !out))
        return weft_embed__say(
            error, WEFT_INPUT, "%s: %u inputs and %u outputs are given, the session has %u and %u",
            done ? "arrays" : "no function to call", n_in, n_out, s->n_input, s->n_output);
    api_job *job = malloc(sizeof *job + ((size_t)n_in + n_out) * sizeof job->array[0]);
    if (!job)
        return weft_embed__fail(error, WEFT_ERR_NOMEM, NULL);
    *job = (api_job){.done = done, .user = user, .n_in = n_in, .n_out = n_out};
    if (n_in > 0)
        memcpy(job->array, in, n_in * sizeof *in);
    if (n_out > 0)
        memcpy(job->array + n_in, out, n_out * sizeof *out);
    pthread_mutex_lock(&s->queue_lock);
    bool ok = start_thread(s);
    if (ok) {
        *(s->last ? &s->last->next : &s->first) = job;
        s->last = job;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->queue_lock);
    if (ok)
        return WEFT_OK;
    free(job);
    return weft_embed__say(error, WEFT_NO_MEMORY, "the system starts no thread");
}

void weft_wait(api_session *session)
{
    pthread_mutex_lock(&session->queue_lock);
    while (session->first || session->is_busy)
        pthread_cond_wait(&session->changed, &session->queue_lock);
    pthread_mutex_unlock(&session->queue_lock);
}

void weft_embed__end_async(api_session *s)
{
    if (!s->has_thread)
        return;
    weft_wait(s);
    pthread_mutex_lock(&s->queue_lock);
    s->is_stopping = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->queue_lock);
    pthread_join(s->thread, NULL);
}
