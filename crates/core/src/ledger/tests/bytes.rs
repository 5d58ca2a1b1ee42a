//! Fates and node keys as bytes, against what another program made by the words of the format.

use proptest::prelude::*;

use super::*;
use crate::error::Kind;
use crate::ledger::fate::Pieces;
use crate::ledger::{NodeKey, Order};

/// Made by fate-v1.py.
const FATE: &str = include_str!("../../../tests/golden/fate-v1.hex");
const KEYS: &str = include_str!("../../../tests/golden/node-keys-v1.txt");

fn bytes(hex: &str) -> Vec<u8> {
    let hex = hex.trim();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn set(column: &str, value: &str, execution_time: i64, request_id: &str) -> SetColumn {
    let order = Order { execution_time, request_id: request_id.into() };
    SetColumn { column: column.into(), value: JsonText::read(value).unwrap(), order }
}

fn golden() -> Fate {
    let mut fate = Pieces::new();
    fate.push(-1, Ending::Erased);
    let columns = vec![set("ip", "null", 1_000_000, "r-clear"), set("note", "\"ü\"", 1_700_000_000_000_000, "r9")];
    fate.push(1_000_000, Ending::Live(Live { id: FinalId::Null, columns }));
    let columns = vec![set("size", "2.50", 1_795_965_978_528_001, "r1")];
    fate.push(1_795_965_978_528_001, Ending::Live(Live { id: FinalId::Is(Id::new("0031")), columns }));
    fate.finish(Ending::UNTOUCHED)
}

#[test]
fn the_golden_fate_reads_and_writes_as_it_is() {
    let mut written = Vec::new();
    golden().encode(&mut written);
    assert_eq!(written, bytes(FATE));
    assert_eq!(Fate::decode(&bytes(FATE)).unwrap(), golden());
}

#[test]
fn the_golden_node_keys_are_ours() {
    let id = |field, id| Node::Id { field, id };
    let keys = [
        NodeKey::of("00D1", Node::Org),
        NodeKey::of("00D1", Node::Record("e-1")),
        NodeKey::of("00D1", id("lead_id", "00Q1")),
        NodeKey::of("ü", id("user", "")),
    ];
    let want: Vec<Vec<u8>> = KEYS.lines().map(bytes).collect();
    assert_eq!(keys.map(|key| key.0.to_vec()).to_vec(), want);
}

#[test]
fn bytes_that_are_no_fate_in_its_one_spelling_are_refused() {
    let good = bytes(FATE);
    let more = [good.as_slice(), &[0]].concat();
    let refused: [&[u8]; 8] = [
        &more,
        &[],
        &[0],                                                                   // no piece
        &[1, 2, 0],                                                             // the last piece ends
        &[1, 0x80, 0],                                                          // a number spelled longer than it must be
        &[1, 0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1, 9],       // no such ending
        &[2, 2, 0, 0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1, 0], // neighbours that are the same
        &[1, 0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2, 0],       // beyond 64 bits
    ];
    for bytes in refused {
        assert_eq!(Fate::decode(bytes).map_err(|e| e.kind()), Err(Kind::Corrupt), "{bytes:?}");
    }
    let ok = [1, 0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1, 0];
    assert!(Fate::decode(&ok).is_ok_and(|fate| *fate.at(i64::MAX) == Ending::Erased));
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_are_the_fate_they_spell(bytes in proptest::collection::vec(any::<u8>(), 0..40), damage in any::<(prop::sample::Index, u8)>()) {
        let mut good = super::bytes::bytes(FATE);
        *damage.0.get_mut(&mut good) ^= damage.1;
        for bytes in [bytes, good] {
            if let Ok(fate) = Fate::decode(&bytes) {
                let mut again = Vec::new();
                fate.encode(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
