/* R90: metrics of a path that hangs. */
#include <string.h>

#include "ha.h"

static bool statfs_hangs(void *argument)
{
    rig_t *rig = argument;
    report(kvpath_metrics, rig->store);
    return hung(rig, 0) > 0;
}

static bool has_no_room(void *argument)
{
    rig_t *rig = argument;
    const char *name = text("kvpath_backend_space_free_bytes{backend=\"%s/\"}", rig->path[0]);
    return strstr(report(kvpath_metrics, rig->store), name) == NULL;
}

/* A question about room that hangs keeps no caller waiting, no load, and blames no path; the path
 * shows no room any more, the other one does. */
CASE(room_of_a_mount_that_hangs)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .threshold = 1, .timeout_ms = 12000});
    batch_t *block = block_on(&rig, 0, 0);
    dump_batch(rig.store, block);
    CHECK(!has_no_room(&rig));
    fault(&rig, 0, "statfs * always hang");
    wait_for("a question that hangs", statfs_hangs, &rig);
    CHECK(!has_no_room(&rig)); /* what was learned last */
    load_right(&rig, block);
    wait_for("the end of its limit", has_no_room, &rig);
    CHECK_HAS(report(kvpath_metrics, rig.store),
              text("kvpath_backend_space_free_bytes{backend=\"%s/\"}", rig.path[1]));
    if (health_of(&rig, 0).failures != 0) FAIL("counted: %s", health_of(&rig, 0).last_error);
    CHECK_EQ(state_of(&rig, 0), KVPATH_BACKEND_AVAILABLE);
    for (int round = 0; round < 100; round++) report(kvpath_metrics, rig.store);
    CHECK_EQ(hung(&rig, 0), 1); /* one is enough */
    load_right(&rig, block);
    release(&rig, 0);
    rig_stop(&rig);
}
