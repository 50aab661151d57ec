/* R28: a process that was stopped (SIGSTOP, a paused machine) blames nobody for the time that it
 * slept. The time that is slept is real, because it is what the case is about. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ha.h"

enum { STOPPED_S = 5 };

/* Stops the test for five seconds; lets go what hangs on backend 0 during that time, and what hangs
 * on backend 1 right after it. */
static pid_t stop_me(rig_t *rig)
{
    pid_t me = getpid(), controller = fork();
    CHECK(controller >= 0);
    if (controller > 0) return controller;
    bool fine = kill(me, SIGSTOP) == 0;
    sleep(STOPPED_S - 1);
    fine = faultfs_command(&rig->fs[0], NULL, 0, "release") == 0 && fine;
    sleep(1);
    fine = kill(me, SIGCONT) == 0 && fine;
    fine = faultfs_command(&rig->fs[1], NULL, 0, "release") == 0 && fine;
    _exit(fine ? 0 : 1);
}

CASE(five_seconds_stopped_exclude_nothing)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .window = 8, .threshold = 1, .timeout_ms = 4000,
                                   .extra = ", \"lookup_timeout_ms\": 4000"});
    batch_t *blocks[] = {block_on(&rig, 0, 0), block_on(&rig, 1, 0)};
    kvpath_task_t tasks[2];
    for (int at = 0; at < 2; at++) {
        dump_batch(rig.store, blocks[at]);
        fault(&rig, at, "read %s always hang", file_of(blocks[at]));
        tasks[at] = begin_load(&rig, blocks[at]);
        wait_hung(&rig, at, 1, "read");
    }
    uint64_t start = now_ms();
    pid_t controller = stop_me(&rig);
    int status = -1;
    CHECK(waitpid(controller, &status, 0) == controller);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(now_ms() - start >= STOPPED_S * 1000);
    for (int at = 0; at < 2; at++) {
        heal(&rig, at);
        CHECK_OK(finish(&rig, tasks[at]));
        batch_check(blocks[at]);
        check_health(&rig, at, KVPATH_BACKEND_AVAILABLE, ANY, 0);
        CHECK(present(rig.store, id_of(blocks[at])));
    }
    CHECK_EQ(stats_of(rig.store).timeouts, 0);
    CHECK_EQ(stats_of(rig.store).retries, 0);
    rig_stop(&rig);
}

/* The same for a probe (its limit is the executor's): it is no failure. */
CASE(five_seconds_stopped_fail_no_probe)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.window = 2, .threshold = 1, .interval_s = 3,
                                   .probe_timeout_s = 2.5});
    fault(&rig, 0, "create data/probe-* count=1 hang");
    exclude(&rig, 0);
    wait_hung(&rig, 0, 1, "create");
    pid_t controller = stop_me(&rig);
    int status = -1;
    CHECK(waitpid(controller, &status, 0) == controller);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    wait_state(&rig, 0, KVPATH_BACKEND_AVAILABLE);
    CHECK_EQ(health_of(&rig, 0).probe_failures, 0);
    rig_stop(&rig);
}
