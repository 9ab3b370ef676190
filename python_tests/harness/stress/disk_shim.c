/* Makes the disk under one directory slow or failing, for every process that is started with this library in LD_PRELOAD.
 *
 * STRESS_DISK_DIRECTORY names the directory, STRESS_DISK_CONTROL a file that all processes map: python_tests/stress/syncs.py
 * writes what shall happen into it, and reads there what has happened. Stands in for what waits for a disk: fsync,
 * fdatasync, msync, and pwrite to a descriptor with O_DSYNC, by which LMDB writes its meta page. A sync that fails
 * is not made; a pwrite that fails has reached the page cache, as under Linux.
 *
 * Where libfaketime is loaded behind it, sleeps by a monotonic clock go past that to libc: versions before 0.9.11 refuse
 * the moments that Python's time.sleep gives.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum kind { LOG, STATE, OTHER, KINDS, ELSEWHERE = KINDS };

struct control { /* all of 8 bytes, in the order of syncs.Kind */
    uint64_t delay_us;
    uint64_t spared, to_fail; /* so many syncs pass, then so many fail */
    uint64_t seen, delayed, failed;
};

static struct control *controls;
static char directory[4096];
static size_t length;
static const uint64_t SLICE_US = 20000; /* a sync that waits goes on so soon after the disk is well again */

static int (*real_fsync)(int), (*real_fdatasync)(int), (*real_msync)(void *, size_t, int);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t), (*real_pwrite64)(int, const void *, size_t, off64_t);
typedef int (*sleeper)(clockid_t, int, const struct timespec *, struct timespec *);
static sleeper real_sleep, next_sleep;

__attribute__((constructor)) static void begin(void) {
    const char *place = getenv("STRESS_DISK_DIRECTORY"), *path = getenv("STRESS_DISK_CONTROL");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_msync = dlsym(RTLD_NEXT, "msync");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite");
    real_pwrite64 = dlsym(RTLD_NEXT, "pwrite64");
    next_sleep = dlsym(RTLD_NEXT, "clock_nanosleep");
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    real_sleep = libc ? dlsym(libc, "clock_nanosleep") : next_sleep;
    if (!place || !path || strlen(place) >= sizeof directory) return;
    strcpy(directory, place);
    length = strlen(place);
    int file = open(path, O_RDWR | O_CLOEXEC);
    void *map = file < 0 ? MAP_FAILED
                         : mmap(NULL, KINDS * sizeof *controls, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0) close(file);
    if (map == MAP_FAILED) {
        fprintf(stderr, "the disk's control file %s cannot be mapped: %s\n", path, strerror(errno));
        return;
    }
    controls = map;
}

static enum kind kind_of(int descriptor) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return ELSEWHERE;
    path[size] = 0;
    if (strncmp(path, directory, length) != 0 || (path[length] && path[length] != '/')) return ELSEWHERE;
    const char *within = path[length] ? path + length + 1 : "";
    if (!strcmp(within, "log") || !strncmp(within, "log/", 4)) return LOG;
    return !strcmp(within, "state") || !strncmp(within, "state/", 6) ? STATE : OTHER;
}

static int take_one(uint64_t *left) {
    uint64_t found = __atomic_load_n(left, __ATOMIC_ACQUIRE);
    while (found)
        if (__atomic_compare_exchange_n(left, &found, found - 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return 1;
    return 0;
}

/* What the disk does before it answers; returns whether it fails. */
static int struck(enum kind kind) {
    struct control *control = controls + kind;
    uint64_t waited = 0;
    __atomic_add_fetch(&control->seen, 1, __ATOMIC_ACQ_REL);
    while (waited < __atomic_load_n(&control->delay_us, __ATOMIC_ACQUIRE)) {
        struct timespec slice = {0, (long)SLICE_US * 1000};
        real_sleep(CLOCK_MONOTONIC, 0, &slice, NULL);
        waited += SLICE_US;
    }
    if (waited) __atomic_add_fetch(&control->delayed, 1, __ATOMIC_ACQ_REL);
    if (!__atomic_load_n(&control->to_fail, __ATOMIC_ACQUIRE) || take_one(&control->spared)) return 0;
    if (!take_one(&control->to_fail)) return 0;
    __atomic_add_fetch(&control->failed, 1, __ATOMIC_ACQ_REL);
    return 1;
}

static int descriptor_struck(int descriptor) {
    int before = errno;
    enum kind kind = controls ? kind_of(descriptor) : ELSEWHERE;
    int fails = kind != ELSEWHERE && struck(kind);
    errno = fails ? EIO : before;
    return fails;
}

int fsync(int descriptor) { return descriptor_struck(descriptor) ? -1 : real_fsync(descriptor); }

int fdatasync(int descriptor) { return descriptor_struck(descriptor) ? -1 : real_fdatasync(descriptor); }

int msync(void *address, size_t size, int flags) { /* only LMDB could have mapped what it writes */
    if (controls && (flags & MS_SYNC) && struck(STATE)) {
        errno = EIO;
        return -1;
    }
    return real_msync(address, size, flags);
}

static int waits(int descriptor) {
    int before = errno, flags = controls ? fcntl(descriptor, F_GETFL) : 0;
    errno = before;
    return flags != -1 && (flags & O_DSYNC);
}

ssize_t pwrite(int descriptor, const void *data, size_t size, off_t offset) {
    int fails = waits(descriptor) && descriptor_struck(descriptor);
    ssize_t written = real_pwrite(descriptor, data, size, offset);
    if (!fails) return written;
    errno = EIO;
    return -1;
}

ssize_t pwrite64(int descriptor, const void *data, size_t size, off64_t offset) {
    int fails = waits(descriptor) && descriptor_struck(descriptor);
    ssize_t written = real_pwrite64(descriptor, data, size, offset);
    if (!fails) return written;
    errno = EIO;
    return -1;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *left) {
    return (clock == CLOCK_REALTIME ? next_sleep : real_sleep)(clock, flags, time, left);
}
