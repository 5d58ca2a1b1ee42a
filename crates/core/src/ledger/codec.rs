//! Fates as bytes, for sorted files. Described in `docs/formats/fate.md`; the file that holds them carries the format's number.

use std::sync::Arc;

use super::fate::{Ending, Fate, FinalId, Live, Order, Piece, Pieces, SetColumn};
use crate::bytes::{Reader, number, text, time};
use crate::error::{Error, Kind, Result};
use crate::request::{Id, JsonText};

/// The version of the bytes that this program writes and the newest it reads.
pub const FATE_FORMAT: u32 = 1;

const ERASED: u8 = 0;
const SOURCE: u8 = 1;
const NULL: u8 = 2;
const IS: u8 = 3;

impl Fate {
    /// Appends the fate's bytes. The same fate has the same bytes.
    pub fn encode(&self, to: &mut Vec<u8>) {
        number(self.pieces().len() as u64, to);
        for Piece { up_to, ending } in self.pieces() {
            time(*up_to, to);
            let Ending::Live(live) = ending else {
                to.push(ERASED);
                continue;
            };
            match &live.id {
                FinalId::Source => to.push(SOURCE),
                FinalId::Null => to.push(NULL),
                FinalId::Is(id) => {
                    to.push(IS);
                    text(id.as_str(), to);
                }
            }
            number(live.columns.len() as u64, to);
            for SetColumn { column, value, order } in &live.columns {
                text(column, to);
                text(value.as_str(), to);
                time(order.execution_time, to);
                text(&order.request_id, to);
            }
        }
    }

    /// Reads a fate from the bytes that [`Self::encode`] wrote, all of them.
    ///
    /// # Errors
    /// `Corrupt` for other bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let corrupt = || {
            Error::new(Kind::Corrupt, "reading a fate of the folded ledger: its bytes are not what they must be")
                .hint("remove the folded ledger; it is made again from the requests")
        };
        let mut reader = Reader::new(bytes);
        let fate = reader.fate().ok_or_else(corrupt)?;
        if reader.is_empty() { Ok(fate) } else { Err(corrupt()) }
    }
}

trait ReadFate {
    fn fate(&mut self) -> Option<Fate>;
    fn live(&mut self, tag: u8) -> Option<Live>;
}

impl ReadFate for Reader<'_> {
    fn fate(&mut self) -> Option<Fate> {
        let mut pieces = Pieces::new();
        for _ in 0..self.number()? {
            let up_to = self.time()?;
            let ending = match self.byte()? {
                ERASED => Ending::Erased,
                tag => Ending::Live(self.live(tag)?),
            };
            pieces.read(Piece { up_to, ending });
        }
        pieces.checked()
    }

    fn live(&mut self, tag: u8) -> Option<Live> {
        let id = match tag {
            SOURCE => FinalId::Source,
            NULL => FinalId::Null,
            IS => FinalId::Is(Id::new(self.text()?)),
            _ => return None,
        };
        let mut columns: Vec<SetColumn> = Vec::new();
        for _ in 0..self.number()? {
            let (column, value) = (Arc::<str>::from(self.text()?), JsonText::canonical(self.text()?));
            let order = Order { execution_time: self.time()?, request_id: self.text()?.into() };
            if columns.last().is_some_and(|last| last.column >= column) {
                return None;
            }
            columns.push(SetColumn { column, value, order });
        }
        Some(Live { id, columns })
    }
}
