//! The gate that every operation passes: it counts, asks the rules, and lets the call run, wait or
//! fail. It owns the rules, the counters and every parked call; it knows nothing of files.
//!
//! A parked call is an entry in a table (its reply goes out later), so hangs need no threads.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use parking_lot::{Condvar, Mutex};

use crate::counts::{self, Counts};
use crate::op::{Call, OP_COUNT, OpSet};
use crate::pool::{Later, Pool};
use crate::rule::{Plan, Rule, Tweak};

/// How long `release` waits for the calls that it let go.
const RELEASE_LIMIT: Duration = Duration::from_secs(10);

/// What becomes of a call in the end.
pub enum Verdict {
    /// It is answered with this errno.
    Fail(Errno),
    /// It is run.
    Run(Tweak),
}

/// Runs or fails the call and answers the kernel.
pub type Work = Box<dyn FnOnce(Verdict) + Send>;

/// Why a call hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Rule(u64),
    Freeze,
}

/// Which hung calls to let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// All.
    All,
    /// Those of one rule.
    Rule(u64),
    /// Those that the freeze holds.
    Freeze,
}

struct Pending {
    id: u64,
    call: Call,
    plan: Plan,
    work: Work,
}

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    rule_last: u64,
    call_last: u64,
    hung: BTreeMap<u64, (Cause, Pending)>,
    counts: Counts,
    frozen: bool,
    closing: bool,
}

/// See the top of this file.
pub struct Gate {
    state: Mutex<State>,
    /// Told of every call that arrives or starts to hang.
    changed: Condvar,
    delayed: Later<Pending>,
    pool: Pool,
}

impl Gate {
    /// A gate that lets everything through.
    pub fn new(pool: Pool) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), delayed: Later::new(), pool }
    }

    /// Takes one call from the kernel. Never blocks.
    pub fn admit(&self, call: Call, work: Work) {
        let mut state = self.state.lock();
        if state.closing {
            drop(state);
            return work(Verdict::Fail(Errno::EIO));
        }
        state.counts.add(&call);
        let mut plan = Plan::default();
        for rule in &mut state.rules {
            rule.apply(&call, &mut plan);
        }
        state.call_last += 1;
        let pending = Pending { id: state.call_last, call, plan, work };
        self.changed.notify_all();
        if plan.delay.is_zero() || state.frozen {
            self.proceed(state, pending);
        } else {
            // Under the lock, so that `close` finds every call in one place or the other.
            self.delayed.add(Instant::now() + plan.delay, pending.id, pending);
        }
    }

    /// Lets delayed calls go on when their time has come; the body of a thread.
    pub fn run_delayed(&self) -> ! {
        loop {
            let pending = self.delayed.next();
            self.proceed(self.state.lock(), pending);
        }
    }

    fn proceed(&self, mut state: parking_lot::MutexGuard<'_, State>, pending: Pending) {
        let cause = match pending.plan.hang {
            _ if state.closing => None,
            _ if state.frozen => Some(Cause::Freeze),
            Some(rule) => Some(Cause::Rule(rule)),
            None => None,
        };
        match cause {
            Some(cause) => {
                state.hung.insert(pending.id, (cause, pending));
                self.changed.notify_all();
            }
            None if state.closing => {
                drop(state);
                (pending.work)(Verdict::Fail(Errno::EIO));
            }
            None => {
                drop(state);
                self.finish(pending, None, None);
            }
        }
    }

    /// Ends a call as planned, or with `fail`; `done` is dropped after its answer.
    fn finish(&self, pending: Pending, fail: Option<Errno>, done: Option<mpsc::Sender<()>>) {
        let Pending { plan, work, .. } = pending;
        match fail.or(plan.fail) {
            Some(errno) => work(Verdict::Fail(errno)),
            None => self.pool.run(Box::new(move || {
                work(Verdict::Run(plan.tweak));
                drop(done);
            })),
        }
    }

    /// Adds a rule and gives its number.
    pub fn rule_add(&self, words: &[&str]) -> Result<u64, String> {
        let mut state = self.state.lock();
        let rule = Rule::parse(state.rule_last + 1, words)?;
        state.rule_last = rule.id;
        state.rules.push(rule);
        Ok(state.rule_last)
    }

    /// Takes a rule away; calls that it holds stay hung.
    pub fn rule_delete(&self, id: u64) -> Result<(), String> {
        let mut state = self.state.lock();
        let before = state.rules.len();
        state.rules.retain(|rule| rule.id != id);
        if state.rules.len() == before { Err(format!("no rule {id}")) } else { Ok(()) }
    }

    /// Takes all rules away.
    pub fn rules_clear(&self) {
        self.state.lock().rules.clear();
    }

    /// How many calls a rule has hit.
    pub fn rule_fired(&self, id: u64) -> Result<u64, String> {
        let state = self.state.lock();
        let rule = state.rules.iter().find(|rule| rule.id == id);
        rule.map(|rule| rule.fired).ok_or_else(|| format!("no rule {id}"))
    }

    /// Everything hangs from now on.
    pub fn freeze(&self) {
        self.state.lock().frozen = true;
    }

    /// Ends the freeze and lets go what it held.
    pub fn thaw(&self) -> Result<usize, String> {
        let mut state = self.state.lock();
        state.frozen = false;
        let mut freed = Vec::new();
        take_hung(&mut state, Whose::Freeze, &mut freed);
        // What a rule wanted to hang hangs on, for that rule.
        let mut go = Vec::new();
        for pending in freed {
            match pending.plan.hang {
                Some(rule) => {
                    state.hung.insert(pending.id, (Cause::Rule(rule), pending));
                }
                None => go.push(pending),
            }
        }
        drop(state);
        self.let_go(go, None)
    }

    /// Lets hung calls go, to run or to fail, and waits until they are answered.
    pub fn release(&self, whose: Whose, fail: Option<Errno>) -> Result<usize, String> {
        let mut go = Vec::new();
        take_hung(&mut self.state.lock(), whose, &mut go);
        self.let_go(go, fail)
    }

    fn let_go(&self, go: Vec<Pending>, fail: Option<Errno>) -> Result<usize, String> {
        let count = go.len();
        let (done, all_done) = mpsc::channel();
        for pending in go {
            self.finish(pending, fail, Some(done.clone()));
        }
        drop(done);
        match all_done.recv_timeout(RELEASE_LIMIT) {
            Err(mpsc::RecvTimeoutError::Timeout) => Err("timeout: still running".to_owned()),
            _ => Ok(count),
        }
    }

    /// How many calls hang, by operation.
    pub fn hung(&self) -> String {
        hung_text(&self.state.lock())
    }

    /// Waits until at least `want` calls of `ops` hang.
    pub fn wait_hung(&self, ops: OpSet, want: usize, limit: Duration) -> Result<String, String> {
        self.wait(limit, |state| {
            let count = state.hung.values().filter(|(_, p)| ops.matches(&p.call)).count();
            Ok((count >= want, hung_text(state)))
        })
    }

    /// Waits until at least `want` calls of `ops` were seen on matching paths.
    pub fn wait_count(
        &self,
        ops: OpSet,
        pattern: &str,
        want: u64,
        limit: Duration,
    ) -> Result<String, String> {
        self.wait(limit, |state| {
            let count = state.counts.sum(ops, pattern)?;
            Ok((count >= want, count.to_string()))
        })
    }

    fn wait(
        &self,
        limit: Duration,
        look: impl Fn(&State) -> Result<(bool, String), String>,
    ) -> Result<String, String> {
        let deadline = Instant::now() + limit;
        let mut state = self.state.lock();
        loop {
            let (enough, text) = look(&state)?;
            if enough {
                return Ok(text);
            }
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                let (enough, text) = look(&state)?;
                return if enough { Ok(text) } else { Err(format!("timeout {text}")) };
            }
        }
    }

    /// The counters as text.
    pub fn counts(&self, pattern: Option<&str>) -> Result<String, String> {
        self.state.lock().counts.of(pattern).map(|counts| counts::text(&counts))
    }

    /// Starts to count from 0.
    pub fn counts_reset(&self) {
        self.state.lock().counts = Counts::default();
    }

    /// Fails everything that is parked, and all that comes, with EIO.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closing = true;
        state.frozen = false;
        let mut go = Vec::new();
        take_hung(&mut state, Whose::All, &mut go);
        go.extend(self.delayed.take_all());
        drop(state);
        for pending in go {
            (pending.work)(Verdict::Fail(Errno::EIO));
        }
    }
}

fn take_hung(state: &mut State, whose: Whose, into: &mut Vec<Pending>) {
    for (id, held) in std::mem::take(&mut state.hung) {
        let taken = match whose {
            Whose::All => true,
            Whose::Rule(rule) => held.0 == Cause::Rule(rule),
            Whose::Freeze => held.0 == Cause::Freeze,
        };
        if taken {
            into.push(held.1);
        } else {
            state.hung.insert(id, held);
        }
    }
}

fn hung_text(state: &State) -> String {
    let mut by_op = [0_u64; OP_COUNT];
    for (_, pending) in state.hung.values() {
        by_op[pending.call.op as usize] += 1;
    }
    counts::text(&by_op)
}
