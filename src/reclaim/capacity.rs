//! How many blocks the capacity holds, from how many on the collector works, and how many it takes
//! away at a time (R80, R81).

/// Bytes of a GB, as the pipeline counts them.
pub const GB: f64 = 1_073_741_824.0;

/// What a capacity means in blocks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Capacity {
    /// From so many blocks on the coldest are removed, until there are fewer.
    pub trigger: u64,
    /// `posix_gc_recycle_percent`: the share of the blocks that one round removes.
    pub recycle: f64,
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates; counts of files are far below where f64 loses whole numbers"
)]
fn floor(value: f64) -> u64 {
    value.floor() as u64
}

#[expect(clippy::cast_precision_loss, reason = "counts of files are far below 2^52")]
fn wide(count: u64) -> f64 {
    count as f64
}

impl Capacity {
    /// Of `gb` for blocks of `block_bytes`, where work begins at the share `ratio`.
    ///
    /// # Errors
    /// The least capacity, in GB, of which a round takes a block at all.
    pub fn new(gb: f64, block_bytes: u64, ratio: f64, recycle: f64) -> Result<Capacity, f64> {
        let most = floor(gb * GB / wide(block_bytes.max(1)));
        // A share like 0.7 of 10 is a little below 7 in binary.
        let trigger = floor(wide(most) * ratio + 1e-9);
        if floor(wide(trigger) * recycle + 1e-9) >= 1 {
            return Ok(Capacity { trigger, recycle });
        }
        let trigger = (1.0 / recycle - 1e-9).ceil();
        let most = (trigger / ratio - 1e-9).ceil();
        Err(most * wide(block_bytes) / GB)
    }

    /// How many of `blocks` go: a round's share, or as many as are needed to get below where work
    /// begins. 0 where there are few enough.
    #[must_use]
    pub fn surplus(&self, blocks: u64) -> u64 {
        if blocks < self.trigger {
            return 0;
        }
        self.share(blocks).max(blocks - self.trigger + 1)
    }

    /// A round's share of `blocks`.
    #[must_use]
    pub fn share(&self, blocks: u64) -> u64 {
        floor((wide(blocks) * self.recycle - 1e-9).ceil())
    }

    /// How many candidates are remembered where about `blocks` are expected: those of a round, and
    /// `extra` (a share of all) to replace what turns out to be gone or in use again.
    #[must_use]
    pub fn candidates(&self, blocks: u64, extra: f64) -> u64 {
        self.surplus(blocks).saturating_add(floor((wide(blocks) * extra).ceil()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r81_a_round_takes_its_share_and_never_ends_above_the_trigger() {
        let capacity = Capacity::new(1.0, 1 << 20, 0.7, 0.1).unwrap();
        assert_eq!(capacity.trigger, 716);
        assert_eq!(capacity.surplus(715), 0);
        assert_eq!(capacity.surplus(716), 72);
        assert_eq!(capacity.surplus(1000), 285);
        assert!(1000 - capacity.surplus(1000) < 716);
        assert_eq!(capacity.candidates(1000, 0.1), 385);
    }

    #[test]
    fn r80_the_least_capacity_is_the_least() {
        for block in [4096, 1 << 20, 10_000_000] {
            for (ratio, recycle) in [(0.7, 0.1), (1.0, 1.0), (0.3, 0.07), (0.9, 0.5)] {
                let least = Capacity::new(0.0, block, ratio, recycle).unwrap_err();
                let at = Capacity::new(least * (1.0 + 1e-12), block, ratio, recycle);
                assert!(at.is_ok(), "{block} {ratio} {recycle}: {least}");
                let below = least - wide(block) / GB;
                assert_eq!(Capacity::new(below, block, ratio, recycle), Err(least));
            }
        }
    }
}
