//! A view of a store for delta-rs: listings are ordered, and log entries spell code points beyond the basic plane as themselves.
//!
//! The JSON reader below delta-rs decodes some escaped surrogate pairs wrongly (`\ud840\udc00`, U+20000, becomes U+10000), and
//! other writers escape partition values to ASCII. So the pairs are replaced by the characters they mean before it sees them.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// The view.
#[derive(Debug)]
pub(crate) struct UnescapedLog {
    inner: Arc<dyn ObjectStore>,
    /// Entries that were read, where they are kept.
    entries: Option<Mutex<HashMap<Path, (ObjectMeta, Bytes)>>>,
}

/// Of so many bytes entries are kept at most.
const KEPT_BYTES: usize = 32 << 20;

impl UnescapedLog {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self { inner, entries: None }
    }

    /// A view for one look at a log, which reads its entries several times and fetches each once.
    pub(crate) fn for_one_look(inner: Arc<dyn ObjectStore>) -> Self {
        Self { inner, entries: Some(Mutex::default()) }
    }

    fn kept(&self, location: &Path) -> Option<(ObjectMeta, Bytes)> {
        self.entries.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner).get(location).cloned()
    }

    fn keep(&self, location: &Path, meta: &ObjectMeta, text: &Bytes) {
        let Some(entries) = &self.entries else { return };
        let mut entries = entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.values().map(|(_, text)| text.len()).sum::<usize>() + text.len() <= KEPT_BYTES {
            entries.insert(location.clone(), (meta.clone(), text.clone()));
        }
    }
}

fn whole_entry(meta: ObjectMeta, text: Bytes, attributes: Attributes) -> GetResult {
    let range = 0..meta.size;
    let payload = GetResultPayload::Stream(stream::once(async { Ok(text) }).boxed());
    GetResult { payload, meta, range, attributes }
}

impl fmt::Display for UnescapedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UnescapedLog({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for UnescapedLog {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let whole = options.range.is_none() && !options.head && is_log_entry(location);
        if whole && let Some((meta, text)) = self.kept(location) {
            return Ok(whole_entry(meta, text, Attributes::default()));
        }
        let got = self.inner.get_opts(location, options).await?;
        if !whole {
            return Ok(got);
        }
        let (mut meta, attributes) = (got.meta.clone(), got.attributes.clone());
        let text = unescape_pairs(got.bytes().await?);
        meta.size = text.len() as u64;
        self.keep(location, &meta, &text);
        Ok(whole_entry(meta, text, attributes))
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        sorted(self.inner.list(prefix))
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        sorted(self.inner.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// delta-rs relies on the order of names, which a local disk does not list by.
fn sorted(listing: BoxStream<'static, Result<ObjectMeta>>) -> BoxStream<'static, Result<ObjectMeta>> {
    stream::once(async move {
        let mut found: Vec<ObjectMeta> = listing.try_collect().await?;
        found.sort_by(|a, b| a.location.cmp(&b.location));
        Ok::<_, object_store::Error>(stream::iter(found.into_iter().map(Ok)))
    })
    .try_flatten()
    .boxed()
}

fn is_log_entry(location: &Path) -> bool {
    let mut parts = location.parts().rev();
    let name = parts.next();
    name.is_some_and(|n| n.as_ref().ends_with(".json")) && parts.next().is_some_and(|d| d.as_ref() == "_delta_log")
}

/// Replaces each escaped surrogate pair in JSON text by its character; text inside a string stays inside it.
fn unescape_pairs(text: Bytes) -> Bytes {
    if !text.windows(4).any(|w| w[0] == b'\\' && w[1] == b'u' && w[2].eq_ignore_ascii_case(&b'd')) {
        return text;
    }
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        if let Some(c) = pair_at(&text[at..]) {
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            at += 12;
        } else if text[at] == b'\\' {
            // An escape is copied whole, so that the second backslash of `\\` never begins another.
            out.extend_from_slice(&text[at..text.len().min(at + 2)]);
            at += 2;
        } else {
            out.push(text[at]);
            at += 1;
        }
    }
    Bytes::from(out)
}

/// The character that `text` begins with in the form of an escaped surrogate pair.
fn pair_at(text: &[u8]) -> Option<char> {
    let unit = |at: usize| -> Option<u32> {
        let escape = text.get(at..at + 6)?;
        let digits = std::str::from_utf8(escape.strip_prefix(b"\\u")?).ok()?;
        if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        u32::from_str_radix(digits, 16).ok()
    };
    let (high, low) = (unit(0)?, unit(6)?);
    if !(0xD800..0xDC00).contains(&high) || !(0xDC00..0xE000).contains(&low) {
        return None;
    }
    char::from_u32(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(text: &str) -> String {
        String::from_utf8(unescape_pairs(Bytes::copy_from_slice(text.as_bytes())).to_vec()).expect("UTF-8 stays UTF-8")
    }

    #[test]
    fn pairs_become_their_characters_and_nothing_else_changes() {
        for (text, wanted) in [
            (r#"{"a":"\ud840\udc00"}"#, "{\"a\":\"\u{20000}\"}"),
            (r#"{"a":"\uD83D\uDE00 \ud83d"}"#, "{\"a\":\"\u{1F600} \\ud83d\"}"),
            (r#"{"a":"\\ud840\\udc00"}"#, r#"{"a":"\\ud840\\udc00"}"#),
            (r#"{"a":"\\\ud840\udc00"}"#, "{\"a\":\"\\\\\u{20000}\"}"),
            (r#"{"a":"\u00e9\n"}"#, r#"{"a":"\u00e9\n"}"#),
            (r#"{"a":"\ud8"#, r#"{"a":"\ud8"#),
        ] {
            assert_eq!(replaced(text), wanted);
        }
    }

    #[test]
    fn every_plane_survives() {
        for plane in 1..=16_u32 {
            for low in [0, 1, 0x1234, 0xFFFD] {
                let c = char::from_u32(plane * 0x10000 + low).expect("a scalar value");
                let mut units = [0; 2];
                let [high, low] = c.encode_utf16(&mut units) else { panic!("two units") };
                assert_eq!(replaced(&format!("\"\\u{high:04x}\\u{low:04X}\"")), format!("\"{c}\""));
            }
        }
    }
}
