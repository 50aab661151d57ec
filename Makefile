# The few words that a user or a machine needs; each installs what is missing first.
#   make demo   builds, and runs a real workload over three paths of which one fails part-way
#   make demo-hang   the same, but that path stops answering
#   make test   everything that CI checks
#   make crash  kills writers many times, and replays power losses at every moment
#   make soak   hours of faults, if wanted: SOAK_SECONDS, SOAK_SEED, SOAK_ENGINES
#   make glusterfs   demo and soak on a real GlusterFS volume whose clients are killed and stopped
#   make filesystems   every engine on ext4, XFS, btrfs, tmpfs and overlayfs, sectors of 512 and 4096
#   make bench  the speed table against floor programs and fio (bench/README.md)
#   make wheel  the Python package, with the library inside, in $(BUILD)/python/dist
#   make asan   the C and C++ tests under AddressSanitizer and UBSan alone, a part of make test
#   make mutation   breaks guards of the source one by one; a case must notice each: half an hour
#   make loom   model-checks what threads share; make valgrind runs C tests under memcheck;
#   make fuzz FUZZ_SECONDS=300 runs each fuzz target so long; make deny checks the dependencies
#   make setup  only installs what is missing

BUILD ?= build
JOBS ?= $(shell nproc)
# The cases wait for time limits and probes more than they compute.
TEST_JOBS ?= $(shell expr 3 \* $$(nproc))
# The set-up may have put cargo where this shell does not look.
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: all demo demo-hang test asan wheel crash soak glusterfs filesystems setup build clean
all: build

setup:
	@scripts/setup.sh

build: setup
	cmake -S . -B $(BUILD)
	cmake --build $(BUILD) -j $(JOBS)

demo:
	@scripts/setup.sh demo
	cmake -S . -B $(BUILD)
	cmake --build $(BUILD) -j $(JOBS) --target replay
	$(BUILD)/examples/replay $(DEMO_ARGS)

demo-hang:
	@scripts/setup.sh demo-hang
	cmake -S . -B $(BUILD)
	cmake --build $(BUILD) -j $(JOBS) --target replay_fault
	$(BUILD)/examples/replay_fault --fault hang $(DEMO_ARGS)

test: setup
	cargo fmt --check
	cargo clippy --locked --all-targets -- -D warnings
	cargo test --locked
	$(MAKE) loom
	cmake -S . -B $(BUILD)
	cmake --build $(BUILD) -j $(JOBS)
	$(RUN_CTEST)

# CTest names the cases that it skipped; their reasons follow. With KVPATH_NO_SKIPS=1, on a machine
# that must have everything, no case may skip but those of ctest/skips.txt. What is to be run is in
# CASES_OF_CTEST; a list that an earlier run left says nothing of this one.
RUN_CTEST = rm -f $(BUILD)/Testing/Temporary/LastTestsDisabled.log; \
	ctest --test-dir $(BUILD) --output-on-failure -j $(TEST_JOBS) $(CASES_OF_CTEST); status=$$?; \
	scripts/skipped.sh $(BUILD) && exit $$status

# The C side of the library: misuse of memory across the boundary, leaks, undefined behaviour.
asan: CASES_OF_CTEST = -R '^asan\.' --no-tests=error
asan: build
	$(RUN_CTEST)

wheel:
	@scripts/setup.sh wheel
	cargo build --release --locked --lib
	python/wheel.sh $(BUILD)/python target/release/libkvpath.so

# Rounds in which writers are killed, for each engine; CI does 30.
CRASH_ROUNDS ?= 500
CRASH_SEED ?= $(shell date +%s)
SOAK_SECONDS ?= 60
SOAK_SEED ?= $(shell date +%s)
# One after the other, SOAK_SECONDS each.
SOAK_ENGINES ?= psync aio io_uring

# Writers that are killed; then power losses, every image opened by a store, 20 choices each.
crash: build
	KVPATH_CRASH_ROUNDS=$(CRASH_ROUNDS) KVPATH_CRASH_SEED=$(CRASH_SEED) \
	KVPATH_POWERLOSS_IMAGES=0 KVPATH_POWERLOSS_ROUNDS=20 \
	    ctest --test-dir $(BUILD) --verbose --timeout 36000 \
	    -R '(^|\.)(crash\.two_writers|powerloss\.)'

soak: build
	set -e; for engine in $(SOAK_ENGINES); do \
	    KVPATH_SOAK_SECONDS=$(SOAK_SECONDS) KVPATH_SOAK_SEED=$(SOAK_SEED) \
	    KVPATH_TEST_ENGINE=$$engine $(BUILD)/ctest/soak/soak chaos; done

# The soak takes so long with each engine; PARTS=demo leaves it out.
GLUSTERFS_SECONDS ?= 600
glusterfs:
	@scripts/setup.sh glusterfs
	cmake -S . -B $(BUILD)
	cmake --build $(BUILD) -j $(JOBS) --target replay soak_clients
	SOAK_SECONDS=$(GLUSTERFS_SECONDS) SOAK_SEED=$(SOAK_SEED) SOAK_ENGINES="$(SOAK_ENGINES)" \
	    ctest/glusterfs.sh $(BUILD) $(PARTS)

filesystems: bench-build
	@scripts/setup.sh filesystems
	ctest/filesystems.sh $(BENCH_BUILD)/kvbench $(CASES)

# Every order in which threads can meet, up to so many preemptions, at the places where they share
# something without a lock (src/sync.rs).
LOOM_MAX_PREEMPTIONS ?= 3
.PHONY: loom valgrind fuzz deny
loom: setup
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom CARGO_PROFILE_DEV_DEBUG=false \
	LOOM_MAX_PREEMPTIONS=$(LOOM_MAX_PREEMPTIONS) \
	cargo test --locked --lib loom_

# Flips the guards of the source one at a time; each flip must be noticed by its case.
# MUTANTS=word flips only those whose line has the word.
.PHONY: mutation
mutation: build
	ctest/ha/mutation.sh $(BUILD) $(MUTANTS)

# Cases of each kind; slow, so not all of them. psync and AIO: memcheck knows no ring's memory.
VALGRIND_CASES ?= 'task|commit|transfer.(one_shard|three)|lookup|observe|paths.marker|config.not_json'
valgrind: build
	scripts/valgrind.sh $(BUILD) $(VALGRIND_CASES)

# libFuzzer on stable Rust: the coverage that it steers by comes from these flags.
FUZZ_SECONDS ?= 60
FUZZ_TARGET = $(shell rustc -vV | sed -n 's/^host: //p')
FUZZ_FLAGS = --cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
	-Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
	-Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares
fuzz: setup
	RUSTFLAGS="$(FUZZ_FLAGS)" cargo build --locked --release --manifest-path fuzz/Cargo.toml \
		--target $(FUZZ_TARGET)
	mkdir -p fuzz/corpus/config fuzz/corpus/calls
	for target in config calls; do \
		KVPATH_LOG=error fuzz/target/$(FUZZ_TARGET)/release/$$target -max_total_time=$(FUZZ_SECONDS) \
			-max_len=2048 -len_control=0 -timeout=60 -print_final_stats=1 -artifact_prefix=fuzz/found- \
			fuzz/corpus/$$target || exit 1; done; \
	rm -rf /dev/shm/kvpath-fuzz-*

# Of everything that has a lock file: the library, and the workspaces of the fuzz targets and of the
# tests' file system. Advisories need the network.
DENY_CHECKS ?= licenses bans sources advisories
deny: setup
	command -v cargo-deny >/dev/null || cargo install --locked cargo-deny
	for manifest in Cargo.toml fuzz/Cargo.toml ctest/faultfs/Cargo.toml; do \
		echo "$$manifest"; \
		cargo deny --locked --config deny.toml --manifest-path $$manifest check $(DENY_CHECKS) \
			|| exit 1; done

include bench/Makefile
bench-tools: setup

clean:
	rm -rf $(BUILD) target
