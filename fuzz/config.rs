//! Any text as a configuration: it is refused with a text, or what comes of it keeps the rules that
//! the rest of the library relies on (R1–R3). Nothing is opened.

use kvpath::config::Config;
use kvpath::error::Status;

/// One text.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Config::parse(text) {
        Err(error) => {
            assert!(matches!(error.status, Status::InvalidParam | Status::Unsupported), "{error}");
            assert!(!error.text.is_empty());
        }
        Ok(config) => {
            check(&config);
            let again = Config::parse(text).expect("what was valid stays valid");
            assert_eq!(config.backends, again.backends);
        }
    }
}

fn check(config: &Config) {
    assert!((1..=64).contains(&config.backends.len()));
    for (at, path) in config.backends.iter().enumerate() {
        assert!(path.starts_with('/') && path.ends_with('/') && !path.contains("//"), "{path}");
        assert!(!config.backends[..at].contains(path), "{path} is there twice");
    }
    assert!(config.data_dir_shard_bytes <= 5);
    assert!(config.trans_concurrency > 0 && config.lookup_concurrency > 0);
    assert!(config.health.timeout < config.health.interval);
    assert!(config.health.threshold > 0 && config.health.threshold <= config.health.window);
    match config.shape {
        Some(shape) => {
            assert!(shape.tensor_bytes > 0);
            assert_eq!(shape.shard_bytes % shape.tensor_bytes, 0);
            assert_eq!(shape.block_bytes % shape.shard_bytes, 0);
        }
        None => assert!(!config.transfers),
    }
}
