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

#[cfg(test)]
mod tests {
    use crate::bind::tests::plan;
    use crate::plan::Plan;
    use strandline_core::schema::Fill;
    use strandline_core::schema_change::TableChange;

    #[test]
    fn create_with_options() {
        let options = |with: &str| {
            let Plan::CreateTable { spec, .. } =
                plan(&format!("CREATE TABLE t (a INT FILL HOLD) WITH ({with})"))
            else {
                panic!()
            };
            (spec.entity_uuid, spec.options)
        };
        const DAY: i64 = 86_400_000;
        let (uuid, o) = options("RETENTION 90 d, Entity UUID, dedup, ENTITY TAG \"Host\"");
        assert!(uuid && o.dedup && !o.mutable);
        assert_eq!(o.retention_ms, Some(90 * DAY));
        assert_eq!(o.entity_tag.as_deref(), Some("Host"));
        assert_eq!(o.expired_before_ms, None);
        assert_eq!(
            options("RETENTION 1day 12 h").1.retention_ms,
            Some(DAY + DAY / 2)
        );
        let (uuid, o) = options("MUTABLE, ENTITY TAG Host");
        assert!(!uuid && o.mutable && !o.dedup);
        assert_eq!(o.entity_tag.as_deref(), Some("host"));
    }

    #[test]
    fn alter_timeseries() {
        let changes = |sql: &str| match plan(&format!("ALTER TABLE tele {sql}")) {
            Plan::AlterTable { changes, .. } => changes,
            other => panic!("{other:?}"),
        };
        let hold = |staleness_ms| Fill::Hold { staleness_ms };
        let fill = |fill| TableChange::SetFill {
            name: "event".into(),
            fill,
        };
        assert_eq!(
            changes(
                "ALTER COLUMN event SET FILL HOLD STALENESS 1 min, ALTER event SET FILL HOLD, \
                 ALTER COLUMN event SET FILL NONE, SET RETENTION 30 d, SET RETENTION NONE"
            ),
            [
                fill(hold(Some(60_000))),
                fill(hold(None)),
                fill(Fill::None),
                TableChange::SetRetention {
                    retention_ms: Some(30 * 86_400_000)
                },
                TableChange::SetRetention { retention_ms: None },
            ]
        );
        let added = changes("ADD a INT FILL HOLD STALENESS 5 s, DROP COLUMN speed, ADD speed TEXT");
        assert!(
            matches!(&added[0], TableChange::AddColumn { column, .. } if column.fill == hold(Some(5000)))
        );
        assert_eq!(added.len(), 3);
    }
}
