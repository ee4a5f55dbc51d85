/* Byte streams of connections: a socket, or TLS on one (OpenSSL 3).
 *
 * The handshake is a part of the first reads: the deadline of the first request bounds it as well.
 * TLS 1.2 with forward-secret AEAD suites, TLS 1.3; no renegotiation, no compression, no early
 * data. The protocol is negotiated by ALPN, and a client that offers only others is refused: a
 * request for one port must not be taken by the other (ALPACA attacks).
 *
 * A signature takes up to some milliseconds, so a turn of the loop has a short time for handshakes;
 * the others wait in handshakes.c, unread, until a later turn chooses them. When the files are read
 * again, a new context takes the place of the old one, which the connections that use it keep; so
 * tickets of the old one end too. */
#include "base/file.h"
#include "runtime/server/access_int.h"
#include "runtime/server/serve_int.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum {
    RECORD_BYTES = 16384,
    SMALL_BYTES = 1024,    /* of an answer that is copied into one piece */
    RECORD_HANDSHAKE = 22, /* type of a record with messages of the handshake */
    HELLO_BYTES = 16384,   /* a client's first message */
    VERIFY_DEPTH = 4,
    CERTIFICATES_BYTES = 32 << 10, /* of a client, with their chain */
    STEP_BYTES = 8 << 10,          /* of the client's, in one step of a handshake */
    READS_MAX = 128,               /* of a handshake */
    SMALL_READS_MAX = 32,          /* of a handshake that comes in records of a few bytes */
    SMALL_READ_BYTES = 16,
    LATER_STEPS = 2,             /* times the time of a turn, for steps behind the first */
    RECORDS_MAX = 16,            /* in one read */
    WASTE_FREE_BYTES = 32 << 10, /* heads, tags and messages of TLS itself that a client may send */
    WASTE_RATIO = 8              /* and more, for each byte of its requests */
};

static const uint64_t turn_ns = 500000; /* for handshakes, in one turn of the loop */

struct weft_tls {
    SSL_CTX *ctx;
    const char *protocol;
    const weft_serve_options *options;
    uint32_t connections; /* the most at once */
    weft_reloaded files;
    int64_t expires_s; /* when the certificate does, since the Unix epoch */
    weft_loop *loop;
    weft_handshakes waiting;
    uint64_t spent_ns; /* on handshakes, in this turn */
};

/* -- Context -------------------------------------------------------------------------------- */

static weft_err fail(weft_diag *diag, const char *file, const char *what)
{
    unsigned long code = ERR_peek_last_error();
    const char *why = code ? ERR_reason_error_string(code) : NULL;
    ERR_clear_error();
    return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = file}, "%s: %s", what,
                           why ? why : "unknown error");
}

/* Whether `name` is in a list of names with a blank between them. */
static bool is_listed(const char *list, const unsigned char *name, size_t len)
{
    while (*list) {
        size_t n = strcspn(list, " ");
        if (n == len && memcmp(list, name, n) == 0)
            return true;
        list += n + (list[n] == ' ');
    }
    return false;
}

static int select_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                           const unsigned char *in, unsigned in_len, void *user)
{
    const weft_tls *tls = user;
    (void)ssl;
    for (unsigned at = 0; at < in_len; at += 1u + in[at])
        if (at + 1 + in[at] <= in_len && is_listed(tls->protocol, in + at + 1, in[at])) {
            *out = in + at + 1;
            *out_len = in[at];
            return SSL_TLSEXT_ERR_OK;
        }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* Clients must have a certificate of this authority. */
static weft_err require_clients(SSL_CTX *ctx, const char *ca, weft_diag *diag)
{
    static const unsigned char session[] = "weft";
    STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(ca);
    if (!names || SSL_CTX_load_verify_file(ctx, ca) != 1) {
        sk_X509_NAME_pop_free(names, X509_NAME_free);
        return fail(diag, ca, "cannot load the authority of client certificates");
    }
    SSL_CTX_set_client_CA_list(ctx, names);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_CTX_set_verify_depth(ctx, VERIFY_DEPTH);
    SSL_CTX_set_max_cert_list(ctx, CERTIFICATES_BYTES);
    SSL_CTX_set_session_id_context(ctx, session, sizeof session - 1);
    return WEFT_ERR_OK;
}

/* OpenSSL would ask at the terminal for the password of a key, and wait for it. */
static int refuse_password(char *out, int size, int writing, void *asked)
{
    (void)out;
    (void)size;
    (void)writing;
    *(bool *)asked = true;
    return -1;
}

static weft_err load_key(SSL_CTX *ctx, const char *path, weft_diag *diag)
{
    bool asked = false;
    SSL_CTX_set_default_passwd_cb(ctx, refuse_password);
    SSL_CTX_set_default_passwd_cb_userdata(ctx, &asked);
    bool ok = SSL_CTX_use_PrivateKey_file(ctx, path, SSL_FILETYPE_PEM) == 1;
    SSL_CTX_set_default_passwd_cb_userdata(ctx, NULL);
    return ok ? WEFT_ERR_OK
              : fail(diag, path,
                     asked ? "is encrypted, and the server takes no password"
                           : "cannot load the key");
}

/* A pipe would keep the loop waiting. What cannot be read at all is told by OpenSSL. */
static weft_err check_regular(const char *path, weft_diag *diag)
{
    if (!path || access(path, R_OK) != 0 || weft_file_is_regular(path))
        return WEFT_ERR_OK;
    return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = path},
                           "is not a regular file");
}

static weft_err load(SSL_CTX *ctx, const weft_serve_options *o, weft_diag *diag)
{
    WEFT_TRY(check_regular(o->tls_cert, diag));
    WEFT_TRY(check_regular(o->tls_key, diag));
    WEFT_TRY(check_regular(o->tls_ca, diag));
    if (SSL_CTX_use_certificate_chain_file(ctx, o->tls_cert) != 1)
        return fail(diag, o->tls_cert, "cannot load the certificate");
    WEFT_TRY(load_key(ctx, o->tls_key, diag));
    if (SSL_CTX_check_private_key(ctx) != 1)
        return fail(diag, o->tls_key, "does not belong to the certificate");
    return o->tls_ca ? require_clients(ctx, o->tls_ca, diag) : WEFT_ERR_OK;
}

/* 0: unknown. */
static int64_t expiry_of(SSL_CTX *ctx)
{
    const X509 *certificate = SSL_CTX_get0_certificate(ctx);
    struct tm utc;
    bool ok = certificate && ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &utc) == 1;
    ERR_clear_error();
    return ok ? (int64_t)timegm(&utc) : 0;
}

/* Makes a context of the files and puts it in the place of the one before. */
static weft_err open_context(weft_tls *tls, weft_diag *diag)
{
    static const char suites[] = "ECDHE+AESGCM:ECDHE+CHACHA20";
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    if (!ctx || SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1 ||
        SSL_CTX_set_cipher_list(ctx, suites) != 1) {
        SSL_CTX_free(ctx);
        return fail(diag, NULL, "TLS");
    }
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_PRIORITIZE_CHACHA | SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    /* One message of TLS itself (KeyUpdate) at a time: OpenSSL would read on while there are more,
     * and a client can send them as fast as they are read. */
    SSL_CTX_clear_mode(ctx, SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_alpn_select_cb(ctx, select_protocol, tls);
    weft_err err = load(ctx, tls->options, diag);
    if (err != WEFT_ERR_OK) {
        SSL_CTX_free(ctx);
        return err;
    }
    SSL_CTX_free(tls->ctx);
    tls->ctx = ctx;
    tls->expires_s = expiry_of(ctx);
    return WEFT_ERR_OK;
}

static weft_err load_again(void *user, weft_diag *diag)
{
    return open_context(user, diag);
}

weft_err weft_tls__create(const weft_serve_options *o, const char *protocol, uint32_t connections,
                          weft_loop *loop, weft_reload *reload, weft_diag *diag, weft_tls **out)
{
    *out = NULL;
    if (!o->tls_cert && !o->tls_key && !o->tls_ca)
        return WEFT_ERR_OK;
    if (!o->tls_cert || !o->tls_key)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                               "TLS needs a certificate and its key");
    weft_tls *tls = calloc(1, sizeof *tls);
    if (!tls)
        return WEFT_ERR_NOMEM;
    *tls = (weft_tls){.protocol = protocol, .options = o, .connections = connections, .loop = loop};
    tls->files = (weft_reloaded){.name = strcmp(protocol, "h2") == 0 ? "tls-grpc" : "tls-http",
                                 .path = {o->tls_cert, o->tls_key, o->tls_ca},
                                 .n_path = o->tls_ca ? 3 : 2,
                                 .load = load_again,
                                 .user = tls};
    weft_reload__look(&tls->files);
    weft_err err = open_context(tls, diag);
    if (err != WEFT_ERR_OK) {
        weft_tls__destroy(tls);
        return err;
    }
    weft_reload__add(reload, &tls->files);
    *out = tls;
    return WEFT_ERR_OK;
}

void weft_tls__destroy(weft_tls *tls)
{
    if (!tls)
        return;
    SSL_CTX_free(tls->ctx);
    free(tls);
}

void weft_tls__begin_turn(weft_tls *tls)
{
    weft_stream *s;
    if (!tls)
        return;
    tls->spent_ns = 0;
    while (tls->spent_ns < turn_ns && (s = weft_handshakes__take(&tls->waiting))) {
        s->chosen = true;
        weft_loop__mute(tls->loop, s->fd, false);
        weft_loop__deliver(tls->loop, s->fd, EPOLLIN); /* which may close it */
    }
}

bool weft_tls__has_waiting(const weft_tls *tls)
{
    return tls && tls->waiting.first;
}

void weft_tls__write_metrics(const weft_tls *tls, weft_buf *out)
{
    static const char name[] = "weft_tls_certificate_expiry_seconds";
    if (tls)
        weft_buf_printf(out,
                        "# HELP %s When the certificate expires, since the Unix epoch\n"
                        "# TYPE %s gauge\n%s %lld\n",
                        name, name, name, (long long)tls->expires_s);
}

/* -- Streams -------------------------------------------------------------------------------- */

bool weft_stream__open(weft_stream *s, weft_tls *tls, int fd, weft_peer *peer)
{
    *s = (weft_stream){.fd = fd, .peer = peer, .tls = tls};
    if (!tls)
        return true;
    s->ssl = SSL_new(tls->ctx);
    if (!s->ssl || SSL_set_fd(s->ssl, fd) != 1) {
        SSL_free(s->ssl);
        s->ssl = NULL;
        ERR_clear_error();
        return false;
    }
    SSL_set_accept_state(s->ssl);
    return true;
}

void weft_stream__close(weft_stream *s)
{
    if (s->tls)
        weft_handshakes__leave(&s->tls->waiting, s);
    SSL_free(s->ssl);
    free(s->client);
    s->ssl = NULL;
    s->client = NULL;
    close(s->fd);
    s->fd = -1;
}

/* What an operation that returned `n` <= 0 means, in the terms of recv and send. `other`: it waits
 * for `other_code` instead of what it would wait for without TLS. */
static ssize_t result_of(weft_stream *s, int n, int other_code, bool *other)
{
    int code = SSL_get_error(s->ssl, n);
    ERR_clear_error();
    if (code == SSL_ERROR_ZERO_RETURN)
        return 0;
    *other = code == other_code;
    s->failed = code != SSL_ERROR_WANT_READ && code != SSL_ERROR_WANT_WRITE;
    errno = s->failed ? EPROTO : EAGAIN;
    return -1;
}

static ssize_t refuse(void)
{
    errno = EPROTO;
    return -1;
}

/* Whether a handshake has taken too many reads. */
static bool drags_on(const weft_stream *s)
{
    uint64_t received = BIO_number_read(SSL_get_rbio(s->ssl));
    return s->n_read > READS_MAX ||
           (s->n_read > SMALL_READS_MAX && received < (uint64_t)s->n_read * SMALL_READ_BYTES);
}

/* Reads bytes of messages of the handshake; false: one is announced that is too long. */
static bool scan_messages(weft_hello_scan *h, const uint8_t *at, size_t n)
{
    while (n > 0) {
        size_t take = n < h->message_left ? n : h->message_left;
        if (take == 0) {
            h->message[h->n_message++] = *at;
            take = 1;
            if (h->n_message == sizeof h->message) {
                const uint8_t *m = h->message;
                h->message_left = (uint32_t)m[1] << 16 | (uint32_t)m[2] << 8 | m[3];
                h->n_message = 0;
            }
            if (h->message_left > HELLO_BYTES)
                return false;
        } else
            h->message_left -= (uint32_t)take;
        at += take;
        n -= take;
    }
    return true;
}

/* Whether the next message is a client's first: before it, in it, or after it was asked to try
 * again. */
static bool awaits_hello(const SSL *ssl)
{
    OSSL_HANDSHAKE_STATE state = SSL_get_state(ssl);
    return state == TLS_ST_BEFORE || state == TLS_ST_SR_CLNT_HELLO || state == TLS_ST_EARLY_DATA;
}

/* Follows records as OpenSSL reads them, without encryption yet. OpenSSL takes memory for a first
 * message of up to 128 KiB as soon as it has its head; false: this one is too long. */
static bool scan_records(weft_hello_scan *h, const uint8_t *at, size_t n)
{
    while (n > 0) {
        size_t take = n < h->record_left ? n : h->record_left;
        if (take == 0) {
            h->record[h->n_record++] = *at;
            take = 1;
            if (h->n_record == sizeof h->record) {
                h->record_left = (uint32_t)h->record[3] << 8 | h->record[4];
                h->n_record = 0;
            }
        } else {
            if (h->record[0] == RECORD_HANDSHAKE && !scan_messages(h, at, take))
                return false;
            h->record_left -= (uint32_t)take;
        }
        at += take;
        n -= take;
    }
    return true;
}

/* What a step of a handshake may still read. */
typedef struct step_budget {
    size_t left;
    weft_stream *stream;
} step_budget;

/* Before and after reads of a handshake. */
static long limit_reads(BIO *bio, int operation, const char *at, size_t len, int i, long l,
                        int result, size_t *processed)
{
    step_budget *b = (step_budget *)(void *)BIO_get_callback_arg(bio);
    (void)len;
    (void)i;
    (void)l;
    if (operation == BIO_CB_READ && (b->left == 0 || drags_on(b->stream))) {
        BIO_clear_retry_flags(bio);
        BIO_set_retry_read(bio);
        return -1;
    }
    if (operation == (BIO_CB_READ | BIO_CB_RETURN) && result > 0 && processed) {
        b->left -= *processed < b->left ? *processed : b->left;
        b->stream->n_read++;
        if (awaits_hello(b->stream->ssl) &&
            !scan_records(&b->stream->hello, (const uint8_t *)at, *processed)) {
            BIO_clear_retry_flags(bio);
            return -1;
        }
    }
    return result;
}

/* SSL_do_handshake, for a step. */
static int step_handshake(weft_stream *s)
{
    BIO *bio = SSL_get_rbio(s->ssl);
    uint64_t start_ns = weft_clock__now_ns();
    step_budget budget = {.left = STEP_BYTES, .stream = s};
    BIO_set_callback_arg(bio, (char *)&budget);
    BIO_set_callback_ex(bio, limit_reads);
    ERR_clear_error();
    int done = SSL_do_handshake(s->ssl);
    BIO_set_callback_ex(bio, NULL);
    BIO_set_callback_arg(bio, NULL);
    s->tls->spent_ns += weft_clock__now_ns() - start_ns;
    return done;
}

/* Whether the next step of the handshake may be taken now. */
static bool may_go_on(weft_stream *s)
{
    weft_tls *tls = s->tls;
    /* What follows the server's first message is cheap. */
    if (BIO_number_written(SSL_get_wbio(s->ssl)) > 0)
        return tls->spent_ns < LATER_STEPS * turn_ns;
    if (s->chosen || (!tls->waiting.first && tls->spent_ns < turn_ns)) {
        s->chosen = false;
        return true;
    }
    weft_handshakes__add(&tls->waiting, s);
    weft_loop__mute(tls->loop, s->fd, true);
    if (weft_peers__floods(s->peer, tls->connections))
        weft_loop__deliver(tls->loop, s->peer->oldest->fd, EPOLLHUP); /* which closes it */
    return false;
}

/* Lets the handshake go on with what has arrived, for a read or a write. false: it is not over, and
 * *out is the result in the terms of recv and send: failed, or later, also where this turn has
 * taken enough of them. */
static bool shake_hands(weft_stream *s, bool writing, ssize_t *out)
{
    bool *other = writing ? &s->write_wants_read : &s->read_wants_write;
    *other = false;
    if (SSL_is_init_finished(s->ssl))
        return true;
    if (!may_go_on(s)) {
        *other = (SSL_want_write(s->ssl) != 0) != writing;
        errno = EAGAIN;
        *out = -1;
        return false;
    }
    int done = step_handshake(s);
    if (done == 1)
        s->shaken = BIO_number_read(SSL_get_rbio(s->ssl));
    if (done != 1)
        *out = result_of(s, done, writing ? SSL_ERROR_WANT_READ : SSL_ERROR_WANT_WRITE, other);
    if (done != 1 && drags_on(s)) {
        s->failed = true;
        *out = refuse();
    }
    return done == 1;
}

/* Whether the client sends records of a few bytes, or messages of TLS itself, without end: each
 * costs as much as a record of a kilobyte. */
static bool wastes_records(const weft_stream *s)
{
    uint64_t received = BIO_number_read(SSL_get_rbio(s->ssl)) - s->shaken;
    return received > WASTE_FREE_BYTES + (WASTE_RATIO + 1) * s->taken;
}

/* Into a large buffer, whole records only. */
static ssize_t read_records(weft_stream *s, char *to, size_t len)
{
    size_t have = 0, least = len < 2 * RECORD_BYTES ? 1 : RECORD_BYTES;
    for (int i = 0; i < RECORDS_MAX && len - have >= least; i++) {
        size_t n = len - have < INT32_MAX ? len - have : INT32_MAX;
        ERR_clear_error();
        int got = SSL_read(s->ssl, to + have, (int)n);
        if (got <= 0) {
            ssize_t result = result_of(s, got, SSL_ERROR_WANT_WRITE, &s->read_wants_write);
            s->ended = result == 0;
            return have ? (ssize_t)have : result;
        }
        have += (size_t)got;
        s->taken += (size_t)got;
    }
    return (ssize_t)have;
}

ssize_t weft_stream__read(weft_stream *s, void *to, size_t len)
{
    if (!s->ssl)
        return recv(s->fd, to, len, 0);
    if (s->failed)
        return refuse();
    if (s->ended)
        return 0;
    ssize_t later;
    if (!shake_hands(s, false, &later))
        return later;
    ssize_t n = read_records(s, to, len);
    if (!wastes_records(s))
        return n;
    s->failed = true;
    return refuse();
}

/* Writes one buffer. */
static ssize_t write_bytes(weft_stream *s, const char *at, size_t len)
{
    size_t sent = 0;
    ssize_t later;
    if (!shake_hands(s, true, &later))
        return later < 0 ? later : refuse();
    while (sent < len) {
        size_t n = len - sent < INT32_MAX ? len - sent : INT32_MAX;
        ERR_clear_error();
        int took = SSL_write(s->ssl, at + sent, (int)n);
        if (took <= 0) {
            ssize_t result = result_of(s, took, SSL_ERROR_WANT_READ, &s->write_wants_read);
            return sent ? (ssize_t)sent : result < 0 ? result : refuse();
        }
        sent += (size_t)took;
    }
    return (ssize_t)sent;
}

/* Copies what there is room for; returns its length. */
static size_t join(const struct iovec *part, int n_part, char *to, size_t room)
{
    size_t len = 0;
    for (int i = 0; i < n_part; i++) {
        size_t n = part[i].iov_len < room - len ? part[i].iov_len : room - len;
        if (n)
            memcpy(to + len, part[i].iov_base, n);
        len += n;
    }
    return len;
}

/* For the kernel one part costs less than several. */
static ssize_t send_parts(int fd, const struct iovec *part, int n_part)
{
    char joined[SMALL_BYTES];
    size_t len = 0;
    struct msghdr message = {.msg_iov = (struct iovec *)part, .msg_iovlen = (size_t)n_part};
    for (int i = 0; i < n_part; i++)
        len += part[i].iov_len;
    if (len > sizeof joined)
        return sendmsg(fd, &message, MSG_NOSIGNAL);
    return send(fd, joined, join(part, n_part, joined, sizeof joined), MSG_NOSIGNAL);
}

ssize_t weft_stream__write(weft_stream *s, const struct iovec *part, int n_part)
{
    char joined[RECORD_BYTES];
    if (!s->ssl && n_part == 1)
        return send(s->fd, part->iov_base, part->iov_len, MSG_NOSIGNAL);
    if (!s->ssl)
        return send_parts(s->fd, part, n_part);
    if (s->failed)
        return refuse();
    if (n_part == 1)
        return write_bytes(s, part->iov_base, part->iov_len);
    /* Head and small body become one record. */
    return write_bytes(s, joined, join(part, n_part, joined, sizeof joined));
}

/* The name of a URI or DNS entry; NULL: another kind, or no name that a key can have. */
static const char *name_of(const GENERAL_NAME *entry)
{
    if (entry->type != GEN_URI && entry->type != GEN_DNS)
        return NULL;
    /* Both are IA5String. */
    const ASN1_STRING *text = entry->d.ia5;
    const char *name = (const char *)ASN1_STRING_get0_data(text);
    return weft_key__is_name(name, (size_t)ASN1_STRING_length(text)) ? name : NULL;
}

/* The first of them, as an owned text; "": none. NULL: out of memory. */
static char *read_client(const SSL *ssl)
{
    X509 *certificate = SSL_get0_peer_certificate(ssl);
    GENERAL_NAMES *names =
        certificate ? X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL) : NULL;
    char *client = NULL;
    for (int i = 0; i < sk_GENERAL_NAME_num(names) && !client; i++) {
        const GENERAL_NAME *entry = sk_GENERAL_NAME_value(names, i);
        const char *name = name_of(entry);
        if (name)
            client = strndup(name, (size_t)ASN1_STRING_length(entry->d.ia5));
    }
    GENERAL_NAMES_free(names);
    ERR_clear_error();
    return client ? client : strdup("");
}

const char *weft_stream__client(weft_stream *s)
{
    /* Only a verified one tells who the client is. */
    if (!s->ssl || !s->tls->options->tls_ca || !SSL_is_init_finished(s->ssl))
        return NULL;
    if (!s->client)
        s->client = read_client(s->ssl);
    return s->client && s->client[0] ? s->client : NULL;
}

bool weft_stream__is_fresh(const weft_stream *s)
{
    return s->ssl && BIO_number_written(SSL_get_wbio(s->ssl)) == 0;
}

bool weft_stream__has_pending(const weft_stream *s)
{
    return s->ssl && !s->failed && (s->ended || SSL_pending(s->ssl) > 0);
}

void weft_stream__end(weft_stream *s)
{
    if (s->ssl && !s->failed && SSL_is_init_finished(s->ssl))
        SSL_shutdown(s->ssl);
    ERR_clear_error();
    shutdown(s->fd, SHUT_WR);
}
