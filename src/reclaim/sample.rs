//! Which directories are counted to know how full the store is, and what their number says (R81).

/// A random part of `directories` directories, each at most once; at least one.
#[must_use]
pub fn sample(directories: usize, ratio: f64, seed: u64) -> Vec<usize> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of a number of directories; saturates"
    )]
    let count = ((directories as f64 * ratio).ceil() as usize).clamp(1, directories.max(1));
    let mut all: Vec<usize> = (0..directories).collect();
    let mut random = seed;
    for at in 0..count.min(directories) {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        let left = (directories - at) as u64;
        let other = at + usize::try_from((random >> 33) % left).unwrap_or(0);
        all.swap(at, other);
    }
    all.truncate(count);
    all
}

/// Blocks in `directories` directories, where `counted` of them hold `blocks`.
#[must_use]
pub fn estimate(blocks: u64, counted: usize, directories: usize) -> u64 {
    let scaled = u128::from(blocks) * directories as u128 / (counted.max(1) as u128);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r81_a_sample_has_no_directory_twice_and_differs_from_time_to_time() {
        let first = sample(4096, 0.1, 1);
        assert_eq!(first.len(), 410);
        let mut unique = first.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), 410);
        assert!(unique.iter().all(|at| *at < 4096));
        assert_ne!(first, sample(4096, 0.1, 2));
        assert_eq!(sample(1, 0.01, 3), [0]);
        assert_eq!(sample(0, 0.1, 3), Vec::<usize>::new());
        assert_eq!(sample(16, 1.0, 3).len(), 16);
    }

    #[test]
    fn every_directory_is_counted_now_and_then() {
        let mut seen = [0; 64];
        for seed in 0..1000 {
            for at in sample(64, 0.1, seed) {
                seen[at] += 1;
            }
        }
        assert!(seen.iter().all(|count| (50..200).contains(count)), "{seen:?}");
    }

    #[test]
    fn an_estimate_scales() {
        assert_eq!(estimate(490, 10, 4096), 200_704);
        assert_eq!(estimate(7, 1, 1), 7);
        assert_eq!(estimate(u64::MAX, 1, 4096), u64::MAX);
    }
}
