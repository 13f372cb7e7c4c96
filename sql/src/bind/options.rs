//! `WITH (…)` on CREATE TABLE and its counterparts in ALTER TABLE: what options go together.

use super::Binder;
use crate::ast::{Create, TableOption};
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::schema::{Family, StreamOptions};
use strandline_core::schema_change::{NO_RETENTION, NO_STALENESS};
use strandline_core::time::DAY_MS;

impl Binder<'_> {
    /// Whether the table takes UUIDs alone as entities, and its other options.
    pub(super) fn table_options(
        &self,
        create: &Create,
        family: Family,
    ) -> Result<(bool, StreamOptions)> {
        let (mut uuid, mut options) = (false, StreamOptions::default());
        for (i, (option, at)) in create.options.iter().enumerate() {
            let (at, name) = (*at, option.name());
            if family == Family::Rows {
                return Err(self.not_on_rows(at, &format!("WITH ({name})"), &create.table));
            }
            let earlier = &create.options[..i];
            if earlier.iter().any(|(o, _)| o.name() == name) {
                return Err(self.error(
                    SqlState::InvalidParameterValue,
                    at,
                    format!("{name} is given twice for table \"{}\"", create.table.text),
                ));
            }
            match option {
                TableOption::EntityUuid => uuid = true,
                TableOption::EntityTag(tag) => options.entity_tag = Some(tag.text.clone()),
                TableOption::Retention(ms) => {
                    options.retention_ms = Some(self.retention(*ms, at, &create.table.text)?);
                }
                TableOption::Mutable => options.mutable = true,
                TableOption::Dedup => options.dedup = true,
            }
            // The later of two that exclude each other is where the statement goes wrong.
            for (other, there, why) in [
                ("RETENTION", options.retention_ms.is_some(), NO_RETENTION),
                ("DEDUP", options.dedup, NO_DEDUP),
            ] {
                if options.mutable && there {
                    return Err(self.mutable_excludes(other, at, &create.table.text, why));
                }
            }
        }
        if options.mutable
            && let Some((_, at)) = create.columns.iter().find_map(|c| c.staleness)
        {
            let table = &create.table.text;
            return Err(self.mutable_excludes("STALENESS", at, table, NO_STALENESS));
        }
        Ok((uuid, options))
    }

    /// A window of RETENTION: at least a day, because whole UTC days expire.
    pub(super) fn retention(&self, ms: i64, at: u32, table: &str) -> Result<i64> {
        if ms >= DAY_MS {
            return Ok(ms);
        }
        Err(self
            .error(
                SqlState::InvalidParameterValue,
                at,
                format!("the RETENTION of table \"{table}\" must be at least 1 day"),
            )
            .hint("whole UTC days expire: write RETENTION 1 d or more (a bare number is ms)"))
    }

    /// A clause that does not go with MUTABLE.
    fn mutable_excludes(&self, clause: &str, at: u32, table: &str, why: &str) -> Error {
        self.error(
            SqlState::InvalidTableDefinition,
            at,
            format!("MUTABLE and {clause} exclude each other on table \"{table}\""),
        )
        .hint(why)
    }
}

/// Why DEDUP does not go with MUTABLE.
const NO_DEDUP: &str = "a mutable table keeps one state per entity, so a retry is harmless already";
