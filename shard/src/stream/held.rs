//! Entities of a MUTABLE table that a DELETE is deciding on. Until it has logged what it decided, no other
//! write of the entity goes to the log: the tombstone stands at the newest ts that is there, and none that
//! may yet fail.

use super::StreamTable;
use futures_channel::oneshot;
use std::cell::RefCell;
use std::rc::Rc;
use strandline_core::routing::hash64;
use strandline_core::stream::batch::StreamBatch;

/// Which entities, by number.
#[derive(Debug, Default)]
pub(super) struct Held {
    entities: RefCell<Vec<u32>>,
    /// Those that wait for a change of these, in the order they came.
    waiting: RefCell<Vec<oneshot::Sender<()>>>,
}

/// One entity, held until this is dropped.
pub struct Hold {
    table: Rc<StreamTable>,
    entity: u32,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let held = &self.table.held;
        held.entities.borrow_mut().retain(|&e| e != self.entity);
        // All look again, whatever else is held: one whose entity is free goes on.
        for waiter in held.waiting.take() {
            let _ = waiter.send(());
        }
    }
}

impl StreamTable {
    /// Whether some entity of the batch is held. [`StreamTable::wait_for_held`] then waits for a change.
    pub fn holds_any(&self, batch: &StreamBatch) -> bool {
        let held = self.held.entities.borrow();
        if held.is_empty() {
            return false;
        }
        let state = self.state.borrow();
        let mut ids = (0..batch.entities.len()).filter_map(|i| {
            let (name, hash) = (batch.entities.get_bytes(i), batch.entity_hashes[i]);
            state.dictionary.get(name, hash)
        });
        ids.any(|id| held.contains(&id))
    }

    /// Waits until the entities that are held have changed. Nothing may be awaited since the look at them.
    pub async fn wait_for_held(&self) {
        let (tx, changed) = oneshot::channel();
        self.held.waiting.borrow_mut().push(tx);
        let _ = changed.await;
    }

    /// Holds an entity; `None`: the table has none of that name, or it is held already.
    pub fn hold(self: &Rc<Self>, entity: &str) -> Option<Hold> {
        let id = self.number_of(entity)?;
        let mut held = self.held.entities.borrow_mut();
        if held.contains(&id) {
            return None;
        }
        held.push(id);
        Some(Hold {
            table: self.clone(),
            entity: id,
        })
    }

    /// The number of an entity, if the table has one of that name.
    pub fn number_of(&self, entity: &str) -> Option<u32> {
        let name = entity.as_bytes();
        self.state.borrow().dictionary.get(name, hash64(name))
    }
}
