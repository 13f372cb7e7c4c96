//! The device shadow: each channel's newest sample. Without a bound on time it comes from the tails alone,
//! whatever the length of the history; only long texts, which the tails do not keep, are looked up there, and
//! channels whose tails were given up (see `budget`).

use super::scan::RowBuilder;
use super::source::Reader;
use super::{EntityList, StreamTable};
use crate::store::BatchSink;
use strandline_core::error::Result;
use strandline_core::ids::ColumnId;
use strandline_core::profile::ScanCounters;
use strandline_core::scan::{ChannelRead, Entities, LatestScan, TsRange};
use strandline_core::schema::Fill;
use strandline_core::value::{Cell, Kind, Value};

impl StreamTable {
    /// One row per entity that has a sample of the channels (of any channel, if none are named) in
    /// `from..=until`. Each row is one moment's; rows of a long answer may be of different moments.
    ///
    /// # Errors
    /// `XX001` for a damaged block, I/O errors, and what `out` answers.
    pub async fn latest(&self, scan: &LatestScan, out: &mut dyn BatchSink) -> Result<()> {
        if self.is_mutable() {
            return self.latest_state(scan, out).await;
        }
        let range = TsRange {
            from: scan.from.max(scan.floor),
            to: scan.until,
        };
        if range.is_empty() {
            return Ok(());
        }
        self.check_damage(&scan.entities, range)?;
        let reads: Vec<ChannelRead> = if scan.channels.is_empty() {
            super::snapshot::live_channels(&self.def())
                .into_iter()
                .map(|(column, kind)| ChannelRead {
                    column,
                    kind,
                    fill: Fill::None,
                })
                .collect()
        } else {
            scan.channels.clone()
        };
        let output = scan.channels.len();
        let mut rows = RowBuilder::new(reads[..output].iter().map(|c| c.kind).collect());
        // The newest sample of all is the newest since `from`, if it is not before it.
        let more = if range.to == i64::MAX && self.tails_hold() && self.tails_know(&reads) {
            self.latest_from_tails(&scan.entities, range, &reads, output, &mut rows, out)
                .await?
        } else {
            let entities = self.entity_list(&scan.entities).await;
            self.latest_within(&entities, range, &reads, output, &mut rows, out)
                .await?
        };
        if more && rows.rows() > 0 {
            out.push(rows.take()).await?;
        }
        Ok(())
    }

    /// False: the reader has enough.
    async fn latest_from_tails(
        &self,
        wanted: &Entities,
        range: TsRange,
        reads: &[ChannelRead],
        output: usize,
        rows: &mut RowBuilder,
        out: &mut dyn BatchSink,
    ) -> Result<bool> {
        const STEP: usize = 256;
        let list = match wanted {
            // In order of number, which is the order of the tails.
            Entities::All => None,
            Entities::In(_) => Some(self.entity_list(wanted).await),
        };
        let count = list
            .as_ref()
            .map_or_else(|| self.entities(), EntityList::len);
        let mut n = 0;
        while n < count {
            let mut long_text = None;
            {
                let state = self.state.borrow();
                let tails: Vec<_> = reads.iter().map(|c| state.tails.column(c.column)).collect();
                let end = count.min(n + STEP);
                while n < end && long_text.is_none() && !rows.is_full() {
                    let id = list.as_ref().map_or(n as u32, |l| l.id(n));
                    n += 1;
                    let sample = |c: usize| {
                        let known = tails[c].and_then(|t| t.get(id))?;
                        (known.0 >= range.from).then_some(known)
                    };
                    let Some(ts) = (0..reads.len()).filter_map(|c| Some(sample(c)?.0)).max() else {
                        continue;
                    };
                    if (0..output).any(|c| matches!(sample(c), Some((_, None)))) {
                        long_text = Some(id);
                        continue;
                    }
                    rows.row(state.dictionary.name(id), ts);
                    for (c, read) in reads[..output].iter().enumerate() {
                        let known = sample(c).and_then(|(ts, cell)| Some((ts, cell?)));
                        rows.cell(c, fresh(read, ts, known));
                    }
                }
            }
            if let Some(id) = long_text {
                let one = EntityList::In(vec![id]);
                if !(self.latest_within(&one, range, reads, output, rows, out)).await? {
                    return Ok(false);
                }
            }
            if rows.is_full() && !out.push(rows.take()).await? {
                return Ok(false);
            }
            self.env.breathe().await;
        }
        out.note(&ScanCounters {
            shards: 1,
            tails: count as u64,
            ..ScanCounters::default()
        });
        Ok(true)
    }

    /// False: the reader has enough.
    async fn latest_within(
        &self,
        entities: &EntityList,
        range: TsRange,
        reads: &[ChannelRead],
        output: usize,
        rows: &mut RowBuilder,
        out: &mut dyn BatchSink,
    ) -> Result<bool> {
        let channels: Vec<(ColumnId, Kind)> = reads.iter().map(|c| (c.column, c.kind)).collect();
        let snapshot = self.snapshot(entities, range, Some(&channels));
        let mut reader = Reader::new(snapshot, channels);
        if entities.is_all() {
            reader.index(&self.env).await;
        }
        let mut samples: Vec<Option<(i64, Value)>> = Vec::new();
        for n in 0..entities.len() {
            let Some(e) = self.entity_ref(entities, n) else {
                continue;
            };
            samples.clear();
            for c in 0..reads.len() {
                samples.push(self.last_sample(&mut reader, &e, c, range).await?);
            }
            if let Some(ts) = samples.iter().flatten().map(|s| s.0).max() {
                rows.row(&e.name, ts);
                for (c, read) in reads[..output].iter().enumerate() {
                    let sample = samples[c].as_ref().map(|(ts, value)| {
                        let cell = match value {
                            Value::Null => Cell::Null,
                            Value::F64(x) => Cell::F64(*x),
                            Value::Str(s) => Cell::Str(s),
                        };
                        (*ts, cell)
                    });
                    rows.cell(c, fresh(read, ts, sample));
                }
                if rows.is_full() && !out.push(rows.take()).await? {
                    return Ok(false);
                }
            }
            if n % 16 == 0 {
                self.env.breathe().await;
            }
        }
        out.note(&reader.counters());
        Ok(true)
    }
}

/// The sample's cell, unless its channel is held and it is stale at the row's ts.
fn fresh<'a>(read: &ChannelRead, row_ts: i64, sample: Option<(i64, Cell<'a>)>) -> Cell<'a> {
    match (sample, read.fill) {
        (None, _) => Cell::Null,
        (
            Some((ts, _)),
            Fill::Hold {
                staleness_ms: Some(most),
            },
        ) if row_ts.saturating_sub(ts) > most => Cell::Null,
        (Some((_, cell)), _) => cell,
    }
}
