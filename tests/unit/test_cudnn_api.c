/* Our declarations of cuDNN's backend API against NVIDIA's header, where there is one: values and
 * prototypes, at compile time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#ifdef WEFT_CUDNN_HEADERS
#include "runtime/cuda/cudnn_api.h"

#include <cudnn.h>

_Static_assert(CUDNN_MAJOR == 9, "the interface is that of cuDNN 9");
_Static_assert(sizeof(weft_cudnn_status) == sizeof(cudnnStatus_t), "cudnnStatus_t");
#define X(name, value) _Static_assert((unsigned)(name) == (value), #name);
WEFT_CUDNN_VALUES(X)
#undef X
#define CUDNN_SYM(result, name, args) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), result(*) args), #name);
#include "runtime/cuda/cudnn_syms.def"
#undef CUDNN_SYM

/* What was compared is compared when this file compiles; here the number of it. */
static void test_cudnn_api__equals_nvidias_header(void **state)
{
    (void)state;
    int n = 0;
#define X(name, value) n++;
    WEFT_CUDNN_VALUES(X)
#undef X
    print_message("%d values of cuDNN %d.%d\n", n, CUDNN_MAJOR, CUDNN_MINOR);
    assert_true(n > 80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cudnn_api__equals_nvidias_header)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void)
{
    print_message("skipped: no folder has cudnn.h of cuDNN\n");
    return 77;
}
#endif
