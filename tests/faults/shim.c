/* What a process writes below a directory, counted, and failed, killed or stopped at one call.
 *
 * Loaded by LD_PRELOAD, and of no effect until `faults_arm` is called. Calls are counted in memory
 * that the process shares with whoever started it and with its own children; threads count together.
 * A call on a descriptor belongs to the file that /proc/self/fd says. Files that are opened for
 * reading count where a process is to stand still: what it reads may change before it writes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { TRACED = 4096, LONGEST = 240 };
enum action { COUNT, FAIL, FULL, KILL, HALF, STOP, TERM };

struct shared { /* as `Shared` in shim.py has it */
  _Atomic long calls;
  _Atomic long hits;
  char trace[TRACED][LONGEST];
};

static struct shared *shared;
static char root[PATH_MAX];
static long at_call, offset_seconds;
static int what_to_do, error_number, counts_reads;

void faults_arm(struct shared *memory, const char *below, long at, int action, int error,
                int reads) {
  snprintf(root, sizeof root, "%s/", below);
  at_call = at, what_to_do = action, error_number = error, counts_reads = reads;
  shared = memory;
}

void faults_clock(long seconds) { offset_seconds = seconds; }

/* The path of a descriptor; empty if it has none. */
static void path_of(int fd, char *path) {
  char link[64];
  ssize_t size = 0;
  if (fd != AT_FDCWD) snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  size = syscall(SYS_readlinkat, AT_FDCWD, fd == AT_FDCWD ? "/proc/self/cwd" : link, path,
                 PATH_MAX - 1);
  path[size < 0 ? 0 : size] = 0;
}

/* Where a name leads, seen from a directory's descriptor. */
static void resolve(int fd, const char *name, char *path) {
  int behind = 0;
  if (sscanf(name, "/proc/self/fd/%d%n", &fd, &behind) == 1 ||
      sscanf(name, "/dev/fd/%d%n", &fd, &behind) == 1)
    name += behind + (name[behind] == '/');
  path[0] = 0;
  if (name[0] != '/') {
    path_of(fd, path);
    if (name[0]) strncat(path, "/", PATH_MAX - 1 - strlen(path));
  }
  strncat(path, name, PATH_MAX - 1 - strlen(path));
}

/* What is to become of a call: 0 it is made, -1 it fails, 1 half of it is made, and no more. */
static int turn(const char *call, const char *path, int needs_space) {
  if (strncmp(path, root, strlen(root))) return 0;
  int kept_error = errno;
  long call_number = atomic_fetch_add(&shared->calls, 1) + 1;
  if (call_number <= TRACED)
    snprintf(shared->trace[call_number - 1], LONGEST, "%s %s", call, path + strlen(root));
  int full = what_to_do == FULL && call_number >= at_call && needs_space;
  errno = kept_error;
  if (call_number != at_call && !full) return 0;
  if (what_to_do == COUNT || (what_to_do == FULL && !full)) return 0;
  atomic_fetch_add(&shared->hits, 1);
  if (what_to_do == KILL) raise(SIGKILL);
  if (what_to_do == STOP) raise(SIGSTOP);
  if (what_to_do == TERM) kill(getpid(), SIGTERM);
  if (what_to_do == HALF) return 1;
  if (what_to_do != FAIL && what_to_do != FULL) return 0;
  errno = error_number;
  return -1;
}

static int turn_at(const char *call, int fd, const char *name, int needs_space) {
  char path[PATH_MAX];
  if (!shared || !name) return 0;
  resolve(fd, name, path);
  return turn(call, path, needs_space);
}

static int turn_of(const char *call, int fd, int needs_space) {
  char path[PATH_MAX];
  if (!shared) return 0;
  path_of(fd, path);
  return turn(call, path, needs_space);
}

/* Make a call, as its turn says. */
#define PASS(type, name, turn_taken, half, ...)                            \
  static type (*real_##name)();                                            \
  if (!real_##name) real_##name = (type(*)())dlsym(RTLD_NEXT, #name);      \
  int taken = turn_taken;                                                  \
  if (taken < 0) return -1;                                                \
  if (taken > 0) {                                                         \
    half;                                                                  \
    raise(SIGKILL);                                                        \
  }                                                                        \
  return real_##name(__VA_ARGS__)

#define MODE(flags)                            \
  mode_t mode = 0;                             \
  if ((flags) & (O_CREAT | O_TMPFILE)) {       \
    va_list more;                              \
    va_start(more, flags);                     \
    mode = va_arg(more, mode_t);               \
    va_end(more);                              \
  }

static int turn_open(int fd, const char *name, int flags) {
  if ((flags & O_ACCMODE) == O_RDONLY && !(flags & (O_CREAT | O_TRUNC)))
    return counts_reads && !(flags & (O_DIRECTORY | O_PATH)) ? turn_at("read", fd, name, 0) : 0;
  return turn_at("open", fd, name, (flags & O_CREAT) != 0);
}

#define OPEN(name)                                                                             \
  int name(const char *path, int flags, ...) {                                                 \
    MODE(flags)                                                                                \
    PASS(int, name, turn_open(AT_FDCWD, path, flags), real_##name(path, flags, mode), path, flags, \
         mode);                                                                                \
  }
#define OPENAT(name)                                                                           \
  int name(int fd, const char *path, int flags, ...) {                                         \
    MODE(flags)                                                                                \
    PASS(int, name, turn_open(fd, path, flags), real_##name(fd, path, flags, mode), fd, path,  \
         flags, mode);                                                                         \
  }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

/* A call on a path, on a descriptor, and one that writes so many bytes. */
#define ON_PATH(name, space, parameters, fd, path, ...) \
  int name parameters { PASS(int, name, turn_at(#name, fd, path, space), real_##name(__VA_ARGS__), __VA_ARGS__); }
#define ON_FD(type, name, space, parameters, fd, ...) \
  type name parameters { PASS(type, name, turn_of(#name, fd, space), real_##name(__VA_ARGS__), __VA_ARGS__); }
#define WRITE(name, parameters, half, ...) \
  ssize_t name parameters { PASS(ssize_t, name, turn_of(#name, fd, 1), half, __VA_ARGS__); }

ON_PATH(creat, 1, (const char *path, mode_t mode), AT_FDCWD, path, path, mode)
ON_PATH(creat64, 1, (const char *path, mode_t mode), AT_FDCWD, path, path, mode)
ON_PATH(rename, 0, (const char *from, const char *to), AT_FDCWD, to, from, to)
ON_PATH(renameat, 0, (int at, const char *from, int fd, const char *to), fd, to, at, from, fd, to)
ON_PATH(renameat2, 0, (int at, const char *from, int fd, const char *to, unsigned flags), fd, to, at, from, fd, to, flags)
ON_PATH(link, 1, (const char *from, const char *to), AT_FDCWD, to, from, to)
ON_PATH(linkat, 1, (int at, const char *from, int fd, const char *to, int flags), fd, to, at, from, fd, to, flags)
ON_PATH(symlink, 1, (const char *from, const char *to), AT_FDCWD, to, from, to)
ON_PATH(symlinkat, 1, (const char *from, int fd, const char *to), fd, to, from, fd, to)
ON_PATH(unlink, 0, (const char *path), AT_FDCWD, path, path)
ON_PATH(unlinkat, 0, (int fd, const char *path, int flags), fd, path, fd, path, flags)
ON_PATH(rmdir, 0, (const char *path), AT_FDCWD, path, path)
ON_PATH(mkdir, 1, (const char *path, mode_t mode), AT_FDCWD, path, path, mode)
ON_PATH(mkdirat, 1, (int fd, const char *path, mode_t mode), fd, path, fd, path, mode)
ON_PATH(truncate, 0, (const char *path, off_t size), AT_FDCWD, path, path, size)
ON_FD(int, fsync, 0, (int fd), fd, fd)
ON_FD(int, fdatasync, 0, (int fd), fd, fd)
ON_FD(int, syncfs, 0, (int fd), fd, fd)
ON_FD(int, sync_file_range, 0, (int fd, off64_t from, off64_t size, unsigned flags), fd, fd, from, size, flags)
ON_FD(int, ftruncate, 0, (int fd, off_t size), fd, fd, size)
ON_FD(int, ftruncate64, 0, (int fd, off64_t size), fd, fd, size)
ON_FD(int, fallocate, 1, (int fd, int mode, off_t from, off_t size), fd, fd, mode, from, size)
WRITE(write, (int fd, const void *data, size_t size), real_write(fd, data, size / 2), fd, data, size)
WRITE(pwrite, (int fd, const void *data, size_t size, off_t to), real_pwrite(fd, data, size / 2, to), fd, data, size, to)
WRITE(pwrite64, (int fd, const void *data, size_t size, off64_t to), real_pwrite64(fd, data, size / 2, to), fd, data, size, to)
WRITE(writev, (int fd, const struct iovec *data, int count), real_writev(fd, data, (count + 1) / 2), fd, data, count)
WRITE(pwritev, (int fd, const struct iovec *data, int count, off_t to), real_pwritev(fd, data, (count + 1) / 2, to), fd, data, count, to)
WRITE(pwritev64, (int fd, const struct iovec *data, int count, off64_t to), real_pwritev64(fd, data, (count + 1) / 2, to), fd, data, count, to)
WRITE(sendfile, (int fd, int from, off_t *place, size_t size), real_sendfile(fd, from, place, size / 2), fd, from, place, size)
WRITE(sendfile64, (int fd, int from, off64_t *place, size_t size), real_sendfile64(fd, from, place, size / 2), fd, from, place, size)
WRITE(copy_file_range, (int from, off64_t *place, int fd, off64_t *to, size_t size, unsigned flags), real_copy_file_range(from, place, fd, to, size / 2, flags), from, place, fd, to, size, flags)

/* The wall clock of this process: so far from the true one. */
int clock_gettime(clockid_t clock, struct timespec *now) {
  int failed = syscall(SYS_clock_gettime, clock, now);
  if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    now->tv_sec += offset_seconds;
  return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  int failed = syscall(SYS_gettimeofday, now, zone);
  if (!failed) now->tv_sec += offset_seconds;
  return failed;
}

time_t time(time_t *to) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (to) *to = now.tv_sec;
  return now.tv_sec;
}
