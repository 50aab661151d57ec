//! What a name in a data directory is to the collector (R82).

/// What a name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// A committed block.
    Block([u8; 16]),
    /// A temporary, whoever made it.
    Temporary,
    /// Begins with a dot: never looked at.
    Dot,
    /// Anything else: counted, and left alone.
    Foreign,
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

/// The id that 32 lowercase hex digits stand for.
#[must_use]
pub fn block_id(name: &str) -> Option<[u8; 16]> {
    if name.len() != 32 {
        return None;
    }
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(name.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(id)
}

/// Reads a name in a directory whose blocks all begin with `prefix`.
#[must_use]
pub fn read(name: &str, prefix: &str) -> Name {
    if name.starts_with('.') {
        return Name::Dot;
    }
    if name.contains(".tmp") {
        return Name::Temporary;
    }
    match block_id(name) {
        Some(id) if name.starts_with(prefix) => Name::Block(id),
        // A block in another block's directory is nobody's: no store would find it.
        _ => Name::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r82_only_whole_names_in_their_own_directory_are_blocks() {
        let name = "0123456789abcdef0123456789abcdef";
        let id = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef];
        let id: [u8; 16] = [id, id].concat().try_into().unwrap();
        assert_eq!(read(name, "012"), Name::Block(id));
        assert_eq!(read(name, ""), Name::Block(id));
        assert_eq!(read(name, "abc"), Name::Foreign);
        for foreign in [&name[1..], &name.to_uppercase(), &format!("{name}.old"), "notes", "é", ""]
        {
            assert_eq!(read(foreign, ""), Name::Foreign, "{foreign}");
        }
        assert_eq!(read(&format!("{name}.x-1.tmp"), "012"), Name::Temporary);
        assert_eq!(read("a.tmp.b", ""), Name::Temporary);
        assert_eq!(read(".kvpath", ""), Name::Dot);
        assert_eq!(read(".x.tmp", ""), Name::Dot);
    }
}
