//! What the store is for: transfers or lookups only, and the sizes of a block.

use super::Shape;
use super::limits::{DEVICE_MAX, SHARDS_MAX, SIZE_MAX};
use super::reader::{Reader, wrong};
use crate::error::Error;

/// `device_id` and what follows from it.
pub struct Role {
    /// -1: lookups only.
    pub device_id: i64,
    /// Present where the size of a block is known.
    pub shape: Option<Shape>,
    /// Transfers are on.
    pub transfers: bool,
}

/// Reads `device_id` and the three sizes.
pub fn read(reader: &mut Reader) -> Result<Role, Error> {
    let device_id = match reader.optional("device_id", &(-1..=DEVICE_MAX))? {
        Some(device) => {
            reader.note("device_id", device, "config");
            device
        }
        None => {
            let device = if reader.given("shard_size").is_some() { 0 } else { -1 };
            reader.note("device_id", device, "derived from shard_size");
            device
        }
    };
    let transfers = device_id >= 0;
    let tensor = size(reader, "tensor_size", transfers)?;
    let shard = size(reader, "shard_size", transfers)?;
    let block = size(reader, "block_size", transfers)?;
    multiple(reader, "shard_size", shard, "tensor_size", tensor)?;
    multiple(reader, "block_size", block, "shard_size", shard)?;
    if shard.is_none() {
        multiple(reader, "block_size", block, "tensor_size", tensor)?;
    }
    let shape = block.map(|block_bytes| {
        let shard_bytes = shard.unwrap_or(block_bytes);
        let tensor_bytes = tensor.unwrap_or(shard_bytes);
        Shape { tensor_bytes, shard_bytes, block_bytes }
    });
    if let Some(shape) = shape {
        if shape.shards() > SHARDS_MAX {
            let must = format!("at least block_size / {SHARDS_MAX}; block_size is");
            let must = format!("{must} {}", reader.shown("block_size"));
            return Err(wrong("shard_size", reader.shown("shard_size"), must));
        }
        if shard.is_none() {
            reader.note("shard_size", shape.shard_bytes, "derived from block_size");
        }
        if tensor.is_none() {
            let from = if shard.is_some() { "shard_size" } else { "block_size" };
            reader.note("tensor_size", shape.tensor_bytes, format!("derived from {from}"));
        }
    }
    Ok(Role { device_id, shape, transfers })
}

fn size(reader: &mut Reader, key: &str, required: bool) -> Result<Option<u64>, Error> {
    let given = reader.optional(key, &(1..=SIZE_MAX))?;
    match given {
        Some(bytes) => reader.note(key, bytes, "config"),
        None if required => {
            let device = reader.shown("device_id");
            let must = format!(
                "an integer from 1 to {SIZE_MAX}: transfers are on, for device_id is {device}"
            );
            return Err(wrong(key, "absent", must));
        }
        None => reader.note(key, serde_json::Value::Null, "default"),
    }
    Ok(given)
}

fn multiple(
    reader: &Reader,
    key: &str,
    whole: Option<u64>,
    of: &str,
    part: Option<u64>,
) -> Result<(), Error> {
    match (whole, part) {
        (Some(whole), Some(part)) if !whole.is_multiple_of(part) => {
            Err(wrong(key, reader.shown(key), format!("a multiple of {of}, {part}")))
        }
        _ => Ok(()),
    }
}
