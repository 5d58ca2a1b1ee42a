//! Tokens: how far a reader of changes has come, as an opaque text that holds across restarts.
//!
//! Place in the flow: `changes` prints one on its last line; it comes back with `--since` or `consumers commit`. A token names the
//! first version that its holder was not given yet: of `notifications` (a partition token) or of the dataset's own table (a row
//! token). Invariants: a token is good for one life of one dataset and of its table; one that a consumer was given says from
//! which of the consumer's records, by which reader, and from which reader's token that one went on, so that an acknowledgement of
//! another reader is told from a good one. The form is in `docs/formats/consumer.md`.

use xxhash_rust::xxh3::xxh3_64;

use crate::chain::Incarnation;
use crate::dataset::DatasetName;
use crate::error::{Error, Kind, Result};

/// The version of the stored form that this program writes and the newest it reads.
pub const TOKEN_FORMAT: u8 = 2;

/// Bytes of a token of this format, before they are spelled in hexadecimal.
const TOKEN_BYTES: usize = 66;

/// What a reader is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReadKind {
    /// Notifications: which partitions changed.
    Partitions,
    /// The changed rows themselves.
    Rows,
}

impl ReadKind {
    /// Its name in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Partitions => "partitions",
            Self::Rows => "rows",
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::Partitions => b'p',
            Self::Rows => b'r',
        }
    }

    const fn of_code(code: u8) -> Option<Self> {
        match code {
            b'p' => Some(Self::Partitions),
            b'r' => Some(Self::Rows),
            _ => None,
        }
    }
}

/// The first version that a reader was not given yet; 0 before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct NextVersion(pub u64);

/// One process's reading, from its first round to its last: random, so that two never have the same, also if both go on with one
/// token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReaderId(pub u64);

/// The table that a token counts versions of, told from another one that was made in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TableMark(u64);

impl TableMark {
    /// Of the table whose metadata has this id.
    #[must_use]
    pub fn new(table_id: &str) -> Self {
        // Zero stands for no table.
        Self(xxh3_64(table_id.as_bytes()).max(1))
    }
}

/// The record of a consumer that a token was read from, and by whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadFrom {
    consumer: u32,
    /// The number of the record.
    pub record: u64,
    /// Which reading it was.
    pub reader: ReaderId,
    went_on: Option<WentOn>,
}

/// With whose token a reading went on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WentOn {
    reader: ReaderId,
    at: NextVersion,
}

impl ReadFrom {
    /// Of the consumer of that name, by a reader that went on with nobody's token.
    #[must_use]
    pub fn new(consumer: &str, record: u64, reader: ReaderId) -> Self {
        Self { consumer: digest32(consumer.as_bytes()), record, reader, went_on: None }
    }

    /// By a reader that goes on with a token of this one, which says `at`.
    #[must_use]
    pub fn gone_on(self, at: NextVersion, reader: ReaderId) -> Self {
        Self { reader, went_on: Some(WentOn { reader: self.reader, at }), ..self }
    }

    /// The same, from that record.
    #[must_use]
    pub fn at_record(self, record: u64) -> Self {
        Self { record, ..self }
    }

    /// Whether the token was given to that consumer.
    #[must_use]
    pub fn is_of(&self, consumer: &str) -> bool {
        self.consumer == digest32(consumer.as_bytes())
    }

    /// Whether this reader was given nothing that a token of `other` saying `at` acknowledges, but by itself or by the reader that it
    /// went on from.
    #[must_use]
    pub fn follows(&self, other: &Self, at: NextVersion) -> bool {
        let is_behind = |went_on: WentOn| went_on.reader == other.reader && at <= went_on.at;
        self.reader == other.reader || self.went_on.is_some_and(is_behind)
    }
}

/// How far a reader has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// What it reads.
    pub kind: ReadKind,
    /// The first version it was not given.
    pub next: NextVersion,
    /// The consumer's record it was read from, if a consumer read.
    pub read_from: Option<ReadFrom>,
    /// The table, if there was one.
    pub table: Option<TableMark>,
    binding: u64,
}

impl Token {
    /// A token for a dataset in one life of its namespace; `None`: a namespace that was never used.
    #[must_use]
    pub fn new(
        kind: ReadKind,
        next: NextVersion,
        read_from: Option<ReadFrom>,
        incarnation: Option<&Incarnation>,
        dataset: &DatasetName,
    ) -> Self {
        Self { kind, next, read_from, table: None, binding: binding(incarnation, dataset) }
    }

    /// The same, of that table.
    #[must_use]
    pub fn of_table(self, table: Option<TableMark>) -> Self {
        Self { table, ..self }
    }

    /// Reads a token.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for what no program of ours printed, [`Kind::Unsupported`] for a newer format.
    pub fn parse(text: &str) -> Result<Self> {
        let malformed = || {
            Error::new(Kind::Invalid, "that is not a token")
                .hint("tokens are printed on the last line of: alluvium changes DATASET, as {\"next\":\"TOKEN\"}")
        };
        let bytes = from_hex(text).ok_or_else(malformed)?;
        let (body, check) = bytes.split_last_chunk::<4>().ok_or_else(malformed)?;
        let format = *body.first().ok_or_else(malformed)?;
        if digest32(body).to_be_bytes() != *check || format == 0 {
            return Err(malformed());
        }
        if format > TOKEN_FORMAT {
            return Err(Error::new(
                Kind::Unsupported,
                format!("the token has format {format}, this program reads up to {TOKEN_FORMAT}"),
            )
            .hint("a newer alluvium gave it: use that version or a newer one"));
        }
        let mut rest = Fields(&body[1..]);
        let token = (|| {
            let kind = ReadKind::of_code(u8::from_be_bytes(rest.take()?))?;
            let next = NextVersion(u64::from_be_bytes(rest.take()?));
            let binding = u64::from_be_bytes(rest.take()?);
            let (consumer, record) = (u32::from_be_bytes(rest.take()?), u64::from_be_bytes(rest.take()?));
            let reader = ReaderId(u64::from_be_bytes(rest.take()?));
            // Format 1 did not say.
            let (before, at) =
                if format == 1 { (0, 0) } else { (u64::from_be_bytes(rest.take()?), u64::from_be_bytes(rest.take()?)) };
            let went_on = (before > 0).then_some(WentOn { reader: ReaderId(before), at: NextVersion(at) });
            let read_from = (record > 0).then_some(ReadFrom { consumer, record, reader, went_on });
            let table = Some(u64::from_be_bytes(rest.take()?)).filter(|t| *t > 0).map(TableMark);
            rest.0.is_empty().then_some(Self { kind, next, read_from, table, binding })
        })();
        token.ok_or_else(malformed)
    }

    /// Whether the token is of this dataset in this life of its namespace. A beginning in a namespace that was never used is the
    /// beginning in its first life too.
    #[must_use]
    pub fn is_of(&self, incarnation: Option<&Incarnation>, dataset: &DatasetName) -> bool {
        self.binding == binding(incarnation, dataset) || (self.next.0 == 0 && self.binding == binding(None, dataset))
    }
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut bytes = Vec::with_capacity(TOKEN_BYTES);
        bytes.extend([TOKEN_FORMAT, self.kind.code()]);
        bytes.extend(self.next.0.to_be_bytes());
        bytes.extend(self.binding.to_be_bytes());
        let (consumer, record, reader) = self.read_from.map_or((0, 0, 0), |r| (r.consumer, r.record, r.reader.0));
        bytes.extend(consumer.to_be_bytes());
        bytes.extend(record.to_be_bytes());
        bytes.extend(reader.to_be_bytes());
        let went_on = self.read_from.and_then(|r| r.went_on).map_or((0, 0), |w| (w.reader.0, w.at.0));
        bytes.extend(went_on.0.to_be_bytes());
        bytes.extend(went_on.1.to_be_bytes());
        bytes.extend(self.table.map_or(0, |t| t.0).to_be_bytes());
        let check = digest32(&bytes);
        bytes.extend(check.to_be_bytes());
        bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// The fields of a token, taken from the front.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }
}

fn binding(incarnation: Option<&Incarnation>, dataset: &DatasetName) -> u64 {
    let incarnation = incarnation.map_or("", |i| i.0.as_str());
    // Neither holds a slash.
    xxh3_64(format!("{incarnation}/{}", dataset.0).as_bytes())
}

fn digest32(bytes: &[u8]) -> u32 {
    let [_, _, _, _, low @ ..] = xxh3_64(bytes).to_be_bytes();
    u32::from_be_bytes(low)
}

/// Lower-case hexadecimal only, so that one token has one spelling.
fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    /// Made by `tests/golden/token.py` from the description in `docs/formats/consumer.md`, as that of the former format was.
    const GOLDEN: &str = include_str!("../tests/golden/token-v2.txt");
    const GOLDEN_1: &str = include_str!("../tests/golden/token-v1.txt");

    fn life() -> Incarnation {
        Incarnation("0123456789abcdef0123456789abcdef".to_owned())
    }

    fn edit() -> DatasetName {
        DatasetName("edit".to_owned())
    }

    #[test]
    fn the_golden_token_reads_and_writes_as_it_is() {
        let token = Token::parse(GOLDEN.trim_end()).unwrap();
        assert_eq!((token.kind, token.next, token.read_from.unwrap().record), (ReadKind::Rows, NextVersion(42), 7));
        assert!(token.read_from.unwrap().is_of("reports"));
        assert!(!token.read_from.unwrap().is_of("report"));
        assert!(token.is_of(Some(&life()), &edit()));
        assert_eq!(token.to_string(), GOLDEN.trim_end());
        let before = ReadFrom::new("reports", 7, ReaderId(0x1112_1314_1516_1718));
        let from = before.gone_on(NextVersion(40), ReaderId(0x0102_0304_0506_0708));
        let made = Token::new(ReadKind::Rows, NextVersion(42), Some(from), Some(&life()), &edit())
            .of_table(Some(TableMark::new("5fba94ed-9794-4965-ba6e-6ee3c0d22af9")));
        assert_eq!(made.to_string(), GOLDEN.trim_end());
    }

    #[test]
    fn a_token_of_the_former_format_is_read_and_went_on_from_nobody() {
        let token = Token::parse(GOLDEN_1.trim_end()).unwrap();
        let from = ReadFrom::new("reports", 7, ReaderId(0x0102_0304_0506_0708));
        let made = Token::new(ReadKind::Rows, NextVersion(42), Some(from), Some(&life()), &edit())
            .of_table(Some(TableMark::new("5fba94ed-9794-4965-ba6e-6ee3c0d22af9")));
        assert_eq!(token, made);
    }

    #[test]
    fn a_reader_follows_itself_and_where_it_went_on_and_no_one_else() {
        let first = ReadFrom::new("reports", 1, ReaderId(1));
        let [one, other] = [2, 3].map(|id| first.gone_on(NextVersion(10), ReaderId(id)));
        let third = one.gone_on(NextVersion(20), ReaderId(4));
        for (reader, before, at, follows) in [
            (first, first, 99, true),
            (one, first, 10, true),
            (one, first, 4, true),
            // The first one went further by itself.
            (one, first, 11, false),
            (one, other, 10, false),
            (first, one, 10, false),
            (third, one, 20, true),
            (third, other, 20, false),
            (third, first, 10, false),
        ] {
            assert_eq!(reader.follows(&before, NextVersion(at)), follows, "{reader:?} {before:?} {at}");
        }
    }

    #[test]
    fn a_token_is_of_one_dataset_in_one_life_of_the_namespace() {
        let token = Token::new(ReadKind::Partitions, NextVersion(3), None, Some(&life()), &edit());
        assert!(token.is_of(Some(&life()), &edit()));
        assert!(!token.is_of(Some(&Incarnation("f".to_owned())), &edit()));
        assert!(!token.is_of(None, &edit()));
        assert!(!token.is_of(Some(&life()), &DatasetName("visit".to_owned())));
    }

    #[test]
    fn the_beginning_of_a_namespace_never_used_is_the_beginning_of_its_first_life() {
        let before = |next| Token::new(ReadKind::Rows, NextVersion(next), None, None, &edit());
        assert!(before(0).is_of(Some(&life()), &edit()));
        assert!(!before(1).is_of(Some(&life()), &edit()));
    }

    #[test]
    fn whatever_was_not_printed_is_no_token() {
        let good = GOLDEN.trim_end();
        let mut flipped = good.to_owned();
        flipped.replace_range(10..11, if &good[10..11] == "0" { "1" } else { "0" });
        let cases = [
            String::new(),
            "x".to_owned(),
            good[2..].to_owned(),
            good[..98].to_owned(),
            // The length of the former format.
            good[..100].to_owned(),
            good.to_uppercase(),
            flipped,
            format!("{good}00"),
        ];
        for bad in cases {
            assert_eq!(Token::parse(&bad).unwrap_err().kind(), Kind::Invalid, "{bad:?}");
        }
    }

    #[test]
    fn a_newer_format_is_unsupported() {
        let mut bytes = vec![TOKEN_FORMAT + 1, 1, 2, 3];
        bytes.extend(digest32(&bytes).to_be_bytes());
        let text: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(Token::parse(&text).unwrap_err().kind(), Kind::Unsupported);
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(next in any::<u64>(), record in 0_u64.., rows in any::<bool>(), name in "[a-z]{1,9}") {
            let kind = if rows { ReadKind::Rows } else { ReadKind::Partitions };
            let from = (record > 0).then(|| ReadFrom::new(&name, record, ReaderId(next ^ record)));
            let from = from.map(|from| if rows { from.gone_on(NextVersion(next / 2), ReaderId(next)) } else { from });
            let table = rows.then(|| TableMark::new(&name));
            let token = Token::new(kind, NextVersion(next), from, Some(&life()), &edit()).of_table(table);
            prop_assert_eq!(Token::parse(&token.to_string()).unwrap(), token);
        }
    }
}
