/* Detached signatures of bundles: Ed25519 (RFC 8032) by OpenSSL. BUNDLE.sig is one line of text,
 *
 *   weft-signature-1 BASE64
 *
 * with the signature of the text "weft-bundle-1 HEX\n", HEX being the SHA-512 of the file: signer
 * and verifier read a bundle once and keep none of it. Keys are PEM files as `openssl genpkey
 * -algorithm ed25519` and `openssl pkey -pubout` write them; a file of public keys may have
 * several, so that keys can change, and one of them must have signed. */
#include "runtime/server/serve_int.h"

#include "base/file.h"

#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIGNATURE_BYTES = 64, DIGEST_BYTES = 64, BASE64_BYTES = 88, READ_BYTES = 1 << 18 };

static const char signature_mark[] = "weft-signature-1 ";
static const char message_mark[] = "weft-bundle-1 ";

enum {
    MESSAGE_BYTES = sizeof message_mark - 1 + 2 * DIGEST_BYTES + 1,
    FILE_BYTES = sizeof signature_mark - 1 + BASE64_BYTES + 1
};

/* -- Files ------------------------------------------------------------------------------------- */

/* The text that is signed for the bytes of a descriptor, whose position does not change. */
static weft_err make_message(int fd, const char *path, weft_diag *diag, char *out)
{
    unsigned char digest[DIGEST_BYTES], *part = malloc(READ_BYTES);
    EVP_MD_CTX *sum = EVP_MD_CTX_new();
    bool ok = part && sum && EVP_DigestInit_ex(sum, EVP_sha512(), NULL) == 1;
    weft_err err = ok ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
    for (off_t at = 0; err == WEFT_ERR_OK;) {
        ssize_t n = pread(fd, part, READ_BYTES, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            err = weft_diag_error(diag, WEFT_ERR_IO, (weft_where){.file = path}, "cannot be read");
        else if (n > 0 && EVP_DigestUpdate(sum, part, (size_t)n) != 1)
            err = WEFT_ERR_NOMEM;
        if (n <= 0)
            break;
        at += n;
    }
    if (err == WEFT_ERR_OK && EVP_DigestFinal_ex(sum, digest, NULL) != 1)
        err = WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK) {
        char *to = stpcpy(out, message_mark);
        for (int i = 0; i < DIGEST_BYTES; i++)
            to += sprintf(to, "%02x", digest[i]);
        *to = '\n';
    }
    EVP_MD_CTX_free(sum);
    free(part);
    return err;
}

/* The next key of a PEM file; NULL: there is no more. */
static EVP_PKEY *read_key(BIO *file, bool secret)
{
    EVP_PKEY *key = secret ? PEM_read_bio_PrivateKey(file, NULL, NULL, "")
                           : PEM_read_bio_PUBKEY(file, NULL, NULL, "");
    ERR_clear_error();
    return key;
}

static bool is_ed25519(EVP_PKEY *key)
{
    return EVP_PKEY_get_id(key) == EVP_PKEY_ED25519;
}

static weft_err refuse_key(weft_diag *diag, const char *path, bool secret)
{
    return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = path},
                           "has no %s Ed25519 key in PEM form",
                           secret ? "unencrypted private" : "public");
}

/* -- Signing ----------------------------------------------------------------------------------- */

weft_err weft_signature_make(const char *path, const char *key_path, weft_diag *diag, char *out)
{
    char message[MESSAGE_BYTES + 1];
    unsigned char raw[SIGNATURE_BYTES];
    size_t len = sizeof raw;
    int fd = -1;
    BIO *file = BIO_new_file(key_path, "r");
    EVP_PKEY *key = file ? read_key(file, true) : NULL;
    BIO_free(file);
    ERR_clear_error();
    if (!key || !is_ed25519(key)) {
        EVP_PKEY_free(key);
        return refuse_key(diag, key_path, true);
    }
    EVP_MD_CTX *sign = EVP_MD_CTX_new();
    weft_err err = weft_file_open(path, diag, &fd);
    if (err == WEFT_ERR_OK)
        err = make_message(fd, path, diag, message);
    if (err == WEFT_ERR_OK &&
        (!sign || EVP_DigestSignInit(sign, NULL, NULL, NULL, key) != 1 ||
         EVP_DigestSign(sign, raw, &len, (unsigned char *)message, MESSAGE_BYTES) != 1))
        err = WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK) {
        char *to = stpcpy(out, signature_mark);
        to += EVP_EncodeBlock((unsigned char *)to, raw, sizeof raw);
        strcpy(to, "\n");
    }
    if (fd >= 0)
        close(fd);
    EVP_MD_CTX_free(sign);
    EVP_PKEY_free(key);
    return err;
}

/* -- Checking ---------------------------------------------------------------------------------- */

/* Reads a signature file. false: it is none. */
static bool read_signature(int fd, unsigned char *raw)
{
    char text[FILE_BYTES + 1];
    unsigned char padded[BASE64_BYTES / 4 * 3 + 1];
    size_t len = 0, mark = sizeof signature_mark - 1;
    for (ssize_t n = 1; n > 0 && len<sizeof text; len += n> 0 ? (size_t)n : 0)
        n = TEMP_FAILURE_RETRY(pread(fd, text + len, sizeof text - len, (off_t)len));
    if (len != FILE_BYTES || memcmp(text, signature_mark, mark) != 0 || text[len - 1] != '\n')
        return false;
    /* 64 bytes end in two signs of padding, which count as zeros. */
    if (EVP_DecodeBlock(padded, (unsigned char *)text + mark, BASE64_BYTES) != SIGNATURE_BYTES + 2)
        return false;
    memcpy(raw, padded, SIGNATURE_BYTES);
    return true;
}

static bool verify(EVP_PKEY *key, const unsigned char *raw, const char *message)
{
    EVP_MD_CTX *check = EVP_MD_CTX_new();
    bool ok = check && EVP_DigestVerifyInit(check, NULL, NULL, NULL, key) == 1 &&
              EVP_DigestVerify(check, raw, SIGNATURE_BYTES, (const unsigned char *)message,
                               MESSAGE_BYTES) == 1;
    EVP_MD_CTX_free(check);
    ERR_clear_error();
    return ok;
}

weft_err weft_signature_check(int fd, int signature_fd, const char *path, const char *keys_path,
                              weft_diag *diag)
{
    unsigned char raw[SIGNATURE_BYTES];
    char message[MESSAGE_BYTES + 1];
    uint32_t n = 0;
    bool right = false;
    const weft_where where = {.file = path};
    if (!read_signature(signature_fd, raw))
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "its signature has a wrong form");
    WEFT_TRY(make_message(fd, path, diag, message));
    BIO *file = BIO_new_file(keys_path, "r");
    for (EVP_PKEY *key; file && !right && (key = read_key(file, false)); EVP_PKEY_free(key)) {
        n += is_ed25519(key);
        right = is_ed25519(key) && verify(key, raw, message);
    }
    BIO_free(file);
    ERR_clear_error();
    if (n == 0)
        return refuse_key(diag, keys_path, false);
    return right
               ? WEFT_ERR_OK
               : weft_diag_error(diag, WEFT_ERR_INPUT, where,
                                 "was not signed by a key of %s, or has changed since", keys_path);
}

char *weft_signature_path(const char *path)
{
    char *real = realpath(path, NULL), *name = NULL;
    if (asprintf(&name, "%s.sig", real ? real : path) < 0)
        name = NULL;
    free(real);
    return name;
}

/* Strictly below the folder, a link to the bundle is not followed. */
static weft_err open_signature(const char *folder, const char *path, char **out_name, int *out)
{
    if (!folder)
        *out_name = weft_signature_path(path);
    else if (asprintf(out_name, "%s.sig", path) < 0)
        *out_name = NULL;
    weft_diag *own = weft_diag_create();
    weft_err err = !own || !*out_name ? WEFT_ERR_NOMEM
                   : folder
                       ? weft_file_open_beneath(folder, *out_name + strlen(folder) + 1, own, out)
                       : weft_file_open(*out_name, own, out);
    weft_diag_destroy(own);
    return err;
}

weft_err weft_signature_require(int fd, const char *folder, const char *path, const char *keys_path,
                                weft_diag *diag)
{
    char *name = NULL;
    int signature = -1;
    weft_err err = open_signature(folder, path, &name, &signature);
    if (err == WEFT_ERR_OK) {
        err = weft_signature_check(fd, signature, path, keys_path, diag);
        close(signature);
    } else if (name) {
        err = weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = path},
                              "has no signature %s, which is required", name);
    }
    free(name);
    return err;
}
