//! The file system as `fuser` drives it: how a request becomes a call through the gate to the disk
//! and an answer. The requests themselves are in `fs.rs`.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use fuser::INodeNo;
use nix::errno::Errno;

use crate::answer::{Answer, Refuse, fuse_errno};
use crate::disk::Disk;
use crate::gate::{Gate, Verdict};
use crate::op::{Call, Op};
use crate::rule::Tweak;

/// The file system that `fuser` drives.
pub struct FaultFs {
    /// Decides and parks.
    pub gate: Arc<Gate>,
    /// Does.
    pub disk: Arc<Disk>,
    /// Let the kernel send asynchronous direct I/O without waiting for each request.
    pub async_dio: bool,
}

/// A path as rules see it.
pub fn shown(path: &Path) -> String {
    if path.as_os_str().is_empty() { ".".to_owned() } else { path.to_string_lossy().into_owned() }
}

impl FaultFs {
    /// A call on a number.
    pub fn on(&self, op: Op, id: INodeNo) -> Call {
        // An unknown number fails below; the rules see no path then.
        Call::new(op, self.disk.nodes.path(id.0).map_or_else(|_| "?".into(), |p| shown(&p)))
    }

    /// A call on a name in a directory.
    pub fn at(&self, op: Op, parent: INodeNo, name: &OsStr) -> Call {
        Call::new(op, self.name(parent, name))
    }

    /// The path of a name in a directory.
    pub fn name(&self, parent: INodeNo, name: &OsStr) -> String {
        self.disk.nodes.child(parent.0, name).map_or_else(|_| "?".into(), |p| shown(&p))
    }

    /// Sends a call through the gate; `run` does it and answers.
    pub fn pass<R: Refuse>(
        &self,
        call: Call,
        reply: R,
        run: impl FnOnce(&Disk, Tweak, R) + Send + 'static,
    ) {
        let disk = Arc::clone(&self.disk);
        let work = move |verdict| match verdict {
            Verdict::Fail(errno) => reply.refuse(fuse_errno(errno)),
            Verdict::Run(tweak) => run(&disk, tweak, reply),
        };
        self.gate.admit(call, Box::new(work));
    }

    /// The same for calls whose answer is a value or an errno.
    pub fn call<T, R: Answer<T>>(
        &self,
        call: Call,
        reply: R,
        run: impl FnOnce(&Disk, Tweak) -> Result<T, Errno> + Send + 'static,
    ) {
        self.pass(call, reply, |disk, tweak, reply: R| match run(disk, tweak) {
            Ok(value) => reply.answer(value),
            Err(errno) => reply.refuse(fuse_errno(errno)),
        });
    }
}
