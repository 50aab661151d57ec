//! A short run of the fuzz targets (`fuzz/`) from fixed seeds, as part of the ordinary tests. A
//! seed that fails is printed: `KVPATH_FUZZ_SEED=… cargo test --test fuzz`.

#[path = "../fuzz/calls.rs"]
#[expect(clippy::unwrap_used, clippy::expect_used, reason = "a test's")]
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "one call of many is made")]
mod calls;
#[path = "../fuzz/config.rs"]
#[expect(clippy::expect_used, reason = "a test's")]
mod config;

use std::panic::{catch_unwind, resume_unwind};

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    /// Below `limit`, at most 65,536.
    fn below(&mut self, limit: usize) -> usize {
        let [low, high, ..] = self.next().to_le_bytes();
        usize::from(u16::from_le_bytes([low, high])) % limit
    }
}

fn seeds(count: u64, run: impl Fn(&mut Random) + std::panic::RefUnwindSafe) {
    let one = std::env::var("KVPATH_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = one.map_or(0..count, |seed: u64| seed..seed + 1);
    for seed in seeds {
        if let Err(panic) = catch_unwind(|| run(&mut Random(seed))) {
            eprintln!("failed: KVPATH_FUZZ_SEED={seed}");
            resume_unwind(panic);
        }
    }
}

#[test]
fn any_calls_from_several_threads() {
    seeds(12, |random| {
        // Each thread's part begins with a store that is opened.
        let mut data: Vec<u8> = (0..3 * 400).map(|_| random.byte()).collect();
        for (at, part) in (0_u8..).zip(data.chunks_mut(400)) {
            let engine = random.byte() % 4;
            part[..8].copy_from_slice(&[0, at, 1, engine, 0, 0, 3, 0]);
        }
        calls::run(&data);
    });
    std::fs::remove_dir_all(calls::root()).unwrap();
}

/// Pieces of configurations, put together at random and then spoilt.
#[test]
fn any_text_as_a_configuration() {
    const PIECES: [&str; 24] = [
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\"",
        "\"storage_backends\"",
        "\"/a\"",
        "\"/a:/b//\"",
        "\"tensor_size\"",
        "\"shard_size\"",
        "\"block_size\"",
        "\"store_health\"",
        "4096",
        "-1",
        "1e99",
        "8.0",
        "true",
        "null",
        "\"posix_io_engine\"",
        "\"\\ud800\"",
        "\"timeout_ms\"",
        "{}",
    ];
    const VALID: &str = "{\"storage_backends\": [\"/a\", \"/b\"], \"tensor_size\": 512, \
                         \"shard_size\": 1024, \"block_size\": 4096, \"store_health\": \
                         {\"health_window_size\": 4}}";
    seeds(20_000, |random| {
        let mut text = VALID.to_owned();
        for _ in 0..1 + random.below(4) {
            let from = random.below(text.len() + 1);
            let to = (from + random.below(12)).min(text.len());
            if text.is_char_boundary(from) && text.is_char_boundary(to) {
                text.replace_range(from..to, PIECES[random.below(PIECES.len())]);
            }
        }
        config::run(text.as_bytes());
    });
}
