/* Replays files and the files of folders through a fuzz target without libFuzzer. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PATH_BYTES = 4096 };

static int replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    if (!f || fstat(fileno(f), &st) != 0) {
        fprintf(stderr, "%s: cannot be read\n", path);
        if (f)
            fclose(f);
        return 0;
    }
    size_t size = (size_t)st.st_size;
    /* A block of exactly the input's size, so that a sanitizer detects reads past it. */
    uint8_t *data = malloc(size ? size : 1);
    size_t got = data ? fread(data, 1, size, f) : 0;
    fclose(f);
    if (data && got == size)
        LLVMFuzzerTestOneInput(data, size);
    else
        fprintf(stderr, "%s: cannot be read\n", path);
    free(data);
    return data && got == size;
}

static int replay_folder(const char *path, DIR *dir)
{
    int ok = 1, n = 0;
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        char file[PATH_BYTES];
        if (e->d_name[0] == '.')
            continue;
        snprintf(file, sizeof file, "%s/%s", path, e->d_name);
        ok = replay_file(file) && ok;
        n++;
    }
    printf("%s: %d inputs\n", path, n);
    return ok && n > 0;
}

int main(int argc, char **argv)
{
    int ok = argc > 1;
    for (int i = 1; i < argc; i++) {
        DIR *dir = opendir(argv[i]);
        ok = (dir ? replay_folder(argv[i], dir) : replay_file(argv[i])) && ok;
        if (dir)
            closedir(dir);
    }
    return ok ? 0 : 1;
}
