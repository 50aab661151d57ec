//! Any calls of the C ABI, from several threads, with handles that are right, stale and never were,
//! null pointers and impossible lengths (R70, R72). What is checked: every status is one of the
//! header's, none of them is a bug's; outputs are as the header says; a load that succeeds gives
//! the block's bytes; and when all stores are closed no descriptor is left.

use std::ffi::{CString, c_char, c_void};
use std::path::PathBuf;
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex, OnceLock};

use kvpath::ffi::table::{kvpath_api, kvpath_api_t};
use kvpath::ffi::types::{
    kvpath_backend_health_t, kvpath_block_id_t, kvpath_shard_t, kvpath_stats_t,
};

const THREADS: usize = 3;
const SHARD: usize = 512;
const SHARDS: usize = 4;
/// Ids are few, so that calls meet.
const BLOCKS: u8 = 6;
const STORES: usize = 3;
const STORAGES: [&str; 2] = ["whole", "holes"];
const OK: i32 = 0;
const ERROR: i32 = -1;
const STATUSES: [i32; 15] = [
    0, -1, -50000, -50001, -50002, -50003, -50004, -50005, -50008, -50009, -50010, -50011, -51000,
    -51002, -51003,
];

/// An open store; handle 0: none.
#[derive(Clone, Copy, Default)]
struct Store {
    handle: u64,
    /// Its blocks may have holes (`last_shard`).
    holes: bool,
}

/// What a sequence shares among its threads.
struct World {
    api: &'static kvpath_api_t,
    stores: Mutex<[Store; STORES]>,
    tasks: Mutex<Vec<Task>>,
    /// Memory of tasks, freed when every store is closed.
    memory: Mutex<Vec<Box<[u8]>>>,
}

/// What a load has to find, shard by shard, and where.
struct Load {
    shards: Vec<(u8, usize)>,
    start: usize,
    holes: bool,
}

#[derive(Clone)]
struct Task {
    handle: u64,
    store: u64,
    load: Option<Arc<Load>>,
}

/// The input, taken byte by byte; zeros once it is used up.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::from(self.byte()) % limit
    }
}

/// One sequence. Its first byte says where each thread's part begins.
pub fn run(data: &[u8]) {
    let descriptors = descriptors();
    // SAFETY: the table is static.
    let api = unsafe { kvpath_api(1).as_ref() }.expect("version 1 is there");
    let world = World {
        api,
        stores: Mutex::new([Store::default(); STORES]),
        tasks: Mutex::default(),
        memory: Mutex::default(),
    };
    let share = data.len().div_ceil(THREADS).max(1);
    std::thread::scope(|scope| {
        for part in data.chunks(share) {
            let world = &world;
            scope.spawn(move || {
                let mut input = Input(part);
                while !input.0.is_empty() {
                    step(world, &mut input);
                }
            });
        }
    });
    let stores = *world.stores.lock().unwrap();
    for store in stores.into_iter().filter(|store| store.handle != 0) {
        known((api.close)(store.handle));
    }
    let left = self::descriptors();
    assert!(left.len() <= descriptors.len(), "a descriptor was left: {left:?}");
}

/// What each descriptor of the process is.
fn descriptors() -> Vec<PathBuf> {
    let list = std::fs::read_dir("/proc/self/fd").expect("/proc is there");
    list.map(|entry| std::fs::read_link(entry.unwrap().path()).unwrap_or_default()).collect()
}

/// The status is one of the header's, and no bug's.
fn known(status: i32) -> i32 {
    assert!(STATUSES.contains(&status), "status {status}");
    if status == ERROR {
        // SAFETY: a terminated string, until this thread's next call.
        let text = unsafe { std::ffi::CStr::from_ptr(kvpath::ffi::guard::kvpath_last_error()) };
        assert!(!text.to_string_lossy().contains("bug in kvpath"), "{text:?}");
    }
    status
}

/// The storages of all sequences, in memory where that is possible: one for blocks that have no
/// holes, and one where `last_shard` may leave some. Apart, so that it is known what a load has to
/// find whatever an earlier sequence has stored.
pub fn root() -> &'static PathBuf {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let shm = PathBuf::from("/dev/shm");
        let base = if shm.is_dir() { shm } else { std::env::temp_dir() };
        let root = base.join(format!("kvpath-fuzz-{}", std::process::id()));
        for storage in STORAGES {
            let behind = root.join(storage).join("storage");
            std::fs::create_dir_all(&behind).unwrap();
            for path in ["a", "b"] {
                let link = root.join(storage).join(path);
                if !link.exists() {
                    std::os::unix::fs::symlink(&behind, link).unwrap();
                }
            }
        }
        root
    })
}

fn content(block: u8, shard: usize) -> u8 {
    1 + (block.wrapping_mul(31) ^ u8::try_from(shard).unwrap_or(0).wrapping_mul(7)) % 250
}

fn id(block: u8) -> kvpath_block_id_t {
    kvpath_block_id_t { bytes: [block; 16] }
}

/// A configuration, and whether blocks may have holes with it.
fn config(input: &mut Input<'_>) -> (CString, bool) {
    let paths = input.below(8).min(2) % 3;
    let engine = ["psync", "aio", "io_uring", "auto"][input.below(4)];
    let policy = ["all_shards", "last_shard", "explicit"][input.below(3)];
    let holes = policy == "last_shard";
    let root = root().join(STORAGES[usize::from(holes)]);
    let root = root.display();
    let paths = &[format!("{root}/a"), format!("{root}/a:{root}/b"), format!("{root}/none")][paths];
    let mode = ["isolated", "borrowed"][input.below(2)];
    let timeout = [0, 1, 200, 30_000][input.below(4)];
    let sizes = if input.below(8) == 7 {
        String::new()
    } else {
        format!(
            ", \"tensor_size\": {}, \"shard_size\": {SHARD}, \"block_size\": {}",
            [SHARD, SHARD / 2][input.below(2)],
            SHARD * SHARDS
        )
    };
    let text = format!(
        "{{\"storage_backends\": \"{paths}\", \"data_dir_shard_bytes\": 0, \"posix_io_engine\": \
         \"{engine}\", \"commit_policy\": \"{policy}\", \"buffer_mode\": \"{mode}\", \
         \"timeout_ms\": {timeout}, \"io_direct\": {}, \"io_direct_fallback\": true, \
         \"max_queued_shards\": {}, \"commit_sync\": \"none\"{sizes}}}",
        input.below(2) == 1,
        [4, 1000][input.below(2)],
    );
    (CString::new(text).unwrap(), holes)
}

fn any_store(world: &World, input: &mut Input<'_>) -> Store {
    let none = |handle| Store { handle, holes: false };
    match input.byte() {
        250.. => none(u64::MAX),
        245.. => none(0),
        240.. => none(1),
        other => world.stores.lock().unwrap()[usize::from(other) % STORES],
    }
}

fn store_of(world: &World, input: &mut Input<'_>) -> u64 {
    any_store(world, input).handle
}

/// A task of this store, of another, or none.
fn task_of(world: &World, input: &mut Input<'_>) -> Task {
    let none = Task { handle: u64::MAX - 5, store: 0, load: None };
    let tasks = world.tasks.lock().unwrap();
    match input.byte() {
        250.. => none,
        other if tasks.is_empty() => Task { handle: u64::from(other), ..none },
        other => tasks[tasks.len() - 1 - usize::from(other) % tasks.len()].clone(),
    }
}

fn step(world: &World, input: &mut Input<'_>) {
    match input.below(32) {
        0 => open(world, input),
        1 => close(world, input),
        2..=6 => submit(world, input, true),
        7..=10 => submit(world, input, false),
        11..=14 => wait(world, input),
        15..=18 => handles(world, input),
        19..=22 => lookups(world, input),
        23..=26 => blocks(world, input),
        _ => reports(world, input),
    }
}

fn open(world: &World, input: &mut Input<'_>) {
    let mut store = 0;
    let at = input.below(STORES);
    let (text, holes) = config(input);
    if world.stores.lock().unwrap()[at].handle != 0 {
        return;
    }
    // SAFETY: a terminated string, and one number of ours.
    if known(unsafe { (world.api.open)(text.as_ptr(), &raw mut store) }) != OK {
        assert_eq!(store, 0);
        return;
    }
    assert_ne!(store, 0);
    let store = Store { handle: store, holes };
    let before = std::mem::replace(&mut world.stores.lock().unwrap()[at], store);
    if before.handle != 0 {
        known((world.api.close)(before.handle));
    }
}

fn close(world: &World, input: &mut Input<'_>) {
    let at = input.below(STORES);
    let mut stores = world.stores.lock().unwrap();
    // Most sequences are worth more with an open store.
    let store =
        if input.below(4) == 0 { std::mem::take(&mut stores[at]) } else { Store::default() };
    drop(stores);
    known((world.api.close)(store.handle));
    if store.handle != 0 {
        known((world.api.close)(store.handle));
    }
}

/// The count, or sometimes one that no memory and no configuration has.
fn or_absurd(input: &mut Input<'_>, count: usize) -> usize {
    if input.below(64) == 63 { 1 << (31 + input.below(33)) } else { count }
}

fn submit(world: &World, input: &mut Input<'_>, load: bool) {
    let Store { handle: store, holes } = any_store(world, input);
    let tensors = 1 + input.below(2);
    let count = input.below(6);
    let mut memory = vec![0_u8; SHARD * count.max(1)].into_boxed_slice();
    let start = memory.as_mut_ptr();
    let mut addrs = Vec::new();
    let mut chosen = Vec::new();
    for at in 0..count {
        let (block, shard) = (input.byte() % BLOCKS, input.below(SHARDS + 1));
        chosen.push((block, shard));
        for tensor in 0..tensors {
            let wrong = input.below(64) == 63;
            let offset = at * SHARD + tensor * (SHARD / tensors);
            let address = if wrong { null_mut() } else { start.wrapping_add(offset) };
            addrs.push(address.cast::<c_void>());
        }
        if !load {
            memory[at * SHARD..(at + 1) * SHARD].fill(content(block, shard));
        }
    }
    let shards: Vec<kvpath_shard_t> = chosen
        .iter()
        .enumerate()
        .map(|(at, (block, shard))| kvpath_shard_t {
            block: id(*block),
            index: u32::try_from(*shard).unwrap(),
            addr_count: u32::try_from(tensors).unwrap(),
            addrs: addrs[at * tensors..].as_ptr().cast(),
        })
        .collect();
    let mut handle = 0;
    let function = if load { world.api.load } else { world.api.dump };
    let list = if input.below(32) == 31 { null() } else { shards.as_ptr() };
    let asked = or_absurd(input, count);
    // SAFETY: the list and what it names live during the call, the memory until the stores are
    // closed; it is not touched by anybody else before that. An absurd count is refused.
    let status = known(unsafe { function(store, list, asked, &raw mut handle) });
    assert_eq!(status == OK, handle != 0);
    assert!(status != OK || asked == count, "{asked} shards were taken");
    world.memory.lock().unwrap().push(memory);
    if status == OK {
        let load = load.then(|| Arc::new(Load { shards: chosen, start: start.addr(), holes }));
        world.tasks.lock().unwrap().push(Task { handle, store, load });
    }
}

/// A load's shards, as far as `ok` says that they succeeded.
fn check_loaded(world: &World, task: &Task, ok: impl Fn(usize) -> bool) {
    let Some(load) = &task.load else { return };
    let memory = world.memory.lock().unwrap();
    let bytes = memory.iter().find(|bytes| bytes.as_ptr().addr() == load.start).unwrap();
    for (at, (block, shard)) in load.shards.iter().enumerate().filter(|(at, _)| ok(*at)) {
        let bytes = &bytes[at * SHARD..(at + 1) * SHARD];
        let whole = |value| bytes.iter().all(|byte| *byte == value);
        // Zeros: a hole, where a shard was never written.
        assert!(
            whole(content(*block, *shard)) || (load.holes && whole(0)),
            "wrong bytes were loaded for shard {shard} of block {block}: {bytes:?}"
        );
    }
}

fn wait(world: &World, input: &mut Input<'_>) {
    let task = task_of(world, input);
    let limit_ms = 1 + u64::from(input.byte() % 20);
    if input.below(2) == 0 {
        if known((world.api.wait)(task.store, task.handle, limit_ms)) == OK {
            check_loaded(world, &task, |_| true);
        }
        return;
    }
    let mut statuses = [i32::MAX; 8];
    let count = input.below(9);
    let at = if input.below(16) == 15 { null_mut() } else { statuses.as_mut_ptr() };
    // SAFETY: eight numbers of ours.
    let status =
        known(unsafe { (world.api.wait_results)(task.store, task.handle, limit_ms, at, count) });
    if status == OK {
        check_loaded(world, &task, |_| true);
        assert!(statuses.iter().all(|status| *status == OK || *status == i32::MAX));
    } else {
        check_loaded(world, &task, |at| statuses[at] == OK);
    }
}

fn handles(world: &World, input: &mut Input<'_>) {
    let task = task_of(world, input);
    let store = if input.below(8) == 7 { store_of(world, input) } else { task.store };
    let mut finished = 9;
    let (mut list, mut count, mut fd) = ([0; 4], 99, -9);
    // SAFETY: every output is one of ours, of the length that is said.
    unsafe {
        match input.below(6) {
            0 | 1 => {
                let status = known((world.api.check)(store, task.handle, &raw mut finished));
                assert_eq!(status == OK, finished < 2);
            }
            2 => drop(known((world.api.cancel)(store, task.handle))),
            3 => drop(known((world.api.forget)(store, task.handle))),
            4 => {
                let max = input.below(5);
                let status = (world.api.finished)(store, list.as_mut_ptr(), max, &raw mut count);
                assert_eq!(known(status) == OK, count <= max);
            }
            _ => {
                let status = known((world.api.event_fd)(store, &raw mut fd));
                assert_eq!(status == OK, fd >= 0);
                known((world.api.event_fd)(store, null_mut()));
            }
        }
    }
}

fn lookups(world: &World, input: &mut Input<'_>) {
    let store = store_of(world, input);
    let count = input.below(9);
    let ids: Vec<_> = (0..8).map(|_| id(input.byte() % (BLOCKS + 2))).collect();
    let list = if input.below(16) == 15 { null() } else { ids.as_ptr() };
    let count = or_absurd(input, count.min(ids.len()));
    let (mut found, mut index) = ([9_u8; 8], i64::MIN);
    // SAFETY: eight ids and eight answers of ours; an absurd count is refused.
    unsafe {
        match input.below(4) {
            0 => drop(known((world.api.lookup_prefix)(store, list, count, &raw mut index))),
            1 => drop(known((world.api.lookup_last)(store, list, count, &raw mut index))),
            2 => drop(known((world.api.lookup)(store, list, count, null_mut()))),
            _ => {
                let status = (world.api.lookup)(store, list, count, found.as_mut_ptr());
                if known(status) == OK {
                    assert!(found[..count].iter().all(|found| *found < 2));
                }
            }
        }
    }
    assert!(index == i64::MIN || (-1..8).contains(&index));
}

fn blocks(world: &World, input: &mut Input<'_>) {
    let store = store_of(world, input);
    let ids: Vec<_> = (0..4).map(|_| id(input.byte() % BLOCKS)).collect();
    let list = if input.below(16) == 15 { null() } else { ids.as_ptr() };
    // SAFETY: four ids of ours.
    unsafe {
        match input.below(4) {
            0 => drop(known((world.api.remove)(store, list, input.below(5)))),
            1 => drop(known((world.api.commit)(store, list, 0))),
            _ => drop(known((world.api.commit)(store, list, input.byte()))),
        }
    }
}

fn reports(world: &World, input: &mut Input<'_>) {
    let store = store_of(world, input);
    let mut text: [c_char; 4096] = [0; 4096];
    let (mut length, mut count) = (0, 0);
    let capacity = [0, 1, 100, 4096][input.below(4)];
    let buffer = if input.below(8) == 7 { null_mut() } else { text.as_mut_ptr() };
    // SAFETY: every output is one of ours, of the length that is said, zero being a valid value of
    // each struct; every text is terminated.
    unsafe {
        let mut health: [kvpath_backend_health_t; 2] = std::mem::zeroed();
        let mut stats: kvpath_stats_t = std::mem::zeroed();
        let size = |input: &mut Input<'_>, whole: usize| {
            u32::try_from([whole, whole / 2, 4, 0][input.below(4)]).unwrap()
        };
        match input.below(10) {
            0 => drop(known((world.api.check_health)(store))),
            1 => {
                health[0].size = size(input, size_of::<kvpath_backend_health_t>());
                let most = input.below(3);
                known((world.api.health)(store, health.as_mut_ptr(), most, &raw mut count));
            }
            2 => drop(known((world.api.health_json)(store, buffer, capacity, &raw mut length))),
            3 => {
                let storage = root().join(STORAGES[input.below(2)]);
                let path = CString::new(format!("{}/a", storage.display())).unwrap();
                let path = [path.as_ptr(), c"/nowhere".as_ptr(), c"".as_ptr(), null()];
                let setting = i32::from(input.byte() % 4);
                known((world.api.backend_set)(store, path[input.below(4)], setting));
            }
            4 => {
                stats.size = size(input, size_of::<kvpath_stats_t>());
                known((world.api.stats)(store, &raw mut stats));
            }
            5 => drop(known((world.api.stats_json)(store, buffer, capacity, &raw mut length))),
            6 => drop(known((world.api.metrics)(store, buffer, capacity, null_mut()))),
            7 => {
                let memory = (world.api.alloc)(usize::from(input.byte()) << input.below(12));
                (world.api.free)(memory);
                (world.api.free)(memory);
            }
            8 => {
                let name = (world.api.status_name)(i32::from(input.byte()) - 50_100);
                assert!(!name.is_null() && !(world.api.last_error)().is_null());
            }
            _ => drop(known((world.api.open)(c"{\"storage_backends\": 1}".as_ptr(), null_mut()))),
        }
    }
    assert_eq!(text[4095], 0);
}
