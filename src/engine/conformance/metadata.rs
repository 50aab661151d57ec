//! Every op that is no read or write.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::rig::{Rig, USUAL, c_path};
use super::{Case, Make};
use crate::clock::Clock;
use crate::engine::{Done, FileInfo, FileList, OpKind, Outcome};
use crate::error::{Cause, Failure, Step};

pub const CASES: &[Case] = &[
    ("rename", rename),
    ("sync", sync),
    ("stat", stat),
    ("stat many", stat_many),
    ("unlink", unlink),
    ("r9 make a directory", make_directory),
    ("read a small file", read_small),
    ("list", list),
    ("touch", touch),
    ("touch many", touch_many),
    ("space", space),
    ("nothing is begun once the gate is revoked", revoked),
];

pub(super) fn refused(outcome: Outcome, step: Step, errno: i32) {
    assert_eq!(outcome, Err(Failure::errno(step, errno)));
}

fn rename(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    let run = |from: &str, to: &str, no_replace| {
        let (from, to) = (c_path(&dir.join(from)), c_path(&dir.join(to)));
        rig.run(OpKind::Rename { from, to, no_replace })
    };
    for name in ["a", "b", "c"] {
        fs::write(dir.join(name), name).unwrap();
    }
    refused(run("a", "b", true), Step::Rename, libc::EEXIST);
    assert_eq!(run("a", "b", false), Ok(Done::Unit));
    assert_eq!(fs::read(dir.join("b")).unwrap(), b"a");
    assert_eq!(run("c", "d", true), Ok(Done::Unit));
    refused(run("a", "b", false), Step::Rename, libc::ENOENT);
    refused(run("b", "none/b", true), Step::Rename, libc::ENOENT);
    refused(run("b", "d/b", false), Step::Rename, libc::ENOTDIR);
}

fn sync(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    let run = |path: &Path, directory| rig.run(OpKind::Sync { path: c_path(path), directory });
    fs::write(dir.join("file"), "x").unwrap();
    assert_eq!(run(&dir.join("file"), false), Ok(Done::Unit));
    assert_eq!(run(dir, true), Ok(Done::Unit));
    refused(run(&dir.join("none"), false), Step::Open, libc::ENOENT);
    refused(run(&dir.join("file"), true), Step::Open, libc::ENOTDIR);
    refused(run(Path::new("/dev/null"), false), Step::Fsync, libc::EINVAL);
}

fn stat(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    let run = |name: &str| rig.run(OpKind::Stat { path: c_path(&dir.join(name)) });
    fs::write(dir.join("file"), "four").unwrap();
    symlink(dir.join("file"), dir.join("link")).unwrap();
    assert_eq!(run("file"), Ok(Done::Info(FileInfo { bytes: Some(4) })));
    assert_eq!(run("."), Ok(Done::Info(FileInfo { bytes: None })));
    assert_eq!(run("link"), Ok(Done::Info(FileInfo { bytes: None })));
    refused(run("none"), Step::Stat, libc::ENOENT);
    refused(run("file/below"), Step::Stat, libc::ENOTDIR);
}

fn stat_many(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    fs::write(dir.join("file"), "four").unwrap();
    let run = |names: &[&str]| {
        let paths = names.iter().map(|name| c_path(&dir.join(name))).collect();
        let clock = Clock::manual();
        clock.advance(Duration::from_secs(1));
        let many = Arc::new(FileList::new(paths, clock));
        let outcome = rig.run(OpKind::StatMany(Arc::clone(&many)));
        (outcome, many.began_file().0.as_secs())
    };
    let present = Some(FileInfo { bytes: Some(4) });
    let answers = vec![present, None, Some(FileInfo { bytes: None }), present];
    assert_eq!(run(&["file", "none", ".", "file"]), (Ok(Done::Infos(answers, None)), 1));
    let failure = Some(Failure::errno(Step::Stat, libc::ENOTDIR));
    let part = Done::Infos(vec![present], failure);
    assert_eq!(run(&["file", "file/below", "file"]), (Ok(part), 1));
    assert_eq!(run(&[]), (Ok(Done::Infos(Vec::new(), None)), 0));
}

fn unlink(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    let run = |name: &str| rig.run(OpKind::Unlink { path: c_path(&dir.join(name)) });
    fs::write(dir.join("file"), "x").unwrap();
    assert_eq!(run("file"), Ok(Done::Unit));
    assert!(!dir.join("file").exists());
    refused(run("file"), Step::Remove, libc::ENOENT);
    fs::create_dir(dir.join("directory")).unwrap();
    refused(run("directory"), Step::Remove, libc::EISDIR);
}

fn make_directory(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    let run = |name: &str| rig.run(OpKind::MakeDir { path: c_path(&dir.join(name)), mode: 0o774 });
    let mode = |name: &str| fs::metadata(dir.join(name)).unwrap().mode() & 0o7777;
    assert_eq!(run("new"), Ok(Done::Unit));
    assert_eq!(mode("new"), 0o774, "the umask is not applied");
    fs::set_permissions(dir.join("new"), fs::Permissions::from_mode(0o2700)).unwrap();
    assert_eq!(run("new"), Ok(Done::Unit));
    assert_eq!(mode("new"), 0o2700, "what is there is left alone");
    assert_eq!(run("new/below"), Ok(Done::Unit));
    assert_eq!(mode("new/below"), 0o2774, "setgid is kept");
    fs::write(dir.join("file"), "x").unwrap();
    symlink(dir.join("new"), dir.join("link")).unwrap();
    refused(run("file"), Step::Mkdir, libc::ENOTDIR);
    refused(run("link"), Step::Mkdir, libc::ENOTDIR);
    refused(run("none/below"), Step::Mkdir, libc::ENOENT);
}

fn read_small(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    let run = |name: &str| rig.run(OpKind::ReadSmall { path: c_path(&dir.join(name)) });
    for bytes in [0, 5, 4096] {
        fs::write(dir.join("file"), vec![9; bytes]).unwrap();
        assert_eq!(run("file"), Ok(Done::Bytes(vec![9; bytes])));
    }
    fs::write(dir.join("file"), vec![9; 5000]).unwrap();
    let cause = Cause::WrongSize { found: Some(5000), expected: 4096 };
    assert_eq!(run("file"), Err(Failure { step: Step::Verify, cause }));
    refused(run("none"), Step::Open, libc::ENOENT);
    refused(run("."), Step::Read, libc::EISDIR);
}

fn list(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    let run = |path: &Path, filter| rig.run(OpKind::List { path: c_path(path), filter });
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    for name in ["a.x.tmp", "b.tmp", "c"] {
        fs::File::create(dir.join(name)).unwrap().set_modified(old).unwrap();
    }
    let names = |outcome: Outcome| match outcome {
        Ok(Done::Entries(mut entries)) => {
            assert!(entries.iter().all(|entry| entry.mtime_s == 1_000_000));
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            entries.into_iter().map(|entry| entry.name).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(names(run(dir, ".tmp")), ["a.x.tmp", "b.tmp"]);
    assert_eq!(names(run(dir, "")), ["a.x.tmp", "b.tmp", "c"]);
    assert_eq!(names(run(dir, "none")), Vec::<String>::new());
    refused(run(&dir.join("none"), ""), Step::List, libc::ENOENT);
    refused(run(&dir.join("c"), ""), Step::List, libc::ENOTDIR);
}

fn touch(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    let run = |name: &str| rig.run(OpKind::Touch { path: c_path(&dir.join(name)) });
    let file = fs::File::create(dir.join("file")).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(run("file"), Ok(Done::Unit));
    assert!(fs::metadata(dir.join("file")).unwrap().mtime() > 1_000_000);
    refused(run("none"), Step::Touch, libc::ENOENT);
}

fn touch_many(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    let run = |names: &[&str]| {
        let paths = names.iter().map(|name| c_path(&dir.join(name))).collect();
        rig.run(OpKind::TouchMany(Arc::new(FileList::new(paths, Clock::manual()))))
    };
    for name in ["a", "b"] {
        let file = fs::File::create(dir.join(name)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
    let touched = Done::Touched(vec![Ok(()), Err(libc::ENOENT), Ok(())], None);
    assert_eq!(run(&["a", "none", "b"]), Ok(touched));
    for name in ["a", "b"] {
        assert!(fs::metadata(dir.join(name)).unwrap().mtime() > 1_000_000);
    }
    let failure = Some(Failure::errno(Step::Touch, libc::ENOTDIR));
    assert_eq!(run(&["a", "a/below", "b"]), Ok(Done::Touched(vec![Ok(())], failure)));
    assert_eq!(run(&[]), Ok(Done::Touched(Vec::new(), None)));
}

fn space(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    let Ok(Done::Space(space)) = rig.run(OpKind::Space { path: c_path(dir) }) else {
        panic!("no answer");
    };
    let known = nix::sys::statvfs::statvfs(dir).unwrap();
    assert_eq!(space.bytes, known.blocks() * known.fragment_size());
    assert_eq!(space.inodes, known.files());
    assert!(space.available_inodes <= space.free_inodes && space.free_inodes <= space.inodes);
    assert!(space.free_bytes <= space.bytes && space.available_bytes <= space.free_bytes);
    let none = rig.run(OpKind::Space { path: c_path(&dir.join("none")) });
    refused(none, Step::Stat, libc::ENOENT);
}

fn revoked(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    fs::write(dir.join("file"), "x").unwrap();
    let path = || c_path(&dir.join("file"));
    let to = c_path(&dir.join("to"));
    for kind in [
        OpKind::Unlink { path: path() },
        OpKind::Rename { from: path(), to: to.clone(), no_replace: false },
        OpKind::MakeDir { path: to, mode: 0o774 },
        OpKind::Stat { path: path() },
    ] {
        let (op, tag, gate) = rig.op(kind);
        assert!(gate.revoke());
        rig.submit_op(op);
        let outcome = rig.outcome(tag);
        assert!(matches!(outcome, Err(Failure { cause: Cause::GivenUp, .. })), "{outcome:?}");
    }
    let paths = vec![path()];
    let many = Arc::new(FileList::new(paths, Clock::monotonic()));
    let (op, tag, gate) = rig.op(OpKind::StatMany(many));
    assert!(gate.revoke());
    rig.submit_op(op);
    let given_up = Failure { step: Step::Stat, cause: Cause::GivenUp };
    assert_eq!(rig.outcome(tag), Ok(Done::Infos(Vec::new(), Some(given_up))));
    assert!(dir.join("file").exists() && !dir.join("to").exists());
}
