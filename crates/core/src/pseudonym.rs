//! What stands for the ids of people who were erased.
//!
//! A pseudonym is an HMAC-SHA-256 with a key of the organisation, which is itself one of the organisation's salt with the namespace's key. Who has
//! all of key, salt and a guess of an id can tell whether it is the one; it is personal data still, and nothing else tells the id.
//!
//! Place in the flow: a purge replaces ids in stored requests by their pseudonyms. In organisations where it did, the ledger knows every id by its
//! pseudonym, whether a request spells it or not, so it makes the same of them. Form: `docs/formats/pseudonym.md`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::request::{Delete, Id, Op, Request, RequestDigest, Scope, Subject};

/// The version of the form of pseudonyms.
pub const PSEUDONYM_FORMAT: u32 = 1;
const PREFIX: &str = "erased:1:";
/// Requests spell ids as texts, whatever the type of a column.
const TYPE: &str = "text";

type Mac = Hmac<Sha256>;

fn mac(key: &[u8]) -> Mac {
    Mac::new_from_slice(key).expect("an HMAC takes a key of any length")
}

fn add(mac: &mut Mac, parts: &[&[u8]]) {
    for part in parts {
        mac.update(&(part.len() as u64).to_le_bytes());
        mac.update(part);
    }
}

/// The secret of a namespace that its pseudonyms are made with.
#[derive(Clone)]
pub struct ErasureKey([u8; 32]);

impl ErasureKey {
    /// The key of these bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes. Not for logs, errors or metrics.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// What tells this key from others, and nothing of it.
    #[must_use]
    pub fn check_value(&self) -> [u8; 32] {
        let mut mac = mac(&self.0);
        add(&mut mac, &[b"alluvium check value"]);
        mac.finalize().into_bytes().into()
    }
}

impl fmt::Debug for ErasureKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ErasureKey(..)")
    }
}

/// What an organisation's pseudonyms are salted with. Without it nobody can tell any more whom they stand for.
#[derive(Clone, PartialEq, Eq)]
pub struct OrgSalt(pub [u8; 16]);

impl fmt::Debug for OrgSalt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OrgSalt(..)")
    }
}

/// The pseudonyms of a namespace: of the organisations that have a salt.
#[derive(Debug, Clone, Default)]
pub struct Pseudonyms {
    generation: u64,
    orgs: BTreeMap<String, Arc<OrgPseudonyms>>,
}

impl Pseudonyms {
    /// Those of organisations with their salts, as of the purge of requests of that number; none was before the first.
    #[must_use]
    pub fn new(generation: u64, key: &ErasureKey, salts: impl IntoIterator<Item = (String, OrgSalt)>) -> Self {
        let of_org = |(org, salt): (String, OrgSalt)| {
            let pseudonyms = OrgPseudonyms::new(key, &org, &salt);
            (org, Arc::new(pseudonyms))
        };
        Self { generation, orgs: salts.into_iter().map(of_org).collect() }
    }

    /// How many purges of requests have been.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Those of an organisation, if any of its ids may be replaced.
    #[must_use]
    pub fn of_org(&self, org: &str) -> Option<&Arc<OrgPseudonyms>> {
        // Most lakes have none.
        if self.orgs.is_empty() { None } else { self.orgs.get(org) }
    }

    /// What the ledger knows an id by.
    #[must_use]
    pub fn known_by<'i>(&self, org: &str, field: &str, id: &'i str) -> Cow<'i, str> {
        self.of_org(org).map_or(Cow::Borrowed(id), |of_org| of_org.of(field, id))
    }
}

/// The pseudonyms of one organisation.
#[derive(Clone)]
pub struct OrgPseudonyms {
    keyed: Mac,
}

impl fmt::Debug for OrgPseudonyms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OrgPseudonyms(..)")
    }
}

impl OrgPseudonyms {
    /// Those of an organisation with this salt.
    #[must_use]
    pub fn new(key: &ErasureKey, org: &str, salt: &OrgSalt) -> Self {
        let mut derived = mac(key.bytes());
        add(&mut derived, &[b"alluvium organisation", org.as_bytes(), &salt.0]);
        let derived: [u8; 32] = derived.finalize().into_bytes().into();
        let mut keyed = mac(&derived);
        add(&mut keyed, &[&PSEUDONYM_FORMAT.to_le_bytes(), org.as_bytes()]);
        Self { keyed }
    }

    /// The pseudonym of an id in a field; one that is a pseudonym stays.
    #[must_use]
    pub fn of<'i>(&self, field: &str, id: &'i str) -> Cow<'i, str> {
        if is_pseudonym(id) {
            return Cow::Borrowed(id);
        }
        let mut mac = self.keyed.clone();
        add(&mut mac, &[field.as_bytes(), TYPE.as_bytes(), id.as_bytes()]);
        let bytes: [u8; 32] = mac.finalize().into_bytes().into();
        let mut text = String::with_capacity(PREFIX.len() + 64);
        text.push_str(PREFIX);
        for byte in bytes {
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from_digit(digit.into(), 16).unwrap_or_default());
            }
        }
        Cow::Owned(text)
    }

    /// A request with pseudonyms in place of the ids that `goes` says, by their fields and pseudonyms; `None`: it spells none of them.
    #[must_use]
    pub fn replaced(&self, request: &Request, goes: &dyn Fn(&str, &str) -> bool) -> Option<Request> {
        let mut changes = false;
        let mut replace = |field: &str, id: &Id| -> Id {
            let pseudonym = self.of(field, id.as_str());
            if pseudonym == id.as_str() || !goes(field, &pseudonym) {
                return id.clone();
            }
            changes = true;
            Id::new(&pseudonym)
        };
        let op = match &request.op {
            Op::Convert { field, from, to } => {
                Op::Convert { from: replace(field, from), to: replace(field, to), field: field.clone() }
            }
            Op::Update { field, id, set } => Op::Update { id: replace(field, id), field: field.clone(), set: set.clone() },
            Op::Delete(Delete { scope: Scope::Subject(subjects), until, privacy }) => {
                let subject = |s: &Subject| Subject { id: replace(&s.field, &s.id), field: s.field.clone() };
                let subjects: BTreeSet<Subject> = subjects.iter().map(subject).collect();
                Op::Delete(Delete { scope: Scope::Subject(subjects), until: *until, privacy: *privacy })
            }
            Op::Delete(_) => return None,
        };
        changes.then(|| Request { op, ..request.clone() })
    }

    /// The digest of a request's content with pseudonyms in place of all its ids: equal however many of them a purge has replaced.
    #[must_use]
    pub fn digest(&self, request: &Request) -> RequestDigest {
        self.replaced(request, &|_, _| true).map_or_else(|| request.digest(), |replaced| replaced.digest())
    }
}

/// Whether a text has the form of a pseudonym. Requests that come in may not spell an id so.
#[must_use]
pub fn is_pseudonym(id: &str) -> bool {
    let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    id.strip_prefix(PREFIX).is_some_and(|hex| hex.len() == 64 && hex.bytes().all(is_hex))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::request::JsonText;

    fn of_org(key: u8, org: &str, salt: u8) -> OrgPseudonyms {
        OrgPseudonyms::new(&ErasureKey::new([key; 32]), org, &OrgSalt([salt; 16]))
    }

    #[test]
    fn pseudonyms_are_those_of_the_golden_file() {
        // Computed by `tests/golden/pseudonym-v1.py`.
        let golden = include_str!("../tests/golden/pseudonym-v1.txt");
        let key = ErasureKey::new(std::array::from_fn(|at| u8::try_from(at).unwrap()));
        let salt = OrgSalt(std::array::from_fn(|at| u8::try_from(255 - at).unwrap()));
        let hex = |bytes: [u8; 32]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let of_org = OrgPseudonyms::new(&key, "00D1", &salt);
        let made = [hex(key.check_value()), of_org.of("lead_id", "00Q1").into_owned(), of_org.of("ü", "").into_owned()];
        assert_eq!(golden.lines().collect::<Vec<_>>(), made);
    }

    #[test]
    fn keys_salts_organisations_fields_and_ids_make_others_and_a_pseudonym_stays() {
        let texts = [
            of_org(1, "a", 1).of("f", "x").into_owned(),
            of_org(2, "a", 1).of("f", "x").into_owned(),
            of_org(1, "b", 1).of("f", "x").into_owned(),
            of_org(1, "a", 2).of("f", "x").into_owned(),
            of_org(1, "a", 1).of("g", "x").into_owned(),
            of_org(1, "a", 1).of("f", "y").into_owned(),
            of_org(1, "a", 1).of("fx", "").into_owned(),
        ];
        assert_eq!(BTreeSet::from(texts.clone()).len(), texts.len());
        assert!(texts.iter().all(|text| is_pseudonym(text)));
        assert_eq!(of_org(9, "z", 9).of("f", &texts[0]), texts[0]);
        assert!(!is_pseudonym("erased:1:00") && !is_pseudonym(&texts[0].to_uppercase()) && !is_pseudonym(&texts[0][1..]));
    }

    #[test]
    fn requests_say_the_same_however_many_of_their_ids_are_replaced() {
        let org = of_org(1, "o", 1);
        let id = |text: &str| Id::new(text);
        let subject = |field: &str, text: &str| Subject { field: field.to_owned(), id: id(text) };
        let subjects = BTreeSet::from([subject("lead", "a"), subject("lead", "b"), subject("user", "a")]);
        let ops = [
            Op::Convert { field: "lead".to_owned(), from: id("a"), to: id("b") },
            Op::Update { field: "lead".to_owned(), id: id("a"), set: BTreeMap::from([("x".to_owned(), JsonText::null())]) },
            Op::Delete(Delete { scope: Scope::Subject(subjects), until: Some(3), privacy: true }),
        ];
        for op in ops {
            let request = Request { id: "r".to_owned(), org: "o".to_owned(), dataset: None, execution_time: 7, op };
            let a = org.of("lead", "a").into_owned();
            let replaced = org.replaced(&request, &|field, pseudonym| field == "lead" && pseudonym == a).unwrap();
            assert_ne!(replaced, request);
            assert_eq!(Request::from_json(&replaced.to_json()).unwrap(), replaced);
            assert_eq!(org.digest(&replaced), org.digest(&request));
            assert_ne!(org.digest(&request), request.digest());
            assert!(!replaced.to_json().contains(r#""lead","id":"a""#) && !replaced.to_json().contains(r#""from":"a""#));
            assert_eq!(org.replaced(&replaced, &|field, pseudonym| field == "lead" && pseudonym == a), None);
            assert_eq!(org.replaced(&request, &|_, _| false), None);
        }
    }
}
