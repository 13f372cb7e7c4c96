//! `LATEST ON ts PARTITION BY entity`: the device shadow.

use super::Answered;
use super::facts::Contents;
use strandline_core::ids::ColumnId;
use strandline_core::scan::{ChannelRead, LatestScan, TsRange};
use strandline_core::schema::Fill;
use strandline_core::value::Value;

/// The answer, by entity: each channel's newest sample in the range (of equal ts the last to arrive), at the
/// ts of the newest of them.
pub fn latest(contents: &Contents, q: &LatestScan) -> Vec<Answered> {
    let contents = contents.clone().since(q.floor).of_entities(&q.entities);
    let range = TsRange {
        from: q.from,
        to: q.until,
    };
    let mut out = Vec::new();
    for (entity, rows) in &contents.entities {
        let rows: Vec<_> = rows.iter().filter(|(ts, _)| range.contains(**ts)).collect();
        let newest = |column: ColumnId| -> Option<(i64, Value)> {
            let mut back = rows.iter().rev();
            back.find_map(|(ts, cells)| Some((**ts, cells.get(&column)?.last()?.clone())))
        };
        // Without channels the newest row of all counts.
        let columns: Vec<ColumnId> = match q.channels.is_empty() {
            true => rows
                .iter()
                .flat_map(|(_, cells)| cells.keys().copied())
                .collect(),
            false => q.channels.iter().map(|c| c.column).collect(),
        };
        let samples = columns.iter().filter_map(|&c| newest(c));
        let Some(ts) = samples.map(|(ts, _)| ts).max() else {
            continue;
        };
        let cell = |read: &ChannelRead| match (newest(read.column), read.fill) {
            (None, _) => Value::Null,
            (
                Some((at, _)),
                Fill::Hold {
                    staleness_ms: Some(most),
                },
            ) if ts - at > most => Value::Null,
            (Some((_, value)), _) => value,
        };
        out.push((entity.clone(), ts, q.channels.iter().map(cell).collect()));
    }
    out
}
