//! Which backend a block belongs to (R14–R18). Pure: the availability mask is an argument.

use super::types::BlockId;

/// Seed of libstdc++'s `std::hash` for strings.
const SEED: u64 = 0xc70f_6907;
/// Multiplier of 64-bit MurmurHash2.
const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
/// Shift of 64-bit MurmurHash2 as libstdc++ mixes.
const SHIFT: u32 = 47;

/// Most backends: one bit each of the mask.
pub const MAX_BACKENDS: usize = 64;

fn mix(value: u64) -> u64 {
    value ^ (value >> SHIFT)
}

/// H of R14: `std::hash<std::string_view>` of libstdc++ over the id's 16 bytes, so that this store
/// and the existing C++ one choose the same backend.
#[must_use]
pub fn hash(id: &BlockId) -> u64 {
    let mut state = SEED ^ (id.0.len() as u64).wrapping_mul(MULTIPLIER);
    let (words, _) = id.0.as_chunks::<8>();
    for word in words {
        let word = u64::from_le_bytes(*word);
        let data = mix(word.wrapping_mul(MULTIPLIER)).wrapping_mul(MULTIPLIER);
        state = (state ^ data).wrapping_mul(MULTIPLIER);
    }
    mix(mix(state).wrapping_mul(MULTIPLIER))
}

/// The primary of a block among `n` configured backends; health never changes it.
#[must_use]
pub fn primary(id: &BlockId, n: usize) -> usize {
    usize::try_from(hash(id) % n as u64).unwrap_or(0)
}

/// The next candidate: from `primary` on, wrapping, the first that is in `available` and not in
/// `tried`.
#[must_use]
pub fn next(primary: usize, n: usize, available: u64, tried: u64) -> Option<usize> {
    (0..n).map(|step| (primary + step) % n).find(|lane| (available & !tried) >> lane & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r15_candidates_wrap_in_configuration_order() {
        let mut tried = 0;
        let mut order = Vec::new();
        while let Some(lane) = next(3, 4, 0b1111, tried) {
            order.push(lane);
            tried |= 1 << lane;
        }
        assert_eq!(order, [3, 0, 1, 2]);
    }

    #[test]
    fn r15_unavailable_and_tried_backends_are_skipped() {
        assert_eq!(next(1, 4, 0b1101, 0), Some(2));
        assert_eq!(next(1, 4, 0b1101, 0b0100), Some(3));
        assert_eq!(next(1, 4, 0, 0), None);
        assert_eq!(next(63, MAX_BACKENDS, 1, 0), Some(0));
    }

    #[test]
    fn r14_known_values_of_libstdcxx() {
        // g++ 12: std::hash<std::string_view>{}(std::string_view(bytes, 16)).
        let counting: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
        assert_eq!(hash(&BlockId([0; 16])), HASH_OF_ZEROS);
        assert_eq!(hash(&BlockId(counting)), HASH_OF_COUNTING);
        assert_eq!(hash(&BlockId([0xff; 16])), HASH_OF_ONES);
    }
    const HASH_OF_ZEROS: u64 = 0x97c6_3139_949a_b864;
    const HASH_OF_COUNTING: u64 = 0xad25_8e8f_cf86_c7fd;
    const HASH_OF_ONES: u64 = 0xf622_15e2_7975_f01d;
}
