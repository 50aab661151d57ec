//! The operations that a fault rule can name, and sets of them. What they do is in `disk.rs`.

/// One kind of request that the kernel sends to a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    Lookup,
    Getattr,
    Setattr,
    Access,
    Open,
    Create,
    Read,
    Write,
    Flush,
    Fsync,
    Release,
    Fallocate,
    Lseek,
    Rename,
    Link,
    Unlink,
    Mkdir,
    Rmdir,
    Mknod,
    Symlink,
    Readlink,
    Opendir,
    Readdir,
    Releasedir,
    Fsyncdir,
    Statfs,
}

/// How many kinds there are.
pub const OP_COUNT: usize = 26;

/// Every kind with its name, in the order of the enum.
pub const OPS: [(Op, &str); OP_COUNT] = [
    (Op::Lookup, "lookup"),
    (Op::Getattr, "getattr"),
    (Op::Setattr, "setattr"),
    (Op::Access, "access"),
    (Op::Open, "open"),
    (Op::Create, "create"),
    (Op::Read, "read"),
    (Op::Write, "write"),
    (Op::Flush, "flush"),
    (Op::Fsync, "fsync"),
    (Op::Release, "release"),
    (Op::Fallocate, "fallocate"),
    (Op::Lseek, "lseek"),
    (Op::Rename, "rename"),
    (Op::Link, "link"),
    (Op::Unlink, "unlink"),
    (Op::Mkdir, "mkdir"),
    (Op::Rmdir, "rmdir"),
    (Op::Mknod, "mknod"),
    (Op::Symlink, "symlink"),
    (Op::Readlink, "readlink"),
    (Op::Opendir, "opendir"),
    (Op::Readdir, "readdir"),
    (Op::Releasedir, "releasedir"),
    (Op::Fsyncdir, "fsyncdir"),
    (Op::Statfs, "statfs"),
];

/// Stands for "open or create with `O_DIRECT`" in a set: how a file system refuses direct I/O.
const OPEN_DIRECT: u32 = 1 << 30;
/// Stands for "rename with flags" in a set: how a file system refuses `RENAME_NOREPLACE`.
const RENAME_FLAGS: u32 = 1 << 31;

/// A set of operations, as written in a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpSet(u32);

impl OpSet {
    /// Reads a comma list of names; `any` is all of them, `statx` another name of `getattr`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut bits = 0;
        for name in text.split(',') {
            bits |= match name {
                "any" => !(OPEN_DIRECT | RENAME_FLAGS),
                "statx" => bit(Op::Getattr),
                "open-direct" => OPEN_DIRECT,
                "rename-flags" => RENAME_FLAGS,
                _ => match OPS.iter().find(|(_, known)| *known == name) {
                    Some((op, _)) => bit(*op),
                    None => return Err(format!("unknown operation '{name}'")),
                },
            };
        }
        Ok(Self(bits))
    }

    /// Whether this set has `op`.
    pub fn has(self, op: Op) -> bool {
        self.0 & bit(op) != 0
    }

    /// Whether this set has this call's kind.
    pub fn matches(self, call: &Call) -> bool {
        self.0 & call.bits != 0
    }
}

fn bit(op: Op) -> u32 {
    1 << (op as u32)
}

/// One request, as rules and counters see it.
#[derive(Debug, Clone)]
pub struct Call {
    /// Its kind.
    pub op: Op,
    /// Its path below the root; `.` is the root itself.
    pub path: String,
    /// The second path of a rename or link.
    pub path_to: Option<String>,
    bits: u32,
}

impl Call {
    /// A call on one path.
    pub fn new(op: Op, path: String) -> Self {
        Self { op, path, path_to: None, bits: bit(op) }
    }

    /// The same call with the path that it makes.
    pub fn to(mut self, path: String) -> Self {
        self.path_to = Some(path);
        self
    }

    /// Marks an open or create with `O_DIRECT`.
    pub fn direct(mut self, direct: bool) -> Self {
        if direct {
            self.bits |= OPEN_DIRECT;
        }
        self
    }

    /// Marks a rename with flags.
    pub fn with_flags(mut self, flags: bool) -> Self {
        if flags {
            self.bits |= RENAME_FLAGS;
        }
        self
    }
}

/// Whether `text` is what `pattern` means: `*` is any run of characters, `/` included, `?` any one.
pub fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            star = Some((p, t));
            p += 1;
        } else if p < pattern.len() && (pattern[p] == b'?' || pattern[p] == text[t]) {
            p += 1;
            t += 1;
        } else if let Some((star_p, star_t)) = star {
            // The last star takes one character more, and the rest is tried again.
            star = Some((star_p, star_t + 1));
            p = star_p + 1;
            t = star_t + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_the_enum() {
        for (index, (op, _)) in OPS.iter().enumerate() {
            assert_eq!(*op as usize, index);
        }
    }

    #[test]
    fn glob_means_what_it_says() {
        for (pattern, text, want) in [
            ("*", "", true),
            ("*", "a/b", true),
            ("*.tmp", "ab1/x.tmp", true),
            ("*.tmp", "ab1/x.tmp2", false),
            ("a?c*", "abcd", true),
            ("a?c*", "ac", false),
            (".", ".", true),
            (".", "a", false),
            ("*a*b*", "xaxxbx", true),
            ("*a*b", "ab.a", false),
        ] {
            assert_eq!(glob(pattern, text), want, "{pattern} {text}");
        }
    }

    #[test]
    fn a_set_tells_direct_opens_and_renames_with_flags() {
        let plain = Call::new(Op::Open, "a".into());
        let direct = Call::new(Op::Create, "a".into()).direct(true);
        let set = OpSet::parse("open-direct").unwrap();
        assert!(!set.matches(&plain) && set.matches(&direct));
        let set = OpSet::parse("rename-flags,read").unwrap();
        assert!(!set.matches(&Call::new(Op::Rename, "a".into())));
        assert!(set.matches(&Call::new(Op::Rename, "a".into()).with_flags(true)));
        assert!(set.matches(&Call::new(Op::Read, "a".into())));
        assert!(OpSet::parse("any").unwrap().matches(&plain));
        assert!(OpSet::parse("opem").is_err());
    }
}
