//! Where the key of erased ids comes from.

use alluvium_core::{EraseKey, ErasureKey, Error, Kind, Result};
use alluvium_lake::{ERASURE_FORMAT, KeyRecord, from_hex, to_hex};

use crate::engine::Engine;

impl Engine {
    /// The key that the project file points to; `None`: it lies in the lake.
    pub(super) fn project_key(&self) -> Result<Option<ErasureKey>> {
        let (text, place) = match &self.project.erase.key {
            EraseKey::Lake => return Ok(None),
            EraseKey::Env(name) => {
                let text = std::env::var(name).map_err(|e| {
                    Error::new(
                        Kind::Unavailable,
                        format!("the key of erased ids: the environment variable {name} cannot be read"),
                    )
                    .hint(format!("set {name} to the key, 64 hexadecimal digits"))
                    .source(e)
                })?;
                (text, format!("the environment variable {name}"))
            }
            EraseKey::File(path) => {
                let text = std::fs::read_to_string(self.path(path)).map_err(|e| {
                    Error::new(Kind::Unavailable, format!("the key of erased ids: the file {path} cannot be read"))
                        .hint("put the key there, 64 hexadecimal digits")
                        .source(e)
                })?;
                (text, format!("the file {path}"))
            }
        };
        let key = from_hex(text.trim()).ok_or_else(|| {
            Error::new(Kind::Unavailable, format!("the key of erased ids: {place} does not hold 64 hexadecimal digits"))
                .hint("make a key with: openssl rand -hex 32")
        })?;
        Ok(Some(ErasureKey::new(key)))
    }

    /// What is written down of a key that was never used.
    pub(super) fn new_key_record(&self) -> Result<KeyRecord> {
        let written_at_ms = self.clock.now_ms();
        let (key, in_lake) = match self.project_key()? {
            Some(key) => (key, None),
            None => {
                let machine = self.store.machine();
                let mut bytes = [0; 32];
                for half in bytes.chunks_exact_mut(16) {
                    half.copy_from_slice(machine.fresh_id().as_bytes());
                }
                // Of an id some bits are always the same.
                let key = ErasureKey::new(ErasureKey::new(bytes).check_value());
                let hex = to_hex(key.bytes());
                (key, Some(hex))
            }
        };
        Ok(KeyRecord { format: ERASURE_FORMAT, check: to_hex(&key.check_value()), key: in_lake, written_at_ms })
    }
}
