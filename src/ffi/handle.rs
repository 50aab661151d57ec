//! The table of open stores: numbers outside, `Arc<Store>` inside. Owns which numbers exist. A
//! number is never used twice, so that use after close is told apart from a number that never was
//! (R70).

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use super::types::kvpath_store_t;
use crate::error::{Error, Status};
use crate::store::Store;

struct Registry {
    stores: Option<HashMap<u64, Arc<Store>>>,
    last: u64,
}

static REGISTRY: RwLock<Registry> = RwLock::new(Registry { stores: None, last: 0 });

/// Gives an open store its number.
pub fn publish(store: Arc<Store>) -> kvpath_store_t {
    let mut registry = REGISTRY.write();
    registry.last += 1;
    let id = registry.last;
    registry.stores.get_or_insert_default().insert(id, store);
    id
}

/// The store of a number.
///
/// # Errors
/// `Closed` for one that was open once, `InvalidParam` for one that never was.
pub fn find(id: kvpath_store_t) -> Result<Arc<Store>, Error> {
    let registry = REGISTRY.read();
    match registry.stores.as_ref().and_then(|stores| stores.get(&id)) {
        Some(store) => Ok(Arc::clone(store)),
        None => Err(unknown(id, registry.last)),
    }
}

/// Takes a number out of the table: from now on every call with it gets `Closed`.
pub fn withdraw(id: kvpath_store_t) {
    let mut registry = REGISTRY.write();
    let taken = registry.stores.as_mut().and_then(|stores| stores.remove(&id));
    // Whoever has the last of a store closes it, and that takes a while.
    drop(registry);
    drop(taken);
}

fn unknown(id: u64, last: u64) -> Error {
    if id != 0 && id <= last {
        return Error::new(Status::Closed, format!("store {id} is closed"));
    }
    Error::invalid(format!("{id} is not a store: kvpath_open never gave it"))
}
