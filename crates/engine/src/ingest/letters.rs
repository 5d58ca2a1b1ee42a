//! Looking at refused records.

use alluvium_core::{Dataset, DatasetName, Result, TableSpec};
use serde_json::{Value, json};

use super::dead_letters::Letter;
use super::replay::Letters;
use crate::engine::Engine;

/// The most characters of a record that the text form of a listing shows.
const TEXT_CHARS: usize = 200;

/// A refused record.
#[derive(Debug, Clone)]
pub struct DeadLetter {
    dataset: DatasetName,
    letter: Letter,
}

/// A listing of refused records.
#[derive(Debug, Clone, Default)]
pub struct DeadLetterList {
    /// The records.
    pub letters: Vec<DeadLetter>,
    /// Whether there are more than were asked for.
    pub more: bool,
}

impl Engine {
    /// At most `limit` refused records of `datasets`.
    ///
    /// # Errors
    /// [`alluvium_core::Kind::Corrupt`] if the table cannot be read.
    pub async fn dead_letters(&self, datasets: &[&Dataset], limit: usize) -> Result<DeadLetterList> {
        let mut list = DeadLetterList::default();
        let log = self.log_of(&TableSpec::dead_letters());
        if !log.exists().await? {
            return Ok(list);
        }
        for file in log.live_files(None).await? {
            let letters = Letters::of_file(&log.read_file(&file.path).await?)?;
            for (dataset, letter) in letters.into_iter().filter(|(d, _)| datasets.iter().any(|wanted| wanted.name == *d)) {
                if list.letters.len() == limit {
                    list.more = true;
                    return Ok(list);
                }
                list.letters.push(DeadLetter { dataset, letter });
            }
        }
        Ok(list)
    }
}

impl DeadLetter {
    /// The record as the command line's JSON shows it: `raw` as text, or as `raw_base64` where it is not UTF-8.
    #[must_use]
    pub fn json(&self) -> Value {
        let Letter { source, refused, .. } = &self.letter;
        let mut value = json!({
            "dataset": self.dataset.0, "source": source, "position": refused.record,
            "reason": refused.reason, "field": refused.field,
        });
        match std::str::from_utf8(&refused.raw) {
            Ok(text) => value["raw"] = text.into(),
            Err(_) => value["raw_base64"] = base64(&refused.raw).into(),
        }
        value
    }

    /// The record in one line for people, cut if it is long.
    #[must_use]
    pub fn text(&self) -> String {
        let Letter { source, refused, .. } = &self.letter;
        let field = refused.field.as_ref().map_or_else(String::new, |f| format!(" ({f})"));
        let raw: String = String::from_utf8_lossy(&refused.raw).chars().take(TEXT_CHARS).flat_map(char::escape_debug).collect();
        format!("{} {source}:{} {}{field}\n    {raw}", self.dataset, refused.record, refused.reason)
    }
}

/// RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0_u32, |g, b| g << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for i in 0..4 {
            let letter = ALPHABET[(group >> (18 - 6 * i)) as usize & 63];
            text.push(if i <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_gives_the_vectors_of_rfc_4648() {
        let vectors = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, encoded) in vectors {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }
}
