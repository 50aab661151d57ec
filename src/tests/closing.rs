//! Who closes a store: the first call, whatever others do meanwhile (R54, R70).

use crate::error::Status;
use crate::store::Store;

/// Callers that wait are woken as the store begins to close, and may close it once more before it
/// is out of the table of open stores.
#[test]
fn whoever_comes_second_does_not_take_the_close_over() {
    let root = std::env::temp_dir().join(format!("kvpath-closing-{}", std::process::id()));
    std::fs::create_dir_all(&root).unwrap();
    let config = serde_json::json!({
        "storage_backends": [root], "tensor_size": 4096, "shard_size": 4096, "block_size": 4096,
        "data_dir_shard_bytes": 0, "io_direct": false, "posix_io_engine": "psync",
    });
    let store = Store::open(&config.to_string()).unwrap();
    let mut withdrawn = 0;
    let closed = store.close(|| {
        withdrawn += 1;
        let again = store.close(|| unreachable!("the second call closes nothing"));
        assert_eq!(again.unwrap_err().status, Status::Closed);
    });
    closed.unwrap();
    assert_eq!(withdrawn, 1);
    assert_eq!(store.close(|| ()).unwrap_err().status, Status::Closed);
    std::fs::remove_dir_all(&root).unwrap();
}
