/* soak.h: three mounts of the project's own test file system (faultfs), and what can break there:
 * operations that fail, hang, are late or cut short, a mount that freezes, one that falls off, one
 * whose server is killed (it then gives ENOTCONN) and which is mounted again. */
#define _GNU_SOURCE
#include <errno.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "faultfs.h"
#include "keeper.h"
#include "soak.h"

enum { RULE_BYTES = 128, FREEZE = 0, VANISH = -1, KILL = -2, MOUNT_GRACE_SECONDS = 600 };

static struct faultfs mounts[MOUNTS];
static const char *storage;

static struct {
    pthread_mutex_t lock; /* nothing is told to a server while it is killed or started */
    bool dead[MOUNTS];
    unsigned lives[MOUNTS]; /* what was begun in an earlier life ended with it */
} servers = {.lock = PTHREAD_MUTEX_INITIALIZER};

const char *mounts_cannot(void) { return faultfs_cannot(); }

void mounts_make(unsigned seconds)
{
    storage = temp_dir();
    keeper_start(mounts, MOUNTS, storage, seconds + MOUNT_GRACE_SECONDS);
}

void mounts_end(void) { keeper_end(); }

const char *mounts_storage(void) { return storage; }

const char *mounts_path(int mount) { return mounts[mount].mount; }

unsigned mounts_slower(void) { return 1; }

bool mounts_stale(uint64_t since_us)
{
    (void)since_us;
    return false;
}

void mounts_heard(const char *id, const char *line) { (void)id, (void)line; }

void mounts_report(void) {}

/* Does nothing where the server is dead. The lock is held. */
static void tell(int mount, const char *command)
{
    if (servers.dead[mount]) return;
    storm_note(mount, command);
    if (faultfs_command(&mounts[mount], NULL, 0, "%s", command) != 0)
        FAIL("mount %d, %s: %s", mount, command, mounts[mount].error);
}

static void kill_server(int mount)
{
    storm_note(mount, "kill");
    keeper_kill(mounts, mount);
    servers.dead[mount] = true;
    servers.lives[mount]++;
}

/* Between the old mount and the new one its mount point shows an empty directory. */
static void start_again(int mount)
{
    if (!servers.dead[mount]) return;
    storm_note(mount, "mount");
    storm_falls(mount);
    keeper_again(mounts, mount);
    servers.dead[mount] = false;
    storm_fell(mount);
}

static const char *pick(dice_t *dice, const char *const *words, size_t count)
{
    return words[dice_next(dice) % count];
}

#define PICK(...)                                                                                  \
    pick(dice, (const char *const[]){__VA_ARGS__},                                                 \
         sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

/* The text of a rule. */
static void make_rule(char *rule, size_t bytes, dice_t *dice)
{
    const char *ops = PICK("any", "read", "write", "open,create", "create", "rename",
                           "fsync,fsyncdir", "lookup,getattr", "unlink", "flush", "rename,unlink");
    const char *where = PICK("*", "*", "data/*", "data/*", "*.tmp", ".kvpath");
    const unsigned percent = dice_one_in(dice, 3) ? 100 : dice_from(dice, 2, 60);
    const unsigned seed = dice_from(dice, 1, 1000000);
    char action[64];
    switch (dice_from(dice, 0, 9)) {
    case 0:
    case 1:
    case 2:
        snprintf(action, sizeof action, "fail %s",
                 PICK("EIO", "EIO", "EACCES", "EROFS", "ENOTCONN", "ESTALE", "ETIMEDOUT"));
        break;
    case 3:
        ops = PICK("write", "create", "create,write", "fsync");
        snprintf(action, sizeof action, "fail %s", PICK("ENOSPC", "EDQUOT", "EFBIG"));
        break;
    case 4:
        ops = PICK("open", "create", "open,create");
        snprintf(action, sizeof action, "fail %s", PICK("EMFILE", "ENFILE", "ENOMEM"));
        break;
    case 5:
        ops = "read,write";
        snprintf(action, sizeof action, "short %s", PICK("1", "512", "4096", "5000"));
        break;
    case 6:
    case 7:
        snprintf(action, sizeof action, "delay %u", dice_from(dice, 1, 700));
        break;
    default:
        snprintf(action, sizeof action, "hang");
        break;
    }
    snprintf(rule, bytes, "rule add %s %s prob=0.%02u seed=%u %s", ops, where,
             percent == 100 ? 99 : percent, seed, action);
}

static void begin(fault_t *fault, unsigned kind, const char *rule)
{
    if (kind == 0) {
        fault->kind = FREEZE;
        tell(fault->mount, "freeze");
    } else if (kind == 1) {
        fault->kind = VANISH;
        storm_falls(fault->mount);
        tell(fault->mount, "vanish");
        storm_fell(fault->mount);
    } else if (kind == 2) {
        fault->kind = KILL;
        kill_server(fault->mount);
    } else {
        storm_note(fault->mount, rule);
        fault->kind = faultfs_number(&mounts[fault->mount], "%s", rule);
        if (fault->kind < 0) FAIL("%s: %s", rule, mounts[fault->mount].error);
    }
    fault->life = servers.lives[fault->mount];
}

bool mounts_break(fault_t *fault, dice_t *dice)
{
    char rule[RULE_BYTES];
    const unsigned kind = dice_from(dice, 0, 12);
    make_rule(rule, sizeof rule, dice); /* always, so that the dice roll alike */
    pthread_mutex_lock(&servers.lock);
    const bool can = !servers.dead[fault->mount];
    if (can) begin(fault, kind, rule);
    pthread_mutex_unlock(&servers.lock);
    return can;
}

static int stray(const char *path, const struct stat *what, int type, struct FTW *where)
{
    (void)what, (void)where;
    /* A create that was on its way when the path fell off is no harm; what is named is lost. Nor
     * is a claim that the marker was read for just before: the next step of the lease sees it. */
    if (type != FTW_D && strstr(path, ".tmp") == NULL && strstr(path, "/.ucm_gc.") == NULL)
        FAIL("%s was made below an empty mount point", path);
    return 0;
}

/* The path shows the storage again. Nothing was made below the empty mount point meanwhile. */
static void come_back(int mount)
{
    char place[FAULTFS_PATH_BYTES];
    struct faultfs *fs = &mounts[mount];
    for (int at = 0; at < ACTIVE_MAX; at++) { /* it fell off a second time */
        const fault_t *fault = &storm_faults()[at];
        const bool lives = fault->active && fault->life == servers.lives[mount];
        if (lives && fault->mount == mount && fault->kind == VANISH) return;
    }
    /* Vanished already, it tells the place once more. */
    if (faultfs_command(fs, place, sizeof place, "vanish") != 0) FAIL("vanish: %s", fs->error);
    /* ENOENT: what a create on its way had made went while the walk looked. */
    while (nftw(place, stray, 16, FTW_PHYS) != 0)
        if (errno != ENOENT) FAIL("%s: %s", place, strerror(errno));
    tell(mount, "return");
}

static void mend(const fault_t *fault)
{
    char command[64];
    if (fault->life != servers.lives[fault->mount]) return;
    if (fault->kind == FREEZE) {
        tell(fault->mount, "thaw");
    } else if (fault->kind == VANISH) {
        come_back(fault->mount);
    } else if (fault->kind == KILL) {
        start_again(fault->mount);
    } else {
        snprintf(command, sizeof command, "rule del %lld", fault->kind);
        tell(fault->mount, command);
        snprintf(command, sizeof command, "release %lld%s", fault->kind,
                 fault->fails ? " fail EIO" : "");
        tell(fault->mount, command);
    }
}

void mounts_mend(const fault_t *fault)
{
    pthread_mutex_lock(&servers.lock);
    mend(fault);
    pthread_mutex_unlock(&servers.lock);
}

void mounts_freeze(int mount)
{
    pthread_mutex_lock(&servers.lock);
    tell(mount, "freeze");
    pthread_mutex_unlock(&servers.lock);
}

void mounts_calm(void)
{
    pthread_mutex_lock(&servers.lock);
    for (int mount = 0; mount < MOUNTS; mount++) {
        start_again(mount);
        tell(mount, "rules clear");
        tell(mount, "thaw");
        tell(mount, "release");
        tell(mount, "return");
    }
    pthread_mutex_unlock(&servers.lock);
}

void mounts_let_go(void)
{
    pthread_mutex_lock(&servers.lock);
    for (int mount = 0; mount < MOUNTS; mount++)
        CHECK_EQ(faultfs_command(&mounts[mount], NULL, 0, "release"), 0);
    pthread_mutex_unlock(&servers.lock);
}
