/* base/cpus.h, base/cgroup.h: the limits of control groups, in trees made here. */
#include "base/cgroup.h"
#include "base/cpus.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char root[] = "test_cpus_XXXXXX";

static int make_root(void **state)
{
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

/* Writes a file below the root and makes the folders above it. */
static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *at = strchr(full, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        mkdir(full, 0755);
        *at = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void test_none(void **state)
{
    (void)state;
    assert_int_equal(weft_cpus_limit("/nonexistent"), 0);
}

static void test_version_2(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/pods/a/b\n");
    put("/proc/self/mountinfo", "22 1 0:20 / /proc rw - proc proc rw\n"
                                "29 22 0:25 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/pods/a/b/cpu.max", "max 100000\n");
    assert_int_equal(weft_cpus_limit(root), 0);
    put("/sys/fs/cgroup/pods/cpu.max", "400000 100000\n");
    assert_int_equal(weft_cpus_limit(root), 4000);
    put("/sys/fs/cgroup/pods/a/cpu.max", "150000 100000\n");
    assert_int_equal(weft_cpus_limit(root), 1500);
    put("/sys/fs/cgroup/pods/a/b/cpu.max", "20000 50000\n");
    assert_int_equal(weft_cpus_limit(root), 400);
    put("/sys/fs/cgroup/pods/a/b/cpu.max", "nonsense\n");
    assert_int_equal(weft_cpus_limit(root), 1500);
    /* A container that sees its own group as the root. */
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/cpu.max", "250000 100000\n");
    assert_int_equal(weft_cpus_limit(root), 2500);
}

static void test_memory(void **state)
{
    (void)state;
    assert_int_equal(weft_cgroup_memory_bytes("/nonexistent"), 0);
    put("/proc/self/cgroup", "0::/pods/a\n");
    put("/proc/self/mountinfo", "29 22 0:25 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/pods/a/memory.max", "max\n");
    assert_int_equal(weft_cgroup_memory_bytes(root), 0);
    put("/sys/fs/cgroup/pods/memory.max", "536870912\n");
    assert_int_equal(weft_cgroup_memory_bytes(root), 536870912);
    put("/sys/fs/cgroup/pods/a/memory.max", "1073741824\n");
    assert_int_equal(weft_cgroup_memory_bytes(root), 536870912);
    /* A mount that begins at a group whose name only begins like ours. */
    put("/proc/self/cgroup", "0::/pods/abc\n");
    put("/proc/self/mountinfo",
        "29 22 0:25 /pods/ab /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/memory.max", "268435456\n");
    put("/sys/fs/cgroupc/memory.max", "134217728\n");
    assert_int_equal(weft_cgroup_memory_bytes(root), 268435456);
    put("/proc/self/cgroup", "5:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n");
    put("/proc/self/mountinfo",
        "30 22 0:26 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
        "31 22 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(weft_cgroup_memory_bytes(root), 0);
    put("/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "272629760\n");
    assert_int_equal(weft_cgroup_memory_bytes(root), 272629760);
}

static void test_version_1(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "5:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n");
    put("/proc/self/mountinfo",
        "30 22 0:26 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
        "31 22 0:27 /docker /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n");
    put("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
    assert_int_equal(weft_cpus_limit(root), 0);
    put("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "300000\n");
    assert_int_equal(weft_cpus_limit(root), 3000);
    /* The mounted group of another name space. */
    put("/proc/self/cgroup", "3:cpu,cpuacct:/elsewhere/y\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    assert_int_equal(weft_cpus_limit(root), 500);
}

static void test_usable(void **state)
{
    cpu_set_t old, one;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof old, &old), 0);
    assert_in_range(weft_cpus_usable(), 1, (uintmax_t)CPU_COUNT(&old));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &old))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(weft_cpus_usable(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof old, &old), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none),      cmocka_unit_test(test_version_2),
        cmocka_unit_test(test_version_1), cmocka_unit_test(test_memory),
        cmocka_unit_test(test_usable),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
