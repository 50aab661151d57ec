//! Every fault, on real files through a real mount.
#![expect(clippy::unwrap_used, reason = "a test")]

mod support;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, FallocateFlags, OFlag, fallocate};
use nix::unistd::{AccessFlags, Whence};

use support::{LIMIT_MS, Place, Server, can_mount, errno};

const EIO: i32 = Errno::EIO as i32;

/// One mount with the file `a`, which holds "0123456789".
fn one(name: &str) -> Option<(Place, Server)> {
    if !can_mount() {
        return None;
    }
    let place = Place::new();
    fs::write(place.root().join("a"), "0123456789").unwrap();
    let server = Server::start(&place, name, &[]);
    Some((place, server))
}

type Call = (&'static str, Box<dyn Fn() -> io::Result<()>>);

/// One call for every operation that a caller can see fail.
fn calls(m: &std::path::Path) -> Vec<Call> {
    let p = |name: &str| -> PathBuf { m.join(name) };
    let open = |m: PathBuf| File::options().read(true).write(true).open(m);
    let (a, new, dir, link) = (p("a"), p("new"), p("dir"), p("symlink"));
    let nix = |result: nix::Result<()>| result.map_err(io::Error::from);
    let mut calls: Vec<Call> = Vec::new();
    macro_rules! call {
        ($op:literal, $($path:ident)*, $body:expr) => {{
            $(let $path = $path.clone();)*
            calls.push(($op, Box::new(move || $body)));
        }};
    }
    call!("lookup", a, fs::symlink_metadata(&a).map(|_| ()));
    call!("getattr", a, fs::symlink_metadata(&a).map(|_| ()));
    call!("setattr", a, open(a.clone())?.set_len(10));
    call!("access", a, {
        nix(nix::unistd::faccessat(AT_FDCWD, &a, AccessFlags::R_OK, AtFlags::empty()))
    });
    call!("open", a, open(a.clone()).map(|_| ()));
    call!("read", a, open(a.clone())?.read(&mut [0; 4]).map(|_| ()));
    call!("write", a, open(a.clone())?.write(b"0123").map(|_| ()));
    call!("fsync", a, open(a.clone())?.sync_all());
    call!("fallocate", a, { nix(fallocate(open(a.clone())?, FallocateFlags::empty(), 0, 10)) });
    call!("lseek", a, {
        let found = nix::unistd::lseek64(open(a.clone())?, 0, Whence::SeekData);
        nix(found.map(|_| ()))
    });
    call!("flush", a, {
        use std::os::fd::IntoRawFd;
        nix(nix::unistd::close(File::open(&a)?.into_raw_fd()))
    });
    call!("create", new, File::options().write(true).create_new(true).open(&new).map(|_| ()));
    call!("rename", a new, fs::rename(&new, a.with_file_name("new2")));
    call!("link", a new, fs::hard_link(&a, &new));
    call!("unlink", new, fs::remove_file(&new));
    call!("mkdir", dir, fs::create_dir(&dir));
    call!("opendir", dir, fs::read_dir(&dir).map(|_| ()));
    call!(
        "readdir",
        dir,
        fs::read_dir(&dir)?.next().unwrap_or(Err(io::Error::other("none"))).map(|_| ())
    );
    call!("fsyncdir", dir, File::open(&dir)?.sync_all());
    call!("rmdir", dir, fs::remove_dir(&dir));
    call!("symlink", link, std::os::unix::fs::symlink("a", &link));
    call!("readlink", link, fs::read_link(&link).map(|_| ()));
    call!("mknod", new, nix(nix::unistd::mkfifo(&new, nix::sys::stat::Mode::S_IRWXU)));
    call!("statfs", a, nix(nix::sys::statvfs::statvfs(&a).map(|_| ())));
    calls
}

#[test]
fn every_operation_fails_once_on_demand_and_then_works() {
    let Some((place, server)) = one("m") else { return };
    for (op, call) in calls(&server.mount) {
        if op == "readdir" {
            fs::write(place.root().join("dir/entry"), "").unwrap();
        }
        if op == "rmdir" {
            fs::remove_file(place.root().join("dir/entry")).unwrap();
        }
        let id = server.say(&format!("rule add {op} * count=1 fail EIO"));
        assert_eq!(errno(call()), EIO, "{op}");
        assert_eq!(server.say(&format!("rule fired {id}")), "1", "{op}");
        call().unwrap_or_else(|error| panic!("{op} works again: {error}"));
        server.say(&format!("rule del {id}"));
    }
    assert_eq!(fs::read(place.root().join("a")).unwrap(), b"0123456789");
}

#[test]
fn what_is_done_through_the_mount_is_in_the_directory() {
    let Some((place, server)) = one("m") else { return };
    let root = place.root();
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o640);
    let file = options.open(server.at("b")).unwrap();
    file.write_all_at(b"block", 3).unwrap();
    file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000)).unwrap();
    let real = fs::metadata(root.join("b")).unwrap();
    assert_eq!(fs::read(root.join("b")).unwrap(), b"\0\0\0block");
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&real) & 0o777, 0o640);
    assert_eq!(std::os::unix::fs::MetadataExt::mtime(&real), 1_000_000);

    // What happens behind the mount shows at once.
    fs::write(root.join("c"), "behind").unwrap();
    assert_eq!(fs::read(server.at("c")).unwrap(), b"behind");
    fs::write(root.join("c2"), "other").unwrap();
    fs::rename(root.join("c2"), root.join("c")).unwrap();
    assert_eq!(fs::read(server.at("c")).unwrap(), b"other");
    fs::remove_file(root.join("c")).unwrap();
    assert_eq!(errno(fs::metadata(server.at("c"))), Errno::ENOENT as i32);

    // An unlinked open file lives on.
    fs::remove_file(server.at("b")).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 8);
    file.set_len(2).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 2);

    for index in 0..300 {
        fs::create_dir(server.at(&format!("d{index}"))).unwrap();
    }
    fs::rename(server.at("d7"), server.at("renamed")).unwrap();
    fs::write(server.at("renamed/x"), "x").unwrap();
    assert_eq!(fs::read_dir(&server.mount).unwrap().count(), 301);
    assert!(root.join("renamed/x").exists());
}

#[test]
fn rename_flags_pass_and_can_be_refused() {
    use nix::fcntl::{RenameFlags, renameat2};
    let Some((place, server)) = one("m") else { return };
    fs::write(server.at("b"), "b").unwrap();
    let no_replace = |from: &str, to: &str| {
        let flags = RenameFlags::RENAME_NOREPLACE;
        renameat2(AT_FDCWD, &server.at(from), AT_FDCWD, &server.at(to), flags)
    };
    assert_eq!(no_replace("b", "a"), Err(Errno::EEXIST));
    server.say("rule add rename-flags * always fail EINVAL");
    assert_eq!(no_replace("b", "c"), Err(Errno::EINVAL));
    fs::rename(server.at("b"), server.at("c")).unwrap();
    server.say("rules clear");
    assert_eq!(no_replace("c", "d"), Ok(()));
    assert_eq!(fs::read(place.root().join("d")).unwrap(), b"b");
}

#[test]
fn what_is_remembered_changes_only_by_this_mount() {
    use nix::fcntl::{RenameFlags, renameat2};
    let Some((place, server)) = one("m") else { return };
    server.say("rule add lookup,getattr a always remember");
    let bytes = || fs::metadata(server.at("a")).map(|a| a.len()).ok();
    fs::write(place.root().join("a"), "four").unwrap();
    assert_eq!(bytes(), Some(4));
    fs::remove_file(place.root().join("a")).unwrap();
    assert_eq!(bytes(), Some(4), "what another client did is not seen");
    assert_eq!(errno(File::open(server.at("a"))), Errno::ENOENT as i32);
    fs::write(server.at("b"), "b").unwrap();
    let flags = RenameFlags::RENAME_NOREPLACE;
    let renamed = renameat2(AT_FDCWD, &server.at("b"), AT_FDCWD, &server.at("a"), flags);
    assert_eq!(renamed, Err(Errno::EEXIST));
    fs::rename(server.at("b"), server.at("a")).unwrap();
    assert_eq!(bytes(), Some(1), "what this one did is seen");
    fs::remove_file(server.at("a")).unwrap();
    assert_eq!(bytes(), None);
}

#[test]
fn direct_io_moves_blocks_and_insists_on_sectors() {
    let Some((place, server)) = one("m") else { return };
    let bytes = 4 << 20;
    let mut memory: Vec<u8> =
        (0..bytes + 4096).map(|i: usize| (i / 512 + i % 251).to_le_bytes()[0]).collect();
    let start = memory.as_ptr().align_offset(4096);
    let direct = |write: bool| {
        let mut options = File::options();
        options.read(true).write(write).create(write).custom_flags(OFlag::O_DIRECT.bits());
        options.open(server.at("block"))
    };
    let block = memory[start..start + bytes].to_vec();
    direct(true).unwrap().write_all_at(&memory[start..start + bytes], 0).unwrap();
    assert!(fs::read(place.root().join("block")).unwrap() == block);
    memory.fill(0);
    let file = direct(false).unwrap();
    file.read_exact_at(&mut memory[start..start + bytes], 0).unwrap();
    assert!(memory[start..start + bytes] == block);
    assert_eq!(errno(file.read_at(&mut memory[start..start + 512], 100)), Errno::EINVAL as i32);

    server.say("rule add open-direct * always fail EINVAL");
    assert_eq!(errno(direct(false)), Errno::EINVAL as i32);
    assert!(fs::read(server.at("block")).unwrap() == block);
}

#[test]
fn short_and_flip_change_data_but_no_file_by_reading() {
    let Some((place, server)) = one("m") else { return };
    let file = File::options().read(true).write(true).open(server.at("a")).unwrap();
    server.say("rule add read a count=1 short 3");
    let mut memory = [0; 10];
    assert_eq!(file.read_at(&mut memory, 0).unwrap(), 3);
    assert_eq!(file.read_at(&mut memory, 0).unwrap(), 10);

    server.say("rule add read a count=1 flip");
    file.read_exact_at(&mut memory, 0).unwrap();
    let changed = memory.iter().zip(b"0123456789").filter(|(a, b)| a != b).count();
    assert_eq!(changed, 1);
    file.read_exact_at(&mut memory, 0).unwrap();
    assert_eq!(&memory, b"0123456789");

    server.say("rule add write a count=1 short 4");
    assert_eq!(file.write_at(b"abcdefghij", 0).unwrap(), 4);
    assert_eq!(fs::read(place.root().join("a")).unwrap(), b"abcd456789");
    server.say("rule add write a count=1 flip");
    assert_eq!(file.write_at(b"0123456789", 0).unwrap(), 10);
    let stored = fs::read(place.root().join("a")).unwrap();
    assert_eq!(stored.iter().zip(b"0123456789").filter(|(a, b)| a != b).count(), 1);
}

#[test]
fn a_delay_holds_up_its_own_call_only() {
    let Some((_place, server)) = one("m") else { return };
    fs::write(server.at("b"), "b").unwrap();
    server.say("rule add read a count=1 delay 700");
    let path = server.at("a");
    let begin = Instant::now();
    let slow = thread::spawn(move || (fs::read(path).unwrap(), Instant::now()));
    server.say(&format!("wait-count read a 1 {LIMIT_MS}"));
    assert_eq!(fs::read(server.at("b")).unwrap(), b"b");
    let others = Instant::now();
    let (data, end) = slow.join().unwrap();
    assert_eq!(data, b"0123456789");
    assert!(end - begin >= Duration::from_millis(700));
    assert!(others < end, "the other read was held up");
}

#[test]
fn many_hung_reads_hold_up_nobody_and_run_when_released() {
    let Some((_place, server)) = one("m") else { return };
    fs::write(server.at("b"), "b").unwrap();
    let rule = server.say("rule add read a always hang");
    let readers: Vec<_> = (0..50)
        .map(|_| {
            let path = server.at("a");
            thread::spawn(move || fs::read(path))
        })
        .collect();
    server.wait_hung(50);
    assert!(server.say("hung").starts_with("total=50 "));
    for _ in 0..20 {
        assert_eq!(fs::read(server.at("b")).unwrap(), b"b");
        assert_eq!(fs::metadata(server.at("a")).unwrap().len(), 10);
    }
    assert!(server.ask("wait-hung 51 1").unwrap_err().contains("timeout total=50"));
    server.say(&format!("rule del {rule}"));
    assert_eq!(server.say(&format!("release {rule}")), "50");
    for reader in readers {
        assert_eq!(reader.join().unwrap().unwrap(), b"0123456789");
    }
}

#[test]
fn release_is_for_one_rule_or_fails_instead() {
    let Some((_place, server)) = one("m") else { return };
    // The kernel holds a directory's lock while a name in it changes: one directory each.
    for name in ["d", "e"] {
        fs::create_dir(server.at(name)).unwrap();
        fs::write(server.at(name).join("x"), name).unwrap();
    }
    let unlinks = server.say("rule add unlink d/* always hang");
    let renames = server.say("rule add rename e/* always hang");
    let (d, e) = (server.at("d/x"), server.at("e/x"));
    let unlink = thread::spawn(move || fs::remove_file(d));
    let rename = thread::spawn(move || fs::rename(&e, e.with_file_name("y")));
    server.wait_hung(2);
    assert_eq!(server.say(&format!("release {renames} fail ENOTCONN")), "1");
    assert_eq!(errno(rename.join().unwrap()), Errno::ENOTCONN as i32);
    assert!(fs::exists(server.at("e/x")).unwrap());
    assert_eq!(server.say(&format!("release {renames}")), "0");
    assert_eq!(server.say(&format!("release {unlinks}")), "1");
    unlink.join().unwrap().unwrap();
}

#[test]
fn a_released_write_is_written_late() {
    let Some((place, server)) = one("m") else { return };
    server.say("rule add write a count=1 hang");
    let path = server.at("a");
    let late = thread::spawn(move || {
        File::options().write(true).open(path).unwrap().write_at(b"LATE", 0).unwrap()
    });
    server.wait_hung(1);
    File::options().write(true).open(server.at("a")).unwrap().write_all_at(b"soon", 0).unwrap();
    assert_eq!(fs::read(place.root().join("a")).unwrap(), b"soon456789");
    // When `release` has answered the write has been done.
    server.say("release");
    assert_eq!(fs::read(place.root().join("a")).unwrap(), b"LATE456789");
    assert_eq!(late.join().unwrap(), 4);
}

#[test]
fn frozen_means_everything_until_thawed() {
    let Some((place, server)) = one("m") else { return };
    let other = Server::start(&place, "n", &[]);
    server.say("freeze");
    let (a, mount) = (server.at("a"), server.mount.clone());
    let read = thread::spawn(move || fs::read(a));
    let list = thread::spawn(move || fs::read_dir(mount).map(Iterator::count));
    server.wait_hung(2);
    assert_eq!(fs::read(other.at("a")).unwrap(), b"0123456789");
    assert_eq!(server.say("thaw"), "2");
    assert_eq!(read.join().unwrap().unwrap(), b"0123456789");
    assert_eq!(list.join().unwrap().unwrap(), 1);
}

#[test]
fn a_vanished_root_is_another_empty_directory() {
    use std::os::unix::fs::MetadataExt;
    let Some((place, server)) = one("m") else { return };
    fs::create_dir(server.at("d")).unwrap();
    fs::write(server.at("d/b"), "b").unwrap();
    let open = File::open(server.at("a")).unwrap();
    let before = fs::metadata(&server.mount).unwrap();
    let stand_in = PathBuf::from(server.say("vanish"));
    assert_eq!(errno(fs::metadata(server.at("a"))), Errno::ENOENT as i32);
    assert_eq!(errno(fs::read(server.at("d/b"))), Errno::ENOENT as i32);
    assert_eq!(fs::read_dir(&server.mount).unwrap().count(), 0);
    assert_ne!(fs::metadata(&server.mount).unwrap().ino(), before.ino());
    let mut memory = [0; 10];
    assert_eq!(open.read_at(&mut memory, 0).unwrap(), 10);

    // Who writes now writes beside the storage.
    fs::write(server.at("stray"), "stray").unwrap();
    assert!(stand_in.join("stray").exists() && !place.root().join("stray").exists());

    server.say("return");
    assert_eq!(fs::read(server.at("d/b")).unwrap(), b"b");
    assert_eq!(errno(fs::metadata(server.at("stray"))), Errno::ENOENT as i32);
    assert_eq!(fs::metadata(&server.mount).unwrap().ino(), before.ino());
    assert!(!stand_in.exists());
}

#[test]
fn counts_tell_which_mount_was_touched() {
    let Some((place, server)) = one("m") else { return };
    let other = Server::start(&place, "n", &[]);
    server.say("counts reset");
    other.say("counts reset");
    fs::create_dir(server.at("d")).unwrap();
    fs::write(server.at("d/x.tmp"), "x").unwrap();
    fs::rename(server.at("d/x.tmp"), server.at("d/x")).unwrap();
    assert_eq!(server.count("mkdir", ""), 1);
    assert_eq!(server.count("create", "*.tmp"), 1);
    assert_eq!(server.count("write", "*.tmp"), 1);
    assert_eq!(server.count("rename", "d/x"), 1);
    assert_eq!(server.count("write", "y*"), 0);
    assert_eq!(other.count("total", ""), 0);
    fs::metadata(other.at("d/x")).unwrap();
    assert_eq!(other.say("wait-count getattr d/x 1 1000"), "1");
    assert!(other.ask("wait-count read * 1 1").is_err());
    server.say("counts reset");
    assert_eq!(server.count("total", "*"), 0);
}

#[test]
fn nonsense_is_answered_with_an_error() {
    let Some((_place, server)) = one("m") else { return };
    for command in ["", "rule", "rule add x * always hang", "rule del 9", "release x", "counts a b"]
    {
        assert!(server.ask(command).unwrap_err().starts_with("error "), "{command}");
    }
}
