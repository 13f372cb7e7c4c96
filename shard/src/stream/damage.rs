//! Damage that a start met. The tails, and the list of entities, are made from segments then. Where a part of
//! those cannot be read the tails are not believed any more: reads go to the blocks instead, and fail where
//! they need the damaged one; and reads of entities that only that part may know fail too.

use super::StreamTable;
use super::keys::{only_entity, split_key};
use crate::damage::Damaged;
use crate::segment::Segment;
use std::cell::{Cell, RefCell};
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::format::block::BlockData;
use strandline_core::ids::ColumnId;
use strandline_core::routing::hash64;
use strandline_core::scan::{Entities, TsRange};

/// A block whose entities are not known.
struct Unknown {
    /// Names of its first and last entity.
    names: (Vec<u8>, Vec<u8>),
    range: TsRange,
    error: Error,
}

/// See the module.
#[derive(Default)]
pub(super) struct Damage {
    segments: RefCell<Damaged>,
    unknown: RefCell<Vec<Unknown>>,
    /// The first block that the tails do without.
    tails: RefCell<Option<Error>>,
    /// Rows that a read cannot see are no rows of the tails either.
    doubted: Cell<bool>,
}

impl StreamTable {
    /// Its segments whose index cannot be read.
    pub fn damaged(&self) -> Damaged {
        self.damage.segments.borrow().clone()
    }

    /// Before the others are opened, or when these are given up.
    pub fn set_damaged(&self, damaged: Damaged) {
        *self.damage.segments.borrow_mut() = damaged;
        self.look_at_damage();
    }

    fn look_at_damage(&self) {
        let damage = &self.damage;
        let some = !damage.segments.borrow().is_empty() || damage.tails.borrow().is_some();
        damage.doubted.set(some);
    }

    /// Whether the tails know the newest sample of every entity and channel.
    pub(super) fn tails_hold(&self) -> bool {
        !self.damage.doubted.get()
    }

    /// For what only the tails can say.
    ///
    /// # Errors
    /// `XX001`, naming file and offset of what they do without.
    pub fn check_tails(&self) -> Result<()> {
        self.damage.segments.borrow().check()?;
        match &*self.damage.tails.borrow() {
            Some(e) => Err(e.clone()),
            None => Ok(()),
        }
    }

    /// Whether all rows of these entities in this range can be found: at the beginning of each read.
    ///
    /// # Errors
    /// `XX001`, naming file and offset.
    pub(super) fn check_damage(&self, entities: &Entities, range: TsRange) -> Result<()> {
        if self.tails_hold() {
            return Ok(());
        }
        self.damage.segments.borrow().check()?;
        for unknown in self.damage.unknown.borrow().iter() {
            let among = |name: &str| {
                unknown.names.0.as_slice() <= name.as_bytes()
                    && name.as_bytes() <= unknown.names.1.as_slice()
            };
            let asked = match entities {
                Entities::All => true,
                Entities::In(names) => names.iter().any(|n| among(n)),
            };
            if asked && !unknown.range.intersect(range).is_empty() {
                return Err(unknown.error.clone());
            }
        }
        Ok(())
    }

    /// A block that the tails needed cannot be read. Its entities are noted all the same, if their names can
    /// be read.
    ///
    /// # Errors
    /// Errors of the disk.
    pub(super) async fn note_damage(
        &self,
        segment: &Segment,
        block: usize,
        e: Error,
    ) -> Result<()> {
        tracing::error!(
            "{e}: reads that need this part fail, and so does what is newest of its entities"
        );
        self.damage
            .tails
            .borrow_mut()
            .get_or_insert_with(|| e.clone());
        self.look_at_damage();
        let meta = &segment.blocks(0)[block];
        if let Some(name) = only_entity(meta) {
            let name = name.to_vec();
            self.know(&name);
            return Ok(());
        }
        let names = match segment.read(0, block, &[ColumnId::ENTITY]).await {
            Ok(decoded) => decoded.get(ColumnId::ENTITY).cloned(),
            Err(e) if e.state() == SqlState::DataCorrupted => None,
            Err(e) => return Err(e),
        };
        match names.as_ref().map(|c| &c.data) {
            Some(BlockData::StrRuns { names, .. }) => {
                (0..names.len()).for_each(|n| self.know(names.get_bytes(n)));
            }
            _ => self.damage.unknown.borrow_mut().push(Unknown {
                names: (
                    split_key(&meta.first_key).0.to_vec(),
                    split_key(&meta.last_key).0.to_vec(),
                ),
                range: TsRange {
                    from: meta.range.0,
                    to: meta.range.1,
                },
                error: e,
            }),
        }
        Ok(())
    }

    fn know(&self, name: &[u8]) {
        self.state
            .borrow_mut()
            .dictionary
            .intern(name, hash64(name));
    }
}
