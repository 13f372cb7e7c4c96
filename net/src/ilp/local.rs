//! A catalog in memory that answers the parser as an engine would, for fuzzing and tests.

use super::bad::BadLine;
use super::buffer::LineBuffer;
use super::parser::{IlpOptions, Parser, Step};
use super::table::ShardWrite;
use std::sync::Arc;
use strandline_core::ids::{ColumnId, TableId};
use strandline_core::limits::Limits;
use strandline_core::schema::{Catalog, ColumnDef, ColumnSpec, Family, Label, TableDef};

/// Tables in memory.
#[derive(Clone, Debug, Default)]
pub struct LocalCatalog {
    tables: Vec<TableDef>,
    version: u64,
}

impl LocalCatalog {
    /// With these tables.
    pub fn new(tables: Vec<TableDef>) -> Self {
        LocalCatalog { tables, version: 1 }
    }

    /// The tables now.
    pub fn catalog(&self) -> Arc<Catalog> {
        let tables = self.tables.iter().cloned().map(Arc::new);
        Arc::new(Catalog::new(self.version, tables))
    }

    /// What `Engine::ensure_columns` does.
    pub fn ensure(&mut self, table: &str, columns: &[ColumnSpec]) -> Arc<TableDef> {
        let mut changed = false;
        let at = match self.tables.iter().position(|t| t.name == table) {
            Some(at) => at,
            None => {
                changed = true;
                self.tables.push(TableDef {
                    id: TableId(self.tables.len() as u32 + 1),
                    name: table.to_owned(),
                    family: Family::Timeseries,
                    columns: Vec::new(),
                    entity_uuid: false,
                    options: Default::default(),
                    next_column: ColumnId::FIRST_USER,
                });
                self.tables.len() - 1
            }
        };
        let def = &mut self.tables[at];
        for spec in columns {
            match def.columns.iter_mut().find(|c| c.name == spec.name) {
                Some(column) if !column.declared && widens(column.label, spec.label) => {
                    changed = true;
                    column.label = spec.label;
                }
                Some(_) => {}
                None => {
                    changed = true;
                    def.columns.push(ColumnDef {
                        id: def.next_column,
                        name: spec.name.clone(),
                        label: spec.label,
                        fill: spec.fill,
                        declared: spec.declared,
                    });
                    def.next_column = ColumnId(def.next_column.0 + 1);
                }
            }
        }
        self.version += u64::from(changed);
        Arc::new(def.clone())
    }

    /// Parses chunks as they would come from a socket, one read each, and everything of them at the end.
    pub fn run<'a>(
        &mut self,
        limits: &Arc<Limits>,
        options: IlpOptions,
        shards: u16,
        chunks: impl IntoIterator<Item = &'a [u8]>,
        now_ms: i64,
        report: &mut dyn FnMut(&BadLine, &[u8]),
    ) -> Vec<ShardWrite> {
        let mut parser = Parser::new(limits.clone(), options, shards, self.catalog());
        let mut input = LineBuffer::new(limits.ilp_line_bytes);
        let mut out = Vec::new();
        let mut chunks = chunks.into_iter();
        let mut ended = false;
        while !ended {
            match chunks.next() {
                Some(chunk) => input.push(chunk),
                None => {
                    input.finish();
                    ended = true;
                }
            }
            loop {
                match parser.step(&mut input, now_ms, report) {
                    Step::Drained => break,
                    Step::More => {}
                    Step::Full => out.append(&mut parser.take()),
                    Step::Needs { table, columns } => {
                        let def = self.ensure(&table, &columns);
                        parser.install(def);
                    }
                }
            }
        }
        out.append(&mut parser.take());
        out
    }
}

/// Whether a label of line protocol's becomes wider by another. Text and numbers never meet.
fn widens(from: Label, to: Label) -> bool {
    let width = |label| match label {
        Label::Bool => Some(1),
        Label::Int => Some(2),
        Label::Double => Some(3),
        Label::Timestamp | Label::Text { .. } => None,
    };
    matches!((width(from), width(to)), (Some(from), Some(to)) if from < to)
}

/// For `cargo fuzz`: any bytes, cut at any place, must neither panic nor lose count of the lines.
pub fn fuzz_entry(data: &[u8]) {
    let limits = Arc::new(Limits {
        ilp_line_bytes: 1024,
        ilp_fields: 8,
        ..Limits::default()
    });
    let (cut, lines) = data.split_first().unwrap_or((&1, &[]));
    let options = IlpOptions {
        store_tags: cut % 2 == 1,
        ..IlpOptions::default()
    };
    let mut bad = 0;
    let mut run = |size: usize| {
        bad = 0;
        LocalCatalog::default()
            .run(
                &limits,
                options.clone(),
                2,
                lines.chunks(size.max(1)),
                0,
                &mut |_, _| bad += 1,
            )
            .iter()
            .map(|w| w.batch.rows())
            .sum::<usize>()
    };
    let whole = run(lines.len());
    let chunked = run(usize::from(*cut));
    assert_eq!(whole, chunked, "the way the bytes are cut changes the rows");
}
