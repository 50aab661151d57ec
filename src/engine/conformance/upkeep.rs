//! What the collector needs of every engine (R80–R86).

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use super::metadata::refused;
use super::rig::{Rig, USUAL, c_path};
use super::{Case, Make};
use crate::engine::{Done, Kind, OpKind, Outcome, Seen, Surveyor};
use crate::error::{Cause, Failure, Step};

pub const CASES: &[Case] = &[
    ("survey", survey),
    ("claim_and_remove_directory", claim),
    ("stamp", stamp),
    ("remove_cold", remove_cold),
    ("set_aside", set_aside),
];

/// What a survey was asked and told; it wants names that begin with `w`.
#[derive(Debug, Default)]
struct Names {
    asked: Mutex<Vec<(String, Kind)>>,
    told: Mutex<Vec<(String, Seen)>>,
}

impl Surveyor for Names {
    fn begin(&self) {
        self.asked.lock().unwrap().clear();
        self.told.lock().unwrap().clear();
    }

    fn wants(&self, name: &str, kind: Kind) -> bool {
        self.asked.lock().unwrap().push((name.to_owned(), kind));
        name.starts_with('w')
    }

    fn tell(&self, name: &str, seen: Seen) {
        self.told.lock().unwrap().push((name.to_owned(), seen));
    }
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn write(path: &Path, bytes: usize, seconds: u64) {
    fs::write(path, vec![1; bytes]).unwrap();
    fs::File::options().write(true).open(path).unwrap().set_modified(at(seconds)).unwrap();
}

fn survey(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    let names = Arc::new(Names::default());
    let run =
        |path: &Path| rig.run(OpKind::Survey { path: c_path(path), to: Arc::clone(&names) as _ });
    write(&dir.join("wanted"), 1, 7);
    write(&dir.join("other"), 1, 8);
    fs::create_dir(dir.join("where")).unwrap();
    assert_eq!(run(dir), Ok(Done::Unit));
    assert_eq!(run(dir), Ok(Done::Unit), "the second begins anew");
    let mut asked = names.asked.lock().unwrap().clone();
    asked.sort_by(|a, b| a.0.cmp(&b.0));
    let shown: Vec<&str> = asked.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(shown, ["other", "wanted", "where"]);
    assert!(matches!(asked[1].1, Kind::File | Kind::Unknown));
    assert!(matches!(asked[2].1, Kind::Directory | Kind::Unknown));
    let told = names.told.lock().unwrap().clone();
    let wanted = told.iter().find(|(name, _)| name == "wanted").unwrap();
    assert_eq!(wanted.1, Seen { file: true, mtime_ns: 7_000_000_000 });
    assert!(told.iter().any(|(name, seen)| name == "where" && !seen.file));
    assert_eq!(told.len(), 2);
    refused(run(&dir.join("none")), Step::List, libc::ENOENT);
    let (op, tag, gate) = rig.op(OpKind::Survey { path: c_path(dir), to: Arc::clone(&names) as _ });
    assert!(gate.revoke());
    rig.submit_op(op);
    let outcome = rig.outcome(tag);
    assert!(matches!(outcome, Err(Failure { cause: Cause::GivenUp, .. })), "{outcome:?}");
}

fn claim(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    let path = || c_path(&dir.join("lease"));
    let claim = || rig.run(OpKind::Claim { path: path(), mode: 0o774 });
    let remove = || rig.run(OpKind::RemoveDir { path: path() });
    assert_eq!(claim(), Ok(Done::Unit));
    assert_eq!(fs::metadata(dir.join("lease")).unwrap().mode() & 0o777, 0o774);
    assert_eq!(claim(), Ok(Done::Left), "one instance makes it");
    fs::write(dir.join("lease/entry"), "").unwrap();
    assert_eq!(remove(), Ok(Done::Left));
    fs::remove_file(dir.join("lease/entry")).unwrap();
    assert_eq!(remove(), Ok(Done::Unit));
    refused(remove(), Step::Remove, libc::ENOENT);
    let below = c_path(&dir.join("none/lease"));
    refused(rig.run(OpKind::Claim { path: below, mode: 0o774 }), Step::Mkdir, libc::ENOENT);
}

fn stamp(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    let path = dir.join("time");
    let run = |create| rig.run(OpKind::Stamp { path: c_path(&path), create });
    refused(run(None), Step::Touch, libc::ENOENT);
    let told = |outcome: Outcome| match outcome {
        Ok(Done::Stamp(now_ns)) => now_ns,
        other => panic!("{other:?}"),
    };
    let first = told(run(Some(0o600)));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    fs::File::options().write(true).open(&path).unwrap().set_modified(at(5)).unwrap();
    let second = told(run(None));
    assert!(second >= first && first > 1_000_000_000_000_000_000);
    let info = fs::metadata(&path).unwrap();
    assert_eq!(info.mtime() * 1_000_000_000 + info.mtime_nsec(), second);
}

fn remove_cold(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    let path = dir.join("block");
    let run = |mtime_ns| rig.run(OpKind::RemoveCold { path: c_path(&path), mtime_ns });
    write(&path, 1, 100);
    assert_eq!(run(99_999_999_999), Ok(Done::Left), "used since it was looked at");
    assert!(path.exists());
    assert_eq!(run(100_000_000_000), Ok(Done::Unit));
    assert!(!path.exists());
    refused(run(i64::MAX), Step::Stat, libc::ENOENT);
    fs::create_dir(&path).unwrap();
    assert_eq!(run(i64::MAX), Ok(Done::Left));
}

fn set_aside(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    let (from, aside) = (dir.join("block"), dir.join("aside"));
    let run = |to: &str| {
        rig.run(OpKind::SetAside {
            from: c_path(&from),
            dir: c_path(&aside),
            mode: 0o774,
            to: c_path(&aside.join(to)),
            bytes: 8,
        })
    };
    write(&from, 8, 5);
    assert_eq!(run("1"), Ok(Done::Left), "a whole block stays");
    assert!(from.exists() && !aside.exists());
    write(&from, 7, 5);
    assert_eq!(run("1"), Ok(Done::Unit));
    assert!(!from.exists());
    assert_eq!(fs::read(aside.join("1")).unwrap().len(), 7);
    assert_eq!(fs::metadata(aside.join("1")).unwrap().mtime(), 5, "as it was found");
    write(&from, 9, 5);
    assert_eq!(run("2"), Ok(Done::Unit));
    refused(run("3"), Step::Stat, libc::ENOENT);
    fs::create_dir(&from).unwrap();
    assert_eq!(run("4"), Ok(Done::Left), "what is no file stays");
}
