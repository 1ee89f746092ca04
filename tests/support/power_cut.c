/* Records what a program does to names and what it brings to the disk, for tests/support/power_cuts.py.
 *
 * Preloaded, it adds a line to $POWER_CUT_TRACE for each call that makes, moves, removes or syncs
 * a file or a directory, with inodes in place of paths:
 *
 *     create INODE PARENT NAME       a file or, as `mkdir`, a directory
 *     link INODE PARENT NAME         a second name
 *     rename PARENT NAME PARENT NAME
 *     remove PARENT NAME
 *     sync INODE COPY                what was synced lies in $POWER_CUT_COPIES/COPY
 *
 * One call at a time, of all processes and threads, so that the order is that of the disk.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

struct shared { int is_ready; pthread_mutex_t mutex; unsigned copies; };
static struct shared *shared;
static int trace = -1;
static const char *copies, *root;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("POWER_CUT_TRACE");
    char lock[4096];
    copies = getenv("POWER_CUT_COPIES");
    root = getenv("POWER_CUT_ROOT");
    if (!path || !copies || !root) return;
    snprintf(lock, sizeof lock, "%s/lock", copies);
    int file = REAL(open)(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (ftruncate(file, sizeof *shared)) abort();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared == MAP_FAILED) abort();
    close(file);
    if (!shared->is_ready) { /* by the first process, before it starts others */
        pthread_mutexattr_t kind;
        pthread_mutexattr_init(&kind);
        pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
        pthread_mutex_init(&shared->mutex, &kind);
        shared->is_ready = 1;
    }
    trace = REAL(open)(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (trace < 0) abort();
}

static void enter(void) { if (shared) pthread_mutex_lock(&shared->mutex); }

static void leave(void) {
    int kept = errno;
    if (shared) pthread_mutex_unlock(&shared->mutex);
    errno = kept;
}

static void note(const char *format, ...) {
    char line[8192];
    int kept = errno;
    va_list values;
    if (trace < 0) return;
    va_start(values, format);
    int size = vsnprintf(line, sizeof line, format, values);
    va_end(values);
    if (write(trace, line, size) != size) abort();
    errno = kept;
}

static unsigned long inode(int at, const char *path, int flags) {
    struct stat found;
    int kept = errno;
    unsigned long number = fstatat(at, path, &found, flags) ? 0 : found.st_ino;
    errno = kept;
    return number;
}

/* The directory that a path is in; its last name begins at `*name`. */
static unsigned long parent(int at, const char *path, const char **name) {
    char above[4096];
    snprintf(above, sizeof above, "%s", path);
    size_t end = strlen(above);
    while (end > 1 && above[end - 1] == '/') above[--end] = 0;
    char *slash = strrchr(above, '/');
    *name = path + (slash ? slash - above + 1 : 0);
    if (!slash) return inode(at, ".", 0);
    slash[1] = 0;
    return inode(at, above, 0);
}

static void note_new(const char *what, int at, const char *path) {
    const char *name;
    unsigned long above = parent(at, path, &name);
    note("%s\t%lu\t%lu\t%s\n", what, inode(at, path, AT_SYMLINK_NOFOLLOW), above, name);
}

static int opened(int at, const char *path, int flags, mode_t mode) {
    enter();
    int is_new = (flags & O_CREAT) && !inode(at, path, 0);
    int file = REAL(openat)(at, path, flags, mode);
    if (file >= 0 && is_new) note_new("create", at, path);
    leave();
    return file;
}

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list values; va_start(values, flags); mode = va_arg(values, mode_t); va_end(values); \
    }
int open(const char *path, int flags, ...) { MODE(flags) return opened(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) return opened(AT_FDCWD, path, flags | O_LARGEFILE, mode); }
int openat(int at, const char *path, int flags, ...) { MODE(flags) return opened(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE(flags) return opened(at, path, flags | O_LARGEFILE, mode); }

int mkdirat(int at, const char *path, mode_t mode) {
    enter();
    int failed = REAL(mkdirat)(at, path, mode);
    if (!failed) note_new("mkdir", at, path);
    leave();
    return failed;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int linkat(int from, const char *path, int at, const char *to, int flags) {
    enter();
    int failed = REAL(linkat)(from, path, at, to, flags);
    if (!failed) note_new("link", at, to);
    leave();
    return failed;
}
int link(const char *path, const char *to) { return linkat(AT_FDCWD, path, AT_FDCWD, to, 0); }

int renameat2(int from, const char *path, int at, const char *to, unsigned flags) {
    const char *name, *last;
    enter();
    unsigned long above = parent(from, path, &name), below = parent(at, to, &last);
    int failed = REAL(renameat2)(from, path, at, to, flags);
    if (!failed) note("rename\t%lu\t%s\t%lu\t%s\n", above, name, below, last);
    leave();
    return failed;
}
int renameat(int from, const char *path, int at, const char *to) { return renameat2(from, path, at, to, 0); }
int rename(const char *path, const char *to) { return renameat2(AT_FDCWD, path, AT_FDCWD, to, 0); }

int unlinkat(int at, const char *path, int flags) {
    const char *name;
    enter();
    unsigned long above = parent(at, path, &name);
    int failed = REAL(unlinkat)(at, path, flags);
    if (!failed) note("remove\t%lu\t%s\n", above, name);
    leave();
    return failed;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

/* Keep what a file holds now; 0 for what is no file below the root. */
static unsigned copied(int file) {
    char of[64], path[4096], block[65536];
    struct stat found;
    snprintf(of, sizeof of, "/proc/self/fd/%d", file);
    ssize_t size = readlink(of, path, sizeof path - 1);
    if (size < 0 || fstat(file, &found) || !S_ISREG(found.st_mode)) return 0;
    path[size] = 0;
    if (strncmp(path, root, strlen(root))) return 0;
    int from = REAL(openat)(AT_FDCWD, of, O_RDONLY | O_CLOEXEC, 0);
    snprintf(path, sizeof path, "%s/%u", copies, ++shared->copies);
    int to = REAL(openat)(AT_FDCWD, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (from < 0 || to < 0) abort();
    while ((size = read(from, block, sizeof block)) > 0)
        if (write(to, block, size) != size) abort();
    close(from);
    close(to);
    return shared->copies;
}

static int synced(int file, int (*sync_it)(int)) {
    struct stat found;
    enter();
    int failed = sync_it(file);
    if (!failed && trace >= 0 && !fstat(file, &found))
        note("sync\t%lu\t%u\n", (unsigned long)found.st_ino, copied(file));
    leave();
    return failed;
}
int fsync(int file) { return synced(file, REAL(fsync)); }
int fdatasync(int file) { return synced(file, REAL(fdatasync)); }
