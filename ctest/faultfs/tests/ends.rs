//! However it ends, no call hangs on and no mount stays.
#![expect(clippy::unwrap_used, reason = "a test")]

mod support;

use std::fs::{self, File};
use std::io::Read;
use std::process::{Command, Stdio};
use std::thread;

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use support::{PROGRAM, Place, Server, can_mount, errno, is_mounted};

fn pid(server: &Server) -> Pid {
    Pid::from_raw(server.child.id().try_into().unwrap())
}

/// A read that hangs; joined by who ends the server.
fn hang(server: &Server, place: &Place) -> thread::JoinHandle<i32> {
    fs::write(place.root().join("a"), "a").unwrap();
    server.say("rule add read * always hang");
    let path = server.at("a");
    let reader = thread::spawn(move || errno(fs::read(path)));
    server.wait_hung(1);
    reader
}

#[test]
fn the_watchdog_fails_what_hangs_and_unmounts() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mut server = Server::start(&place, "m", &["--max-seconds", "2"]);
    let reader = hang(&server, &place);
    assert_eq!(server.ended(), Some(3));
    assert_eq!(reader.join().unwrap(), Errno::EIO as i32);
    assert!(!is_mounted(&server.mount));
}

#[test]
fn sigterm_ends_it_frozen_and_in_use() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mut server = Server::start(&place, "m", &[]);
    fs::write(place.root().join("open"), "open").unwrap();
    let mut open = File::open(server.at("open")).unwrap();
    let reader = hang(&server, &place);
    server.say("freeze");
    kill(pid(&server), Signal::SIGTERM).unwrap();
    assert_eq!(server.ended(), Some(0));
    assert_eq!(reader.join().unwrap(), Errno::EIO as i32);
    assert!(!is_mounted(&server.mount));
    assert!(open.read(&mut [0; 4]).is_err());
}

#[test]
fn quit_lets_hung_calls_run() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mut server = Server::start(&place, "m", &[]);
    fs::write(place.root().join("a"), "a").unwrap();
    server.say("rule add unlink * always hang");
    let path = server.at("a");
    let unlink = thread::spawn(move || fs::remove_file(path));
    server.wait_hung(1);
    assert_eq!(server.say("quit"), "1");
    assert_eq!(server.ended(), Some(0));
    unlink.join().unwrap().unwrap();
    assert!(!place.root().join("a").exists());
    assert!(!is_mounted(&server.mount));
}

#[test]
fn a_killed_server_leaves_enotconn_and_the_next_one_cleans_up() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mut server = Server::start(&place, "m", &[]);
    let reader = hang(&server, &place);
    kill(pid(&server), Signal::SIGKILL).unwrap();
    assert_eq!(server.ended(), None);
    let hung = reader.join().unwrap();
    assert!(hung == Errno::ECONNABORTED as i32 || hung == Errno::ENOTCONN as i32, "{hung}");
    assert!(is_mounted(&server.mount));
    assert_eq!(errno(fs::metadata(server.at("a"))), Errno::ENOTCONN as i32);

    let next = Server::start(&place, "m", &[]);
    assert_eq!(fs::read(next.at("a")).unwrap(), b"a");
    assert_eq!(next.say("quit"), "0");
}

#[test]
fn it_ends_with_its_parent() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mount = place.0.join("m");
    let mut shell = Command::new("sh")
        .arg("-c")
        .arg("\"$0\" --root \"$1/root\" --mount \"$1/m\" --control \"$1/c\" --ready-fd 1 & wait")
        .arg(PROGRAM)
        .arg(&place.0)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = shell.stdout.take().unwrap();
    let mut ready = [0; 6];
    output.read_exact(&mut ready).unwrap();
    assert!(is_mounted(&mount));
    shell.kill().unwrap();
    shell.wait().unwrap();
    // The server holds the other end of this pipe for as long as it lives.
    output.read_to_end(&mut Vec::new()).unwrap();
    assert!(!is_mounted(&mount));
}

#[test]
fn it_ends_when_somebody_unmounts() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mut server = Server::start(&place, "m", &[]);
    umount2(&server.mount, MntFlags::empty()).unwrap();
    assert_eq!(server.ended(), Some(0));
}

#[test]
fn root_and_mount_point_must_lie_apart() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let status = Command::new(PROGRAM)
        .arg("--root")
        .arg(place.root())
        .arg("--mount")
        .arg(place.root().join("inside"))
        .arg("--control")
        .arg(place.0.join("c"))
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(1));
}
