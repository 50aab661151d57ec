//! The thread `ucm_posix_<i>_aio`: takes events in batches and ends what can be ended without
//! blocking; everything else goes back to the workers. It ends with its context when nothing has
//! been in flight for a while, and is made again when needed.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::desk::{KICK, Reaper};
use super::flight::{Flight, Todo, transfer};
use super::hub::Hub;
use crate::engine::host;
use crate::engine::pool::{IDLE_LIMIT, Ran, guarded, join_all};
use crate::engine::psync::Job;
use crate::posix::linux_aio::{Context, Event};

/// The most events of one call.
const BATCH: usize = 64;
/// From so many events at once on, the workers get half of them: each may be a long copy.
const SHARED_FROM: usize = 4;

impl Hub {
    /// Makes the reaper, if it was asked for. Only the supervisor calls it (R57).
    ///
    /// # Errors
    /// The system's refusal to make a thread.
    pub fn make_reaper(self: &Arc<Hub>) -> Result<(), std::io::Error> {
        let mut desk = self.desk.lock();
        let handles = std::mem::take(&mut desk.handles);
        let (ended, alive) = handles.into_iter().partition(JoinHandle::is_finished);
        desk.handles = alive;
        let context = desk.context.clone();
        let made = match (desk.reaper, &context) {
            (Reaper::Wanted | Reaper::Refused, Some(context)) => {
                let (hub, context) = (Arc::clone(self), Arc::clone(context));
                let name = format!("ucm_posix_{}_aio", self.index % 100);
                // Under the lock, so that it cannot end before its handle is kept.
                match host::spawn(&name, move || hub.reaper_life(context)) {
                    Ok(handle) => {
                        desk.handles.push(handle);
                        desk.reaper = Reaper::Running;
                        desk.reapers += 1;
                        Ok(())
                    }
                    Err(refusal) => {
                        desk.reaper = Reaper::Refused;
                        Err(refusal)
                    }
                }
            }
            _ => Ok(()),
        };
        drop(desk);
        join_all(ended);
        if let (Err(_), Some(context)) = (&made, context) {
            self.do_without(&context);
        }
        made
    }

    /// There is no thread for a reaper: the workers end what was submitted, and the context goes
    /// with the last of it. Takes no file and waits for nothing.
    fn do_without(&self, context: &Context) {
        let mut events = [Event::default(); BATCH];
        let mut flights = Vec::new();
        if let Ok(got) = context.events(&mut events, Some(Duration::ZERO)) {
            self.take(got, &mut flights);
        }
        self.hand_over(flights);
        let mut desk = self.desk.lock();
        if desk.in_kernel() || desk.airborne() > 0 {
            return;
        }
        desk.reaper = Reaper::None;
        let context = desk.context.take();
        drop(desk);
        self.refuse_for_a_while();
        drop(context);
        self.left.notify_all();
    }

    fn reaper_life(&self, context: Arc<Context>) {
        self.reap(&context);
        // This waits in the kernel.
        drop(context);
        self.desk.lock().reapers -= 1;
        self.left.notify_all();
        (self.bell)();
    }

    fn reap(&self, context: &Context) {
        let mut events = [Event::default(); BATCH];
        let mut flights = Vec::with_capacity(BATCH);
        while let Some(limit) = self.next_wait() {
            let Ok(got) = context.events(&mut events, limit) else {
                debug_assert!(false, "a live context gives events");
                return;
            };
            let stopping = self.take(got, &mut flights);
            if got.is_empty() && self.retire() {
                return;
            }
            if stopping {
                self.end_all(&mut flights);
            } else {
                self.share(&mut flights);
            }
        }
    }

    /// How long to wait for events. `None`: the reaper ends.
    fn next_wait(&self) -> Option<Option<Duration>> {
        let mut desk = self.desk.lock();
        if desk.stopping && desk.airborne() == 0 {
            (desk.reaper, desk.context) = (Reaper::None, None);
            return None;
        }
        desk.deaf |= desk.in_kernel();
        Some(if desk.deaf { None } else { Some(IDLE_LIMIT) })
    }

    /// Nothing came for a while: whether the reaper ends.
    fn retire(&self) -> bool {
        let mut desk = self.desk.lock();
        if desk.in_kernel() || desk.deaf {
            return false;
        }
        if desk.airborne() > 0 {
            // A worker has the last ones, and hangs with them: it tells when they are over.
            desk.deaf = true;
            return false;
        }
        (desk.reaper, desk.context) = (Reaper::None, None);
        true
    }

    /// Takes the flights of events from the desk. Says whether the lane stops.
    fn take(&self, events: &[Event], flights: &mut Vec<(Flight, Todo)>) -> bool {
        let mut desk = self.desk.lock();
        if !events.is_empty() {
            desk.deaf = false;
        }
        for event in events.iter().filter(|event| event.data != KICK) {
            if let Some(flight) = desk.leave(event.data) {
                flights.push((flight, Todo::Digest(event.result)));
            }
        }
        desk.stopping
    }

    /// Ends what is local, except for what the workers do meanwhile; hands over the rest.
    fn share(&self, flights: &mut Vec<(Flight, Todo)>) {
        let own = match flights.len() {
            count if count >= SHARED_FROM => count.div_ceil(2),
            count => count,
        };
        let mut place = 0;
        let theirs = flights.extract_if(.., |(flight, _)| {
            place += 1;
            place > own || !flight.leg.local
        });
        let theirs: Vec<_> = theirs.collect();
        if !theirs.is_empty() {
            self.hand_over(theirs);
        }
        for (flight, todo) in flights.drain(..) {
            let tag = flight.op.tag;
            if let Err(bug) = guarded(|| self.end_local(flight, todo)) {
                self.end(tag, Err(bug));
            }
        }
    }

    /// Ends a flight if that takes nothing that blocks; else hands it over.
    fn end_local(&self, flight: Flight, todo: Todo) {
        let Flight { op, mut leg } = flight;
        let job = Job { lane: &self.lane, op: &op };
        let Some(transfer) = transfer(&op) else { return };
        let todo = match todo {
            Todo::Digest(result) => leg.digest(&job, transfer, result),
            todo => todo,
        };
        match todo {
            Todo::End(result) if !is_stale(&result) => {
                let outcome = leg.conclude(&job, transfer, result);
                self.landed();
                self.end(op.tag, outcome);
            }
            todo => self.hand_over([(Flight { op, leg }, todo)]),
        }
    }

    /// The workers are leaving: the reaper does what is left.
    fn end_all(&self, flights: &mut Vec<(Flight, Todo)>) {
        let mut buffer = None;
        loop {
            let next = flights.pop().or_else(|| self.desk.lock().take_resumed());
            let Some((flight, todo)) = next else { return };
            let tag = flight.op.tag;
            let ran = guarded(|| self.go_on(flight, todo, &mut buffer));
            if let Ran::Ended(outcome) = ran.unwrap_or_else(|bug| Ran::Ended(Err(bug))) {
                self.end(tag, outcome);
            }
        }
    }
}

fn is_stale(result: &Result<(), crate::error::Failure>) -> bool {
    matches!(result, Err(failure) if failure.os() == Some(libc::ESTALE))
}
