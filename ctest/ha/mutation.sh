#!/bin/sh
# Mutation check: flips the guards of window, retry, time, commit and isolation one at a time, in a
# copy of the source, and expects the named case to fail. A flip that no case notices, a guard that
# is not found any more, and a copy that does not build are errors, and so is a case that is not
# there or does not pass without a flip.
#
#     ctest/ha/mutation.sh BUILD_DIR [WORD]
#     ctest/ha/mutation.sh --guards
#
# BUILD_DIR is where CMake has built the tests; only mutants whose line has WORD are run. The tests
# run against the mutant by LD_LIBRARY_PATH. A case is one of ctest/ha, or `plain:` one of ctest; it
# runs with the engine that stands before it, `aio:` or `io_uring:`, else $KVPATH_TEST_ENGINE, else
# psync. Takes half an hour: each mutant is a release build. --guards builds and runs nothing: it
# says whether all guards and cases are where they are looked for.
set -u

guards_only=
[ "${1:-}" != --guards ] || { guards_only=yes && set -- .; }
build=$(cd "${1:?usage: mutation.sh BUILD_DIR [WORD]}" && pwd) || exit 2
only=${2:-}
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM

mkdir "$work/tree" "$work/lib"
for part in Cargo.toml Cargo.lock build.rs src include; do
    cp -r "$source/$part" "$work/tree/" || exit 2
done
[ ! -e "$source/.cargo" ] || cp -r "$source/.cargo" "$work/tree/"

flipped=0
noticed=0
problems=0

problem() {
    echo "PROBLEM: $1"
    problems=$((problems + 1))
}

build_mutant() {
    (cd "$work/tree" && cargo build --release --locked --lib --quiet \
        --target-dir "$work/target" 2>"$work/cargo.log") || return 1
    built=$work/target/release/libkvpath.so
    cp "$built" "$work/lib/$(readelf -d "$built" | sed -n 's/.*soname: \[\(.*\)\].*/\1/p')"
}

# Takes `[ENGINE:][plain:]FILE.NAME` apart.
read_case() {
    engine=${KVPATH_TEST_ENGINE:-psync} kind=ha name=${1#*.} file_name=${1%%.*}
    case $file_name in
    psync:* | aio:* | io_uring:*) engine=${file_name%%:*} file_name=${file_name#*:} ;;
    esac
    case $file_name in
    plain:*) kind=plain file_name=${file_name#plain:} ;;
    esac
}

# The case, on the mutant: 0 passed, 77 skipped, anything else (a hang too) failed.
run_case() {
    read_case "$1"
    case $kind in
    plain) program="$build/ctest/${file_name}_plain" ;;
    *) program="$build/ctest/ha/ha_$file_name" ;;
    esac
    LD_LIBRARY_PATH="$work/lib" KVPATH_TEST_WAIT_MS=15000 KVPATH_TEST_DIR="$work/scratch" \
        KVPATH_TEST_ENGINE="$engine" \
        timeout -k 5 60 "$program" "$name" >"$work/case.log" 2>&1
}

# In the source.
case_is_there() {
    read_case "$1"
    case $kind in
    plain) in="$source/ctest/${file_name}_test.c" ;;
    *) in="$source/ctest/ha/${file_name}_test.c" ;;
    esac
    grep -q "^CASE($name)" "$in" 2>/dev/null
}

# mutant FILE CASE SED WHAT
mutant() {
    case "$*" in *"$only"*) ;; *) return ;; esac
    file="$work/tree/src/$1"
    cp "$file" "$work/kept"
    sed -i "$3" "$file"
    if cmp -s "$file" "$work/kept"; then
        problem "$1: the guard is not there any more: $4"
        return
    fi
    flipped=$((flipped + 1))
    if [ -n "$guards_only" ]; then
        case_is_there "$2" || problem "no case $2"
    elif ! build_mutant; then
        problem "$1: does not build: $4"
        tail -n 20 "$work/cargo.log"
    else
        run_case "$2"
        status=$?
        case $status in
        0) problem "not noticed by $2: $4" ;;
        77) problem "$2 was skipped: $4" ;;
        *) noticed=$((noticed + 1)) && echo "ok: $4: $2 fails ($status)" ;;
        esac
    fi
    cp "$work/kept" "$file"
}

# The cases of the mutants that are run.
cases() {
    sed -e ':more' -e '/\\$/{' -e 'N' -e 's/ *\\\n */ /' -e 'b more' -e '}' "$0" |
        grep '^mutant ' | grep -F -e "$only" | cut -d ' ' -f 3 | sort -u
}

# Without a flip the cases pass, or their failures would prove nothing.
baseline() {
    [ -n "$(cases)" ] || { echo "no mutant has \"$only\""; exit 2; }
    build_mutant || { tail -n 20 "$work/cargo.log"; exit 2; }
    for case in $(cases); do
        run_case "$case"
        status=$?
        [ $status -eq 0 ] || { cat "$work/case.log"; echo "$case: $status"; exit "$status"; }
    done
}

[ -n "$guards_only" ] || baseline

# ---- window and state: R20-R22, R29 ----
mutant health/window.rs window.trips_before_it_is_full \
    's/{ self\.failures >= threshold }/{ self.is_full() \&\& self.failures >= threshold }/' \
    'a window must be full to exclude'
mutant health/window.rs recovery.exactly_a_window_of_probes \
    's/if excluded { !self\.is_full_and_clean() }/if excluded { self.failures >= threshold }/' \
    'few failures are enough to come back'
mutant health/window.rs window.successes_slide_failures_out \
    's/self\.failures -= 1;//' 'a failure never slides out'
mutant health/state.rs window.a_success_while_excluded_is_ignored \
    's/if self\.state() != BackendState::Available {/if false {/' 'a success counts while excluded'
mutant health/state.rs window.a_late_success_restores_nothing \
    's/self\.counters\.late_successes += 1;/& self.window.push_success(); return self.judge(None, now);/' \
    'a late success counts'
mutant health/state.rs window.a_late_failure_of_an_earlier_exclusion_does_not_count \
    's/if !excluded_now || timed_out_at != self\.epoch {/if false {/' \
    'late failures count in any exclusion'
mutant health/state.rs window.a_late_failure_counts_once \
    's/let excluded_now = .*/let excluded_now = false;/' 'late failures never count'
mutant health/state.rs window.one_unreadable_block_excludes_nothing \
    's/self\.params\.one_bad_block \&\& /false \&\& /' 'one bad block excludes'
mutant health/class.rs window.a_full_disk_excludes_nothing \
    's/self == Class::Path$/matches!(self, Class::Path | Class::Capacity)/' 'a full disk excludes'
mutant health/class.rs collect.r22_files_that_cannot_be_removed_exclude_no_path \
    's/_ if context\.operation == Operation::Collect => Class::File,//' \
    'files that cannot be removed exclude'
mutant store/step.rs route.not_found_is_neither_tried_again_nor_counted \
    's/is_missing(&failure) => not_found(),/is_missing(\&failure) => Verdict::Fail(Failure::errno(error::Step::Open, libc::EIO)),/' \
    'not-found is a failure'
mutant health/executor.rs recovery.a_timed_out_probe_is_replaced \
    's/return Err(NoResult::TimedOut);/deadline = deadline.plus(OVERSLEPT);/' \
    'a probe has no limit'

# ---- bulkheads: R36 ----
mutant store/hung.rs bulkhead.a_path_comes_back_while_what_hung_there_stays \
    's/if self\.epoch == Some(epoch) { self\.recent } else { 0 }/self.total/' \
    'what hung before a path came back counts'
mutant store/recovery.rs bulkhead.a_path_without_buffers_stays_out \
    's/match self\.clogged(lane, fx) {/match None::<Failure> {/' \
    'a path without buffers comes back'

# ---- retry and routing: R15, R27, R54 ----
mutant store/outcome.rs route.an_error_goes_to_the_next_backend \
    's/if class\.fails_over() {/if false {/' 'an error goes nowhere'
mutant store/routing.rs route.an_error_goes_to_the_next_backend \
    's/(available \& !tried)/(available | tried \& 0)/' 'a backend is tried twice'
mutant store/flow.rs route.no_retry_during_close \
    '/pub(super) fn retry/,/^    }/s/if self\.closing \&\& !self/if false \&\& !self/' 'a retry during close'
mutant store/routing.rs route.the_modulus_is_the_configured_count \
    's/(primary + step) % n)/(primary + n - step) % n)/' 'candidates go backwards'

# ---- time: R28, R36 ----
mutant store/rules.rs time.a_hung_read_costs_a_third \
    's/attempt_limit: part(/attempt_limit: whole(/' 'an attempt may take the whole time'
mutant store/timing.rs sleep.five_seconds_stopped_exclude_nothing \
    's/if slept > OVERSLEPT {/if false {/' 'a judge that slept judges at once'
mutant store/backend.rs bulkhead.too_many_abandoned_fail_at_once \
    's/self\.hung\.too_many(&self\.limits(), epoch)/self.hung.total() == usize::MAX \&\& epoch == epoch/' \
    'any number may be abandoned'
mutant engine/gate.rs again.a_call_that_hangs_after_a_shortage_is_the_path_s \
    's/(errno != 0 \&\& !hangs)/(errno != 0 \&\& (hangs || !hangs))/' \
    'a call that hangs after a shortage is a shortage'
mutant store/outcome.rs bulkhead.the_queue_of_an_excluded_backend_moves \
    's/for id in self\.lanes\[lane\]\.drain() {/for id in Vec::<super::chain::ChainId>::new() {/' \
    'the queue of an excluded backend stays'

# ---- commit: R5, R24, R41, R42 ----
mutant store/blocks.rs isolation.a_generation_with_hung_writes_is_never_committed \
    '/pub fn complete/,/^    }/s/\.all(/.any(/' 'a block is committed with shards missing'
mutant store/flow.rs isolation.a_generation_with_hung_writes_is_never_committed \
    's/let close = chain\.vanished || .*/let close = chain.vanished;/' \
    'a generation with a hung write goes on'
mutant store/commit.rs time.a_dump_has_time_for_its_commit \
    's/let hung = self\.hung_writers(.*/let hung = 0;/' \
    'a commit goes where a write hangs'
mutant store/blocks.rs route.a_failed_commit_goes_to_the_next_backend \
    's/if \*other != lane => Some(\*other),/if *other != lane \&\& *other > 64 => Some(*other),/' \
    'what only another cache holds is committed'
mutant store/commit.rs remember.a_block_that_was_removed_is_stored_again \
    's/match self\.lanes\[lane\]\.facts\.coherent {/match true {/' \
    'a client with a cache is asked whether a block is there'
mutant store/suspects.rs remember.who_names_a_block_looks_anew \
    's/!self\.lanes\[lane\]\.facts\.coherent \&\& self/self.lanes[lane].facts.coherent \&\& self/' \
    'a path names a block of which it saw less'
mutant store/commit.rs again.what_is_there_is_not_replaced \
    's/^            false => self\.look_at_final(lane, true),/            false => Step::Rename { replace: true },/' \
    'a block that is there is replaced where a rename cannot tell'
mutant store/detour.rs remember.other_processes_get_the_whole_block \
    's/if others == 0 {/if others < u64::MAX {/' 'other processes get what a client remembers'
mutant engine/psync/metadata.rs look.a_short_file_stays_short \
    's/if found != bytes {/if false {/' 'looking anew makes a short file whole'
mutant store/detour.rs look.a_sync_after_a_look_is_not_tried_again \
    's/if \*step == Step::SyncTemporary/if false \&\& *step == Step::SyncTemporary/' \
    'a sync that failed is tried again'
mutant store/detour.rs look.others_look_after_the_sync \
    's/\&\& progress\.cached_elsewhere(\*other)\.is_none()//' 'others look before there is all to see'
mutant store/suspects.rs look.a_load_under_way_looks_anew \
    's/reads \&\& (attempt\.has_to_look/false \&\& (attempt.has_to_look/' \
    'a load under way gives what is remembered'
mutant store/suspects.rs look.who_wrote_all_of_it_needs_no_look \
    's/ \&\& progress\.written_elsewhere(\*path)//' 'who wrote all of it has to look'
mutant store/commit.rs again.a_block_whose_times_cannot_be_set_is_there \
    's/libc::EROFS | libc::ENOSYS | libc::EOPNOTSUPP/libc::E2BIG/' 'times that cannot be set fail a path'
mutant store/commit.rs named.what_was_lost_does_not_win_over_a_later_dump \
    's/_ if self\.misnamed\.contains_key(block) => Step::Rename { replace: true },//' \
    'what was lost wins over a later dump'
mutant store/generations.rs named.a_later_dump_is_not_removed_for_an_earlier_one \
    '/fn named_well/,/^    }/s/self\.misnamed\.remove(&block);//' \
    'a later dump is removed for an earlier one'
mutant store/flow.rs named.the_path_of_a_hung_write_is_asked_last \
    's/if chain\.spared != 0 {/if false {/' 'a path with a hung write is never asked for the name'
mutant store/commit.rs look.a_late_rename_leaves_paths_that_look_anew \
    's/^        self\.suspect(block, generation);//' 'a late rename leaves no suspects'
mutant store/suspects.rs look.a_second_dump_forgets_no_path \
    's/\*known\.get_mut() |= paths/*known.get_mut() = paths/' 'a second dump forgets suspects'
mutant store/step.rs look.a_look_waits_for_no_descriptor \
    's/true => Duration::ZERO,/true => LOCAL_LIMIT,/' 'a look waits for a descriptor'
mutant store/detour.rs look.a_look_that_hangs_keeps_no_block_from_its_name \
    's/^        self\.rules\.metadata_limit?;//' 'a look hangs without a limit'
mutant store/dump.rs again.who_waited_for_a_hung_creation_goes_elsewhere \
    's/chain\.tried |= hung;/chain.tried |= hung \& 0;/' 'shards follow a creation that hangs'
mutant store/flow.rs close.temporaries_go_through_another_path \
    's/matches!(chain\.work, Work::Discard { \.\. } | Work::Chore { \.\. })/false/' 'close removes through one path only'
mutant store/generations.rs remember.a_late_create_and_a_late_rename_replace_nothing \
    's/if !chain\.in_kernel\.iter()\.any(hung) {/if !chain.in_kernel.is_empty() {/' \
    'what is made late has the name of what is renamed late'
mutant store/generations.rs remember.a_late_rename_of_what_was_lost_names_nothing \
    's/^        lost \&\& self/        !lost \&\& self/' 'what was lost may be named late'
mutant store/generations.rs remember.a_hung_look_keeps_no_directory \
    's/^                self\.generation\.is_some()$/                false/' \
    'a removal waits behind a commit that hangs'
mutant store/step.rs mounts.a_path_that_falls_off_is_excluded \
    's/self\.rules\.verify_mount \&\& seen/false \&\& seen/' 'a missing mount is a miss'

mutant store/attempt.rs mounts.one_block_shows_that_its_path_fell_off \
    's/let of_marker = matches!.*/let of_marker = false;/' 'a missing marker is one bad block'
mutant store/transfer.rs durable.a_path_that_runs_buffered_is_synced \
    's/CommitSync::AsPathsRun => .*/CommitSync::AsPathsRun => false,/' \
    'a fallback to the cache syncs nothing'

# ---- isolation: R5, R30 ----
mutant engine/psync/read.rs isolation.a_late_read_does_not_touch_the_callers_memory \
    's/if transfer\.isolated \&\& !self\.op\.gate\.enter() {/if false {/' \
    'a late read writes into the caller'
mutant engine/psync/write.rs isolation.no_piece_is_written_after_the_task \
    '/fn fetch/,/^    }/s/if transfer\.isolated \&\& !self\.op\.gate\.[a-z]*() {/if false {/' \
    'a late write reads from the caller'
mutant engine/psync.rs isolation.a_late_read_does_not_touch_the_callers_memory \
    's/if self\.op\.gate\.revoked() {/if false {/' 'a step after the attempt was given up'

# The same gates in the engines that do not block. On FUSE, so in all these cases, a ring leaves
# writes to the workers of psync: its own gates in uring/write.rs no case can notice.
mutant engine/psync/read.rs aio:isolation.a_late_read_does_not_touch_the_callers_memory \
    's/if transfer\.isolated \&\& !self\.op\.gate\.enter() {/if false {/' \
    'a late read of AIO writes into the caller'
mutant engine/aio/run.rs aio:again.a_hang_in_borrowed_memory_leaves_other_limits_alone \
    '/^fn enter/,/^}/s/if !job\.op\.gate\.enter() {/if false {/' \
    'AIO gives borrowed memory back while the kernel has it'
mutant engine/uring/landing.rs io_uring:isolation.a_late_read_does_not_touch_the_callers_memory \
    '/fn deliver(/,/^    }/s/if !gate\.enter() {/if false {/' \
    'a late read of the ring writes into the caller'
mutant engine/uring/read.rs io_uring:isolation.a_late_open_uses_no_borrowed_memory \
    '/fn borrowed_open/,/^    }/s/if !job\.op\.gate\.enter() {/if false {/' \
    'the ring reads into borrowed memory of a task that is over'

# ---- hotness: R64 ----
mutant store/flow.rs plain:hotness.a_load_refreshes_its_block \
    '/Work::Load(shards) => {/,/load_ended/s/self\.hit(chain\.block, now, fx);//' \
    'a load refreshes nothing'
mutant store/hotness.rs plain:hotness.once_a_minute \
    's/if place\.block == block \&\& place\.until_ns > now_ns {/if place.until_ns == u64::MAX {/' \
    'each hit refreshes'

# ---- collection: R81-R86 ----
mutant reclaim/coldest.rs plain:collect.r81_the_coldest_of_the_whole_store_go_from_skewed_directories \
    's/&& candidate < \*youngest/\&\& candidate > *youngest/' 'the youngest go first'
mutant reclaim/capacity.rs plain:collect.r81_a_share_goes_at_the_trigger_and_nothing_below_it \
    's/if blocks < self\.trigger {/if blocks <= self.trigger {/' 'nothing goes at the trigger'
mutant store/collector/pass.rs plain:collect.r81_times_in_the_future_count_as_now \
    's/if mtime_ns >= now_ns { i64::MAX } else { mtime_ns }/mtime_ns/' \
    'what has a time in the future is never collected'
mutant store/collector/tally.rs plain:collect.r82_only_blocks_are_collected \
    's/Name::Dot | Name::Temporary => false,/Name::Dot | Name::Temporary => { self.found.lock().foreign += 1; false }/' \
    'dot files are foreign names'
mutant store/collector/lease.rs lease.r83_one_of_three_collects_and_another_takes_over_from_the_dead \
    's/if self\.lease_step(Chore::Claim(LOCK\.into()))? == Done::Left {/if self.lease_step(Chore::Claim(LOCK.into()))? != Done::Left \&\& self.last {/' \
    'a lease that another holds is taken'
mutant store/collector/pass.rs lease.r83_a_holder_that_was_stopped_removes_no_more_than_its_batch \
    's/self\.check_lease()?;//' 'no look at the lease before a batch'
mutant store/collector/run.rs plain:lease.r83_the_holder_shows_that_it_lives_while_removals_hang \
    's/self\.beat();/self.beaten = self.shared.clock.now();/' 'a holder shows nothing'
mutant store/collector/pass.rs collect.r84_removals_on_a_hung_path_move_on \
    's/self\.all(chores, self\.settings\.file_limit)/self.all(chores, None)/' \
    'a removal may take for ever'
mutant store/reserve.rs plain:reserve.r85_bytes_run_short \
    's/reserve > 0\.0 \&\& /reserve > 100.0 \&\& /' 'no room is kept'
mutant store/collector/tally.rs plain:sweep.r86_another_pid_namespace_is_left_alone_until_it_is_old \
    's/let here = .*/let here = writer.boot == me.boot;/' 'writers of other namespaces are asked for'
mutant store/collector/mod.rs plain:sweep.r86_an_open_store_sweeps_again_and_again \
    's/let half = self\.settings\.temp_ttl \/ 2;/let half = self.settings.temp_ttl * 3600;/' 'one sweep only'

# ---- metrics and log: R90, R91 ----
mutant store/metrics.rs plain:observe.metrics_are_read_by_prometheus \
    's/# TYPE kvpath_/# TYPE kvpath-/' 'text that no parser takes'
mutant log/logger.rs plain:observe.log_callback_may_not_call_kvpath \
    's/ON_LOG_THREAD\.set(true);//' 'a callback may call kvpath'

if [ -n "$guards_only" ]; then
    echo "$flipped guards, $problems problems"
else
    echo "$flipped guards flipped, $noticed noticed, $problems problems"
fi
[ "$problems" -eq 0 ]
