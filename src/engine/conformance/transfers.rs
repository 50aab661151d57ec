//! Reads and writes: every shape of memory, every way, and every error.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::memory::{Host, WAYS, Way, pattern, read_whole, transfer, write_whole};
use super::rig::{Limits, Rig, USUAL, c_path};
use super::{Case, Make};
use crate::engine::{Done, OpKind, Outcome, Transfer};
use crate::error::{Cause, Failure, Step};
use crate::posix::medium::{self, Medium};

pub const CASES: &[Case] = &[
    ("whole files in every shape of memory", whole_files),
    ("r33 ranges at any offset", ranges),
    ("r33 a tail that is not aligned", unaligned_tail),
    ("r33 a direct write beside a neighbour's bytes is refused", no_shared_sector),
    ("shards of one file", shards),
    ("r34 more segments than one call takes", many_segments),
    ("r23 wrong sizes and other kinds of file", wrong_sizes),
    ("errors of opening and writing", errors),
    ("durability is told and space is reserved", durability),
    ("small buffers move large blocks", small_buffers),
];

fn refused(outcome: Outcome, step: Step, errno: i32) {
    assert_eq!(outcome, Err(Failure::errno(step, errno)));
}

fn whole_files(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    for way in WAYS {
        for bytes in [4096, 64 << 10, (1 << 20) + 4096, 3 << 20] {
            for (shape, mut host) in Host::shapes(bytes).into_iter().enumerate() {
                let path = dir.join(format!("{way:?} {bytes} {shape}"));
                let content = pattern(bytes, shape as u64);
                host.set(&content);
                let durable = way.direct;
                assert_eq!(rig.run(write_whole(&path, way, &host)), Ok(Done::Written { durable }));
                assert!(fs::read(&path).unwrap() == content, "{}", path.display());
                host.set(&vec![0; bytes]);
                assert_eq!(rig.run(read_whole(&path, way, &host)), Ok(Done::Unit));
                assert!(host.get() == content, "{}", path.display());
            }
        }
    }
}

fn ranges(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    let content = pattern((2 << 20) + 777, 1);
    let path = dir.join("file");
    fs::write(&path, &content).unwrap();
    for way in WAYS {
        for offset in [0, 1, 511, 512, 4095, 4096, 5000, (1 << 20) - 1] {
            for bytes in [1, 511, 4096, 5000, 1 << 20, content.len() - offset] {
                let host = Host::new(&[(3, bytes)]);
                let (at, file) = (offset as u64, content.len() as u64);
                let read = transfer(&path, way, host.memory(), at, file);
                assert_eq!(rig.run(OpKind::Read(read)), Ok(Done::Unit));
                let end = offset + bytes;
                assert!(host.get() == content[offset..end], "{way:?} {offset} {bytes}");
            }
        }
    }
}

fn unaligned_tail(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    for way in WAYS {
        for bytes in [1, 511, 4097, (1 << 20) + 777] {
            for (shape, mut host) in Host::shapes(bytes.max(3)).into_iter().enumerate() {
                let path = dir.join(format!("{way:?} {bytes} {shape}"));
                let content = pattern(bytes.max(3), 5);
                host.set(&content);
                assert!(rig.run(write_whole(&path, way, &host)).is_ok());
                assert!(fs::read(&path).unwrap() == content, "{}", path.display());
                host.set(&vec![0; content.len()]);
                assert_eq!(rig.run(read_whole(&path, way, &host)), Ok(Done::Unit));
                assert!(host.get() == content, "{}", path.display());
            }
        }
    }
}

fn no_shared_sector(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    let path = dir.join("file");
    fs::write(&path, vec![1; 16384]).unwrap();
    for way in [WAYS[1], WAYS[3]] {
        for (offset, bytes) in [(100, 4096), (4096, 1000), (1000, 15384)] {
            let host = Host::plain(bytes);
            let write = transfer(&path, way, host.memory(), offset, 16384);
            refused(rig.run(OpKind::Write(write)), Step::Write, libc::EINVAL);
        }
    }
    assert!(fs::read(&path).unwrap() == vec![1; 16384]);
}

fn shards(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    for way in WAYS {
        let path = dir.join(format!("{way:?}"));
        let content = pattern(256 << 10, 9);
        for (at, shard) in content.chunks(64 << 10).enumerate() {
            let mut host = Host::plain(shard.len());
            host.set(shard);
            let offset = (at * shard.len()) as u64;
            let write = transfer(&path, way, host.memory(), offset, content.len() as u64);
            let create = (at == 0).then_some(0o600);
            assert!(rig.run(OpKind::Write(Transfer { create, ..write })).is_ok());
        }
        assert!(fs::read(&path).unwrap() == content);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }
}

fn many_segments(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    for way in WAYS {
        let path = dir.join(format!("{way:?}"));
        // Every other page, so that none touches the next: more than the 1024 of one call.
        let pieces: Vec<(usize, usize)> = (0..1500).map(|at| (at * 8192, 4096)).collect();
        let mut host = Host::new(&pieces);
        let content = pattern(1500 * 4096, 3);
        host.set(&content);
        assert!(rig.run(write_whole(&path, way, &host)).is_ok());
        assert!(fs::read(&path).unwrap() == content);
        host.set(&vec![0; content.len()]);
        assert_eq!(rig.run(read_whole(&path, way, &host)), Ok(Done::Unit));
        assert!(host.get() == content);
    }
}

fn wrong_sizes(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    let file = |name: &str, bytes: usize| fs::write(dir.join(name), vec![7; bytes]).unwrap();
    file("empty", 0);
    file("short", 4096);
    file("long", 12288);
    file("whole", 8192);
    fs::create_dir(dir.join("directory")).unwrap();
    std::os::unix::fs::symlink(dir.join("whole"), dir.join("link")).unwrap();
    for way in WAYS {
        // An engine that has seen what it is on may ask in another way.
        let host = Host::plain(8192);
        assert_eq!(rig.run(read_whole(&dir.join("whole"), way, &host)), Ok(Done::Unit));
        let wrong = |name: &str, found: Option<u64>| {
            let host = Host::plain(8192);
            let outcome = rig.run(read_whole(&dir.join(name), way, &host));
            let cause = Cause::WrongSize { found, expected: 8192 };
            assert_eq!(outcome, Err(Failure { step: Step::Verify, cause }), "{name} {way:?}");
            assert!(host.get() == vec![0; 8192], "{name}: part of the data was given");
        };
        wrong("empty", Some(0));
        wrong("short", Some(4096));
        wrong("long", Some(12288));
        wrong("directory", None);
        wrong("link", None);
        // A range beyond the end of a file that has the right size: zero bytes before the end.
        let host = Host::plain(8192);
        let read = transfer(&dir.join("whole"), way, host.memory(), 4096, 8192);
        let cause = Cause::WrongSize { found: Some(8192), expected: 8192 };
        let outcome = rig.run(OpKind::Read(read));
        assert_eq!(outcome, Err(Failure { step: Step::Verify, cause }), "{way:?}");
    }
}

fn errors(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    fs::write(dir.join("there"), vec![1; 4096]).unwrap();
    for way in WAYS {
        let host = Host::plain(4096);
        let memory = || host.memory();
        let read = |path: &Path| rig.run(read_whole(path, way, &host));
        let create = |path: &Path| rig.run(write_whole(path, way, &host));
        let write = |path: &Path| rig.run(OpKind::Write(transfer(path, way, memory(), 0, 4096)));
        refused(read(&dir.join("missing")), Step::Open, libc::ENOENT);
        refused(write(&dir.join("missing")), Step::Open, libc::ENOENT);
        refused(read(&dir.join("there/below")), Step::Open, libc::ENOTDIR);
        refused(create(&dir.join("there")), Step::Open, libc::EEXIST);
        refused(create(&dir.join("missing/new")), Step::Open, libc::ENOENT);
        refused(write(dir), Step::Open, libc::EISDIR);
    }
    for isolated in [true, false] {
        // A device that is always full: the write itself fails.
        let way = Way { direct: false, isolated };
        let host = Host::plain(4096);
        let write = transfer(Path::new("/dev/full"), way, host.memory(), 0, 4096);
        refused(rig.run(OpKind::Write(write)), Step::Write, libc::ENOSPC);
    }
    assert!(fs::read(dir.join("there")).unwrap() == vec![1; 4096]);
}

fn durability(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    let host = Host::plain(4096);
    for way in WAYS {
        for (sync, reserve) in [(false, true), (true, false)] {
            let path = dir.join(format!("{way:?} {sync}"));
            let write = transfer(&path, way, host.memory(), 0, 1 << 20);
            let write = Transfer { create: Some(0o644), sync, reserve, ..write };
            let durable = way.direct || sync;
            assert_eq!(rig.run(OpKind::Write(write)), Ok(Done::Written { durable }));
            let info = fs::metadata(&path).unwrap();
            let on_device = medium::medium(&c_path(&path)) == Ok(Medium::Device);
            match (reserve, way.direct && on_device) {
                (true, true) => assert_eq!(info.len(), 1 << 20, "no later write extends it"),
                // Buffered, the store never asks.
                (true, false) => assert!([4096, 1 << 20].contains(&info.len())),
                (false, _) => assert_eq!(info.len(), 4096, "{}", path.display()),
            }
            assert_eq!(info.blocks() * 512 >= 1 << 20, reserve, "{}", path.display());
        }
    }
    let sync = OpKind::Sync { path: c_path(dir), directory: true };
    assert_eq!(rig.run(sync), Ok(Done::Unit));
}

fn small_buffers(make: Make, dir: &Path) {
    let rig = Rig::new(make, Limits { buffer_bytes: 8192, ..USUAL });
    for way in WAYS {
        let path = dir.join(format!("{way:?}"));
        let content = pattern((256 << 10) + 5, 2);
        let mut host = Host::new(&[(1, content.len())]);
        host.set(&content);
        assert!(rig.run(write_whole(&path, way, &host)).is_ok());
        host.set(&vec![0; content.len()]);
        assert_eq!(rig.run(read_whole(&path, way, &host)), Ok(Done::Unit));
        assert!(host.get() == content);
    }
}
