//! Facts about one MUTABLE table. Of each entity one client alone writes, one statement at a time: at most
//! one of them has an outcome that nobody knows.

use super::Check;
use crate::reference::{Answered, Current, Fragment, same};
use std::collections::BTreeMap;
use strandline_core::ids::TableId;
use strandline_core::scan::{ChannelRead, Entities, StreamScan, TsRange};

/// What a statement says of one entity.
#[derive(Clone, Debug)]
pub enum Event {
    /// Rows of an INSERT.
    Insert(Vec<Fragment>),
    /// A DELETE.
    Delete(String),
}

impl Event {
    /// Whether anything changed, for a DELETE; true for an INSERT.
    fn apply(&self, current: &mut Current) -> bool {
        match self {
            Event::Insert(fragments) => {
                fragments.iter().for_each(|f| current.arrive(f));
                true
            }
            Event::Delete(entity) => current.delete(entity),
        }
    }
}

/// What is known of an entity.
#[derive(Clone, Debug, Default)]
struct Known {
    /// By what was acknowledged.
    sure: Current,
    /// A statement without an answer, or with one that says nothing.
    open: Option<Event>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct StateModel {
    entities: BTreeMap<String, Known>,
}

impl StateModel {
    /// What the entity is now; none while that is not known.
    pub fn certain(&self, entity: &str) -> Option<Current> {
        let known = self.entities.get(entity).cloned().unwrap_or_default();
        known.open.is_none().then_some(known.sure)
    }

    /// A statement is sent; nothing of the entity may be open.
    pub fn sent(&mut self, entity: &str, event: Event) {
        let known = self.entities.entry(entity.to_string()).or_default();
        known.open = Some(event);
    }

    /// It was acknowledged. Answers whether a DELETE found the entity live.
    pub fn acked(&mut self, entity: &str) -> bool {
        let known = self.entities.entry(entity.to_string()).or_default();
        let event = known.open.take();
        event.is_some_and(|e| e.apply(&mut known.sure))
    }

    /// It is known to have changed nothing.
    pub fn refused(&mut self, entity: &str) {
        if let Some(known) = self.entities.get_mut(entity) {
            known.open = None;
        }
    }

    /// A full read, of every channel. With `settle`, after a crash: what was not known is known now.
    pub fn check_all(
        &mut self,
        rows: &[Answered],
        channels: &[ChannelRead],
        settle: bool,
    ) -> Check {
        if let Some(row) = rows.iter().find(|r| !self.entities.contains_key(&r.0)) {
            return Err(format!("an entity that nobody wrote: {row:?}"));
        }
        for (name, known) in &mut self.entities {
            let found: Vec<Answered> = rows.iter().filter(|r| r.0 == *name).cloned().collect();
            let compare = |current: &Current| {
                same(
                    "the state of an entity",
                    &found,
                    &state(current, name, channels),
                )
            };
            let without = compare(&known.sure);
            let Some(event) = &known.open else {
                without?;
                continue;
            };
            let mut after = known.sure.clone();
            event.apply(&mut after);
            match (without, compare(&after)) {
                (Ok(()), _) => {}
                (Err(_), Ok(())) if settle => known.sure = after,
                (Err(_), Ok(())) => {}
                (Err(a), Err(b)) => return Err(format!("{a}; with {event:?}: {b}")),
            }
            if settle {
                known.open = None;
            }
        }
        Ok(())
    }
}

/// The row of an entity, with every channel.
fn state(current: &Current, entity: &str, channels: &[ChannelRead]) -> Vec<Answered> {
    current.scan(&StreamScan {
        table: TableId(0),
        floor: i64::MIN,
        entities: Entities::In(vec![entity.to_string()]),
        range: TsRange::ALL,
        channels: channels.to_vec(),
        output: channels.len(),
        filled: false,
        predicate: None,
        limit: None,
    })
}
