//! Tails within their share of memory: those that nobody asks for are given up, and the newest samples of
//! their channels are looked up in memtables, footers and blocks from then on, until the next start.

use super::StreamTable;
use std::cmp::Reverse;
use strandline_core::ids::ColumnId;
use strandline_core::scan::ChannelRead;
use strandline_core::stream::tails::TailCost;

/// Of `costs`, those to give up so that what is left is some way below `most`: first what was asked for
/// longest ago, and of those the largest.
pub fn excess<T>(mut costs: Vec<(T, TailCost)>, most: usize) -> Vec<(T, ColumnId)> {
    let all: usize = costs.iter().map(|c| c.1.bytes).sum();
    if all <= most {
        return Vec::new();
    }
    costs.sort_by_key(|(_, c)| (c.asked_ms, Reverse(c.bytes)));
    // Below it, so that this is not done again at the next sample.
    let (mut left, enough) = (all, most - most / 8);
    let taken = costs.into_iter().take_while(|(_, c)| {
        let over = left > enough;
        left -= c.bytes.min(left);
        over
    });
    taken.map(|(table, c)| (table, c.column)).collect()
}

impl StreamTable {
    /// Bounds the tails of this table alone: what a start keeps to before all tables are there.
    pub fn set_tails_bound(&self, bytes: usize) {
        self.state.borrow_mut().tails_most = bytes;
    }

    /// What the tails cost that may be given up: none of a MUTABLE table, whose DELETE needs them.
    pub fn tail_costs(&self) -> Vec<TailCost> {
        let state = self.state.borrow();
        match state.def.options.mutable {
            true => Vec::new(),
            false => state.tails.costs().collect(),
        }
    }

    /// Gives a channel's tails up.
    pub fn give_up_tails(&self, channel: ColumnId) {
        self.state.borrow_mut().tails.give_up(channel);
    }

    /// How many channels' tails were given up.
    pub fn tails_given_up(&self) -> usize {
        self.state.borrow().tails.given_up()
    }

    /// Gives tails up when there are more than [`StreamTable::set_tails_bound`] said.
    pub(super) fn keep_tails_within_bound(&self) {
        let most = {
            let state = self.state.borrow();
            if state.tails.memory_bytes() <= state.tails_most {
                return;
            }
            state.tails_most
        };
        let costs = self.tail_costs().into_iter().map(|c| ((), c));
        for ((), channel) in excess(costs.collect(), most) {
            self.give_up_tails(channel);
        }
    }

    /// Whether the tails know all of these channels. Notes that they were asked for.
    pub(super) fn tails_know(&self, reads: &[ChannelRead]) -> bool {
        let now_ms = self.env.clock.now_ms();
        let state = self.state.borrow();
        let tails = reads.iter().filter_map(|r| state.tails.column(r.column));
        let mut all = true;
        for tail in tails {
            tail.note_asked(now_ms);
            all &= !tail.is_given_up();
        }
        all
    }
}
