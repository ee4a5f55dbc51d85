/* Kinds of files by their first bytes. */
#include "base/file_guess.h"

#include <stdint.h>
#include <string.h>

enum { HEAD_MAX = 512 };

static const struct {
    size_t at;
    const char *magic;
    size_t len;
    const char *text;
} kinds[] = {
#define KIND(at, magic, text)                          \
    {                                                  \
        at, magic, sizeof magic - 1, ": this is " text \
    }
    KIND(0, "WEFT", "a bundle, which run, bench and serve take"),
    KIND(0, "PK\003\004", "a zip archive, as PyTorch writes; torch.onnx.export makes an ONNX file"),
    KIND(0, "\200\002", "a pickle, as PyTorch writes; torch.onnx.export makes an ONNX file"),
    KIND(0, "\211HDF", "an HDF5 file, as Keras writes; tf2onnx makes an ONNX file of it"),
    KIND(4, "TFL3", "a TensorFlow Lite model; tf2onnx makes an ONNX file of it"),
    KIND(4, "ORTM", "onnxruntime's own format; the ONNX file that it was made of is needed"),
    KIND(0, "<net", "a model of OpenVINO; the ONNX file that it was made of is needed"),
    KIND(8, "{\"", "a safetensors file: weights without a model"),
    KIND(0, "\223NUMPY", "a .npy array"),
    KIND(0, "\037\213", "compressed by gzip; unpack it first"),
    KIND(0, "<?xml", "XML"),
    KIND(0, "wir ", "a model as text IR"),
#undef KIND
};

bool weft_file_is_onnx(const void *bytes, size_t len)
{
    const uint8_t *at = bytes;
    return len > 3 && at[0] == 8 && at[1] > 0 && at[1] < 32 && (at[2] >> 3) > 1 &&
           (at[2] & 7) < 3 && (at[2] & 7) != 1;
}

/* The first line that is neither empty nor a comment. */
static const char *first_line(const char *text)
{
    while (*text == '#' || strchr(" \t\r\n", *text)) {
        if (!*text)
            break;
        text += *text == '#' ? strcspn(text, "\n") : 1;
    }
    return text;
}

static bool begins(const char *text, const char *word)
{
    return strncmp(text, word, strlen(word)) == 0;
}

/* Of YAML. */
static const char *guess_text(const char *text)
{
    const char *line = first_line(text);
    if (begins(line, "models:") || begins(line, "families:") || begins(line, "apps:"))
        return ": this seems to be a set file, which compile, estimate and plan take";
    if (begins(line, "devices:"))
        return ": this seems to be a fleet file, for plan --fleet";
    return "";
}

const char *weft_file_guess_format(const void *bytes, size_t len)
{
    const char *at = bytes;
    if (len == 0)
        return ": the file is empty";
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (len >= kinds[i].at + kinds[i].len &&
            memcmp(at + kinds[i].at, kinds[i].magic, kinds[i].len) == 0)
            return kinds[i].text;
    if (weft_file_is_onnx(bytes, len))
        return ": this is an ONNX model; weft compile makes a bundle of it, a set file names it "
               "with its rate and SLO";
    return *at == '{' ? ": this is JSON" : "";
}

const char *weft_file_guess(const void *bytes, size_t len)
{
    char head[HEAD_MAX + 1];
    const char *format = weft_file_guess_format(bytes, len);
    if (*format)
        return format;
    len = len < HEAD_MAX ? len : HEAD_MAX;
    memcpy(head, bytes, len);
    head[len] = '\0';
    return guess_text(head);
}
