//! Opening and closing (R8, R10–R13, R54, R57): what is made, in which order, and how it is undone.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::Store;
use super::backend::{PathFacts, Slots};
use super::collector::{Collector, Settings};
use super::core::Core;
use super::layout::{Layout, Writer};
use super::recovery::Link;
use super::report::Facts;
use super::rules::Rules;
use super::shared::{LaneSource, Shared};
use super::supervisor::{Alarm, Supervisor, pin};
use super::writer::{Alive, writer, writer_lives};
use crate::clock::{Clock, Time};
use crate::config::{Config, StartupPolicy};
use crate::engine::aio::Workers;
use crate::engine::select::{self, Choice, Wish};
use crate::engine::{Engine, EngineKind, EngineParams, Source, buffers, host};
use crate::error::{Error, Status};
use crate::health::breaker::{BreakerParams, BreakerThread};
use crate::health::executor::{Executor, Unfinished};
use crate::health::recovery::{Monitor, MonitorParams};
use crate::health::startup::{self, Checked, Policy, StartupParams, StartupReport};
use crate::health::window::Rule;
use crate::log::{self, Level};

/// How long a failing open waits for the log's callback.
const TOLD_WITHIN: Duration = Duration::from_secs(1);
/// The thread that checks the backends at open.
const CHECKER: &str = "ucm_posix_open";
/// How long a failing open waits for probe threads that do not hang.
const PROBE_THREADS_END: Duration = Duration::from_secs(1);
/// Stack of probe threads: as small as the page-sized buffers allow, since their number has no
/// limit (R52).
const PROBE_STACK_BYTES: usize = 128 << 10;

/// The permanent threads of a store.
pub struct Threads {
    pub(super) supervisor: Supervisor,
    pub(super) monitor: Arc<Monitor>,
    pub(super) breaker: Option<Arc<BreakerThread>>,
    pub(super) collector: Arc<Collector>,
    /// Its temporaries are a live writer's.
    pub(super) alive: Alive,
    /// The log's thread lives at least as long.
    pub(super) lease: log::Lease,
}

/// Which cores the store's threads and its health threads use (R57); empty: not pinned.
struct Cores {
    store: Vec<usize>,
    health: Vec<usize>,
}

impl Cores {
    fn new(config: &Config) -> Cores {
        let all = &config.cpu_affinity_cores;
        let health = if !config.health_cores.is_empty() {
            config.health_cores.clone()
        } else if config.vllm_affinity {
            all.last().copied().into_iter().collect()
        } else {
            Vec::new()
        };
        let rest: Vec<usize> = all.iter().copied().filter(|core| !health.contains(core)).collect();
        let store = if rest.is_empty() { all.clone() } else { rest };
        let health = if health.is_empty() { store.clone() } else { health };
        Cores { store, health }
    }

    /// A core outside the allowed set is a warning.
    fn warn(&self) {
        let Ok(allowed) = host::allowed_cores() else { return };
        for core in self.store.iter().chain(&self.health) {
            if !allowed.contains(core) {
                let text = format!("core {core} is not among those this process may use");
                log::emit(Level::Warn, "KV1005", &text);
            }
        }
    }
}

/// Opens a store.
pub fn open(text: &str) -> Result<Store, Error> {
    // Two: the store keeps one, and where there is no store the reason is still delivered (R10).
    let (lease, until_told) = (log::lease(), log::lease());
    let result = Config::parse(text).and_then(|config| {
        for warning in &config.warnings {
            log::emit(Level::Warn, "KV1003", warning);
        }
        open_with(config, lease)
    });
    match &result {
        Ok(store) => {
            let paths = store.config.backends.join(", ");
            let (engine, why) = (store.report.engine.word(), &store.report.engine_reason);
            let text = format!("open: {paths}; engine {engine} ({why})");
            log::emit(Level::Info, "KV1001", &text);
        }
        Err(error) => {
            log::emit(Level::Error, "KV1002", &format!("open failed: {error}"));
            // Whoever opens may hold a lock that the callback takes.
            let _told = until_told.end_within(TOLD_WITHIN);
        }
    }
    result
}

fn open_with(config: Config, lease: log::Lease) -> Result<Store, Error> {
    let clock = Clock::monotonic();
    let me = writer()?;
    let alive = Alive::new(&me);
    let cores = Cores::new(&config);
    cores.warn();
    if let Err(error) = log::pin(&cores.store) {
        log::emit(Level::Warn, "KV1005", &error.text);
    }
    // Before anything is made on disk.
    let wish = Wish {
        engine: config.engine,
        direct: config.io_direct,
        transfers: config.trans_concurrency,
    };
    let Choice { kind, reason } = select::choose(wish)?;
    let unfinished = Unfinished::new(config.backends.len());
    let executor = Executor::new(clock.clone(), unfinished.clone(), PROBE_STACK_BYTES);
    let (report, executor) = check(&config, &me, executor, &cores, &clock)?;
    for warning in &report.warnings {
        log::emit(Level::Warn, "KV1007", warning);
    }
    warn_of_shared_sectors(&config, &report);
    let shared = share(&config, kind, &me, &report, &clock)?;
    let facts = Facts {
        engine: kind,
        engine_reason: reason,
        paths: config.backends.clone(),
        unfinished: unfinished.clone(),
        breaker: OnceLock::new(),
        collector: OnceLock::new(),
    };
    let roots = report.backends.iter().map(|found| Some(found.as_ref().ok()?.root)).collect();
    let link = Arc::new(Link::new(&config, &me, &shared, roots));
    let settings = Settings::new(&config, &me, writer_lives, shared.read(|core| core.layout()));
    let collector = Arc::new(Collector::new(settings, &shared));
    let own = (alive, lease, collector);
    let threads = start(&config, &shared, link, executor, unfinished, &cores, own)?;
    if let Some(breaker) = &threads.breaker
        && facts.breaker.set(Arc::clone(breaker)).is_err()
    {
        debug_assert!(false, "the breaker is made once");
    }
    if facts.collector.set(Arc::clone(&threads.collector)).is_err() {
        debug_assert!(false, "the collector is made once");
    }
    // The supervisor looks when the first pass is due.
    shared.alarm.ring();
    let threads = parking_lot::Mutex::new(Some(threads));
    Ok(Store { config, shared, report: facts, threads })
}

/// Blocks whose shards share sectors are written buffered, whatever io_direct says (R33).
fn warn_of_shared_sectors(config: &Config, report: &StartupReport) {
    let Some(shape) = config.shape.filter(|_| config.transfers) else { return };
    for (path, found) in config.backends.iter().zip(&report.backends) {
        let Ok(checked) = found else { continue };
        let align = u64::from(checked.probed.offset_align.max(1));
        if checked.probed.direct && shape.shard_bytes % align != 0 {
            let text = format!(
                "backend {path}: shard_size {} is no multiple of {align}: blocks are written \
                 buffered and synced",
                shape.shard_bytes
            );
            log::emit(Level::Warn, "KV1012", &text);
        }
    }
}

/// Checks the backends on a library thread, so that open_timeout_ms can end the wait (R10).
fn check(
    config: &Config,
    me: &Writer,
    mut executor: Executor,
    cores: &Cores,
    clock: &Clock,
) -> Result<(StartupReport, Executor), Error> {
    let cancel = Arc::new(AtomicBool::new(false));
    let params = Arc::new(StartupParams::new(config, me.word(), Arc::clone(&cancel)));
    let (tell, told) = crossbeam_channel::bounded(1);
    let (policy, limit) = (config.startup_policy, config.health.timeout);
    let pins = cores.store.clone();
    let thread = host::spawn(CHECKER, move || {
        pin(&pins);
        let policy = match policy {
            StartupPolicy::All => Policy::All,
            StartupPolicy::Any => Policy::Any { executor: &mut executor, limit },
        };
        let result = startup::check_all(&params, policy);
        // Nobody listens where open_timeout_ms has passed.
        tell.send((result, executor)).ok();
    });
    let thread = thread.map_err(|error| no_thread(CHECKER, &error))?;
    let limit = (config.open_timeout_ms > 0).then(|| Duration::from_millis(config.open_timeout_ms));
    let answer = match limit {
        None => told.recv().ok(),
        Some(limit) => match told.recv_timeout(limit) {
            Ok(answer) => Some(answer),
            Err(crossbeam_channel::RecvTimeoutError::Disconnected) => None,
            Err(crossbeam_channel::RecvTimeoutError::Timeout) => {
                cancel.store(true, Ordering::Relaxed);
                let ms = config.open_timeout_ms;
                let text = format!("the backends' checks did not end in open_timeout_ms ({ms} ms)");
                return Err(Error::new(Status::Timeout, text));
            }
        },
    };
    // It has told its result, or panicked: either way it ends now.
    let panicked = thread.join().is_err();
    let Some((result, executor)) = answer else {
        debug_assert!(panicked);
        return Err(Error::new(Status::Error, "bug in kvpath: the start-up check panicked"));
    };
    match result {
        Ok(report) => Ok((report, executor)),
        Err(error) => {
            // A probe thread that hangs in the kernel is all that may stay behind (R12).
            let hanging = executor.join(Some(clock.now().plus(PROBE_THREADS_END)));
            if hanging > 0 {
                let text = format!("{hanging} probe threads hang in the kernel; they are detached");
                log::emit(Level::Warn, "KV1009", &text);
            }
            Err(error)
        }
    }
}

fn no_thread(name: &str, error: &std::io::Error) -> Error {
    Error::new(Status::OsError, host::thread_refusal(&format!("the thread {name}"), error))
}

/// What is known of a path that passed its check.
pub(super) fn path_facts(checked: &Checked, now: Time) -> PathFacts {
    let probed = checked.probed;
    PathFacts {
        direct: probed.direct,
        offset_align: u64::from(probed.offset_align),
        storage: Some(probed.marker.uuid),
        clock_offset_s: host::wall_clock_s()
            .saturating_add(probed.clock_ahead_s)
            .saturating_sub(i64::try_from(now.0.as_secs()).unwrap_or(0)),
        coherent: probed.coherent,
    }
}

fn share(
    config: &Config,
    kind: EngineKind,
    me: &Writer,
    report: &StartupReport,
    clock: &Clock,
) -> Result<Arc<Shared>, Error> {
    let now = clock.now();
    let mask = Arc::new(AtomicU64::new(0));
    let layout = Layout::new(&config.backends, config.data_dir_shard_bytes, me);
    let facts = report.backends.iter().map(|backend| match backend {
        Ok(checked) => Ok(path_facts(checked, now)),
        Err(failed) => Err(failed.failure.clone()),
    });
    let n = u64::try_from(config.backends.len()).unwrap_or(1);
    let buffer_bytes = (config.buffer_mb_max << 20) / n;
    let most = if config.io_direct { u64::MAX } else { buffers::BUFFERED_FILE_BYTES };
    let file_bytes = config.shape.map_or(0, |shape| shape.block_bytes).min(most);
    let slots = Slots {
        transfers: config.trans_concurrency,
        lookups: config.lookup_concurrency,
        idle: idle_slots(config),
        buffered: kind.buffered(buffer_bytes, config.trans_concurrency, file_bytes),
    };
    let mut core = Core::new(
        Rules::new(config),
        clock.clone(),
        Arc::new(layout),
        facts.collect(),
        config.io_direct,
        slots,
        Arc::clone(&mask),
    );
    for (lane, backend) in report.backends.iter().enumerate() {
        core.learn_room(lane, backend.as_ref().ok().and_then(|checked| checked.space), now);
    }
    let alarm = Arc::new(Alarm::new(clock.clone()));
    let shared = Arc::new(Shared::new(core, clock.clone(), mask, Arc::clone(&alarm)));
    let (openers, committers) = (config.open_concurrency, config.commit_concurrency);
    let workers = Workers { openers, committers };
    let engines = (0..config.backends.len()).map(|index| {
        let alarm = Arc::clone(&alarm);
        let params = EngineParams {
            index,
            transfers: config.trans_concurrency,
            metadata: slots.metadata(),
            buffer_bytes,
            file_bytes,
            bell: Arc::new(move || alarm.ring()),
        };
        let source = LaneSource::new(Arc::downgrade(&shared), index, kind);
        engine(&shared, kind, workers, params, Arc::new(source))
    });
    let engines: Result<Vec<Arc<dyn Engine>>, Error> = engines.collect();
    shared.set_engines(engines?);
    Ok(shared)
}

/// What the collector may have in flight on one backend. A sweep alone is in no hurry.
fn idle_slots(config: &Config) -> usize {
    match config.collection.capacity {
        Some(_) => config.collection.concurrency.div_ceil(config.backends.len().max(1)),
        None => 1,
    }
}

#[cfg_attr(not(feature = "fault"), expect(unused_variables, reason = "for faults"))]
fn engine(
    shared: &Shared,
    kind: EngineKind,
    workers: Workers,
    params: EngineParams,
    source: Arc<dyn Source>,
) -> Result<Arc<dyn Engine>, Error> {
    let make = move |params, source| select::make(kind, workers, params, source);
    #[cfg(not(feature = "fault"))]
    return Ok(make(params, source));
    #[cfg(feature = "fault")]
    {
        let engine = crate::engine::fault::FaultEngine::new(&make, params, source)
            .map_err(|error| no_thread("ucm_fault", &error))?;
        shared.faults.lock().push(Arc::clone(&engine));
        Ok(engine)
    }
}

fn start(
    config: &Config,
    shared: &Arc<Shared>,
    link: Arc<Link>,
    executor: Executor,
    unfinished: Unfinished,
    cores: &Cores,
    (alive, lease, collector): (Alive, log::Lease, Arc<Collector>),
) -> Result<Threads, Error> {
    let clock = &shared.clock;
    let rule = Rule { window: config.health.window, threshold: config.health.threshold };
    let alarm = Arc::clone(&shared.alarm);
    let watched = (Arc::downgrade(shared), Arc::clone(&collector));
    let supervisor = Supervisor::start(alarm, watched, cores.store.clone())
        .map_err(|error| no_thread("ucm_posix_sup", &error))?;
    let params = MonitorParams {
        interval: config.health.interval,
        timeout: config.health.timeout,
        cores: cores.health.clone(),
        clock: clock.clone(),
        unfinished,
    };
    let monitor = match Monitor::start(params, executor, Arc::clone(&link) as _) {
        Ok(monitor) => Arc::new(monitor),
        Err(error) => {
            supervisor.stop();
            return Err(no_thread("ucm_health_pmon", &error));
        }
    };
    let breaker = if config.health.enabled {
        let params = BreakerParams {
            interval: config.health.interval,
            timeout: config.health.timeout,
            rule,
            cores: cores.health.clone(),
            clock: clock.clone(),
        };
        match BreakerThread::start(params, link) {
            Ok(breaker) => Some(Arc::new(breaker)),
            Err(error) => {
                let _left = monitor.join(None);
                supervisor.stop();
                return Err(no_thread("ucm_health_mon", &error));
            }
        }
    } else {
        None
    };
    let (wake_monitor, wake_breaker) = (Arc::clone(&monitor), breaker.clone());
    shared.set_recovery(Box::new(move || {
        wake_monitor.wake();
        if let Some(breaker) = &wake_breaker {
            breaker.wake();
        }
    }));
    Ok(Threads { supervisor, monitor, breaker, collector, alive, lease })
}
