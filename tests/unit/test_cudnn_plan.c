/* Plans of the real cuDNN for convolutions, where it is installed; no GPU is needed. The double
 * that other tests use knows what this finds: tests/doubles.
 *
 * ctest label: slow */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/cuda/cudnn_plan.h"

#include <stdlib.h>
#include <string.h>

static const weft_libcudnn *lib;

static const struct {
    uint32_t capability, sms;
} devices[] = {{80, 108}, {89, 58}, {90, 132}, {100, 148}};

/* A convolution of `images` x `channels` x 28 x 28, 3 x 3. */
static weft_conv_key key_of(weft_dtype dtype, uint32_t flags, int64_t images, int64_t channels)
{
    weft_conv_key k = {.dtype = dtype, .flags = flags};
    k.dim[WEFT_CONV_IMAGES] = images;
    k.dim[WEFT_CONV_CHANNELS] = channels;
    k.dim[WEFT_CONV_FEATURES] = 64;
    k.dim[WEFT_CONV_GROUPS] = 1;
    for (int i = 0; i < 3; i++) {
        k.dim[WEFT_CONV_IN + i] = k.dim[WEFT_CONV_OUT + i] = i ? 28 : 1;
        k.dim[WEFT_CONV_PAD + i] = i ? 1 : 0;
        k.dim[WEFT_CONV_KERNEL + i] = i ? 3 : 1;
        k.dim[WEFT_CONV_STRIDE + i] = k.dim[WEFT_CONV_DILATION + i] = 1;
    }
    return k;
}

/* Chooses a plan and makes it again from its text. */
static void check_plan(weft_cudnn_device *d, const weft_conv_key *k)
{
    weft_cudnn_plan *plan = weft_cudnn__choose(d, k);
    if (!plan)
        fail_msg("type %u, flags %u: %s", k->dtype, k->flags, d->why);
    char *text = weft_cudnn__text(plan);
    assert_non_null(text);
    assert_non_null(strstr(text, "\"engineId\":"));
    weft_cudnn_plan *again = weft_cudnn__restore(d, text);
    assert_non_null(again);
    assert_true(weft_cudnn__workspace(again) == weft_cudnn__workspace(plan));
    weft_cudnn__drop(again);
    weft_cudnn__drop(plan);
    free(text);
}

/* Every form of a convolution that is emitted has a plan for each device and type. */
static void test_cudnn_plan__has_every_form(void **state)
{
    (void)state;
    static const uint32_t forms[] = {0, WEFT_CONV_BIAS, WEFT_CONV_BIAS | WEFT_CONV_RELU,
                                     WEFT_CONV_BIAS | WEFT_CONV_Z,
                                     WEFT_CONV_BIAS | WEFT_CONV_Z | WEFT_CONV_RELU};
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        weft_cudnn_device d;
        const weft_sm_limits *sm = weft_sm_limits_find(devices[i].capability);
        if (!weft_cudnn__imagine(&d, lib, sm, devices[i].sms, 1ull << 36))
            fail_msg("sm_%u: %s", devices[i].capability, d.why);
        for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
            const weft_conv_key keys[] = {
                key_of(WEFT_DTYPE_F32, forms[f], 1, 32),
                key_of(WEFT_DTYPE_F32, forms[f] | WEFT_CONV_TF32, 8, 32),
                key_of(WEFT_DTYPE_F16, forms[f], 8, 32),
                key_of(WEFT_DTYPE_BF16, forms[f], 8, 30),
            };
            for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
                weft_conv_key last = keys[k];
                last.flags |= WEFT_CONV_LAST;
                check_plan(&d, &keys[k]);
                check_plan(&d, &last);
            }
        }
        weft_cudnn__forget(&d);
    }
}

/* Engines multiply along the channels: where these are innermost they need no room for images in
 * another layout. */
static void test_cudnn_plan__converts_no_images_with_channels_innermost(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        weft_cudnn_device d;
        weft_conv_key k = key_of(
            WEFT_DTYPE_F16, WEFT_CONV_BIAS | WEFT_CONV_Z | WEFT_CONV_RELU | WEFT_CONV_LAST, 8, 64);
        uint64_t image_bytes = 8 * 64 * 28 * 28 * 2;
        assert_true(weft_cudnn__imagine(&d, lib, weft_sm_limits_find(devices[i].capability),
                                        devices[i].sms, 1ull << 36));
        weft_cudnn_plan *plan = weft_cudnn__choose(&d, &k);
        assert_non_null(plan);
        assert_true(weft_cudnn__workspace(plan) < image_bytes / 4);
        weft_cudnn__drop(plan);
        weft_cudnn__forget(&d);
    }
}

/* The same device and convolution give the same text. */
static void test_cudnn_plan__repeats(void **state)
{
    (void)state;
    char *text[2];
    for (int i = 0; i < 2; i++) {
        weft_cudnn_device d;
        weft_conv_key k = key_of(WEFT_DTYPE_F16, WEFT_CONV_BIAS, 4, 64);
        assert_true(weft_cudnn__imagine(&d, lib, weft_sm_limits_find(90), 132, 1ull << 36));
        weft_cudnn_plan *plan = weft_cudnn__choose(&d, &k);
        assert_non_null(plan);
        text[i] = weft_cudnn__text(plan);
        weft_cudnn__drop(plan);
        weft_cudnn__forget(&d);
    }
    assert_string_equal(text[0], text[1]);
    free(text[0]);
    free(text[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cudnn_plan__has_every_form),
        cmocka_unit_test(test_cudnn_plan__converts_no_images_with_channels_innermost),
        cmocka_unit_test(test_cudnn_plan__repeats),
    };
    if (weft_libcudnn__get(NULL, &lib) != WEFT_ERR_OK) {
        print_message("skipped: no cuDNN\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
