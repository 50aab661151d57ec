//! One call on a name: rename, remove, ask. A single submission, made by a worker of the kernel.

use io_uring::{opcode, types};

use super::read::is_passing;
use super::table::{Ending, Id, Part};
use super::worker::Worker;
use crate::engine::psync::Tried;
use crate::engine::psync::read::given_up;
use crate::engine::{Done, FileInfo, OpKind};
use crate::error::{Failure, Step};

const AT: types::Fd = types::Fd(libc::AT_FDCWD);

fn step(kind: &OpKind) -> Step {
    match kind {
        OpKind::Unlink { .. } => Step::Remove,
        OpKind::Stat { .. } => Step::Stat,
        _ => Step::Rename,
    }
}

impl Worker {
    pub(super) fn start_name(&mut self, id: Id) {
        let Some(job) = self.table.get(id) else { return };
        if job.op.gate.revoked() {
            let step = step(&job.op.kind);
            return self.end(id, Ending::Report(Err(given_up(step))));
        }
        let entry = match &job.op.kind {
            OpKind::Rename { from, to, no_replace } => {
                let flags = if *no_replace { libc::RENAME_NOREPLACE } else { 0 };
                let entry = opcode::RenameAt::new(AT, from.as_ptr(), AT, to.as_ptr());
                Some((Part::Name, entry.flags(flags).build(), false))
            }
            OpKind::Unlink { path } => {
                Some((Part::Name, opcode::UnlinkAt::new(AT, path.as_ptr()).build(), false))
            }
            _ => self.stat_entry(id).map(|entry| (Part::Stat, entry, false)),
        };
        self.submit_all(id, [entry]);
    }

    pub(super) fn name_ended(&mut self, id: Id) {
        let Some(job) = self.table.get(id) else { return };
        let ending = match job.failed(job.last) {
            Some(errno) if is_passing(errno) => {
                let stale = errno == libc::ESTALE;
                Ending::HandOver(Tried { stale, ..Tried::default() })
            }
            Some(errno) => Ending::Report(Err(Failure::errno(step(&job.op.kind), errno))),
            None if job.last == Part::Stat => {
                Ending::Report(Ok(Done::Info(FileInfo { bytes: job.file_bytes() })))
            }
            None => Ending::Report(Ok(Done::Unit)),
        };
        self.end(id, ending);
    }
}
