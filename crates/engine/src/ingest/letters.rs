//! Looking at refused records.

use alluvium_core::{Dataset, DatasetName, Result, TableSpec};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
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
            Err(_) => value["raw_base64"] = STANDARD.encode(&refused.raw).into(),
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
