//! One aggregate of a select list: over which channel, and what type it answers.

use super::Binder;
use super::filter::StreamColumn;
use crate::ast::{AggregateCall, Select};
use crate::types::{Datum, SqlType};
use strandline_core::error::{Result, SqlState};
use strandline_core::ids::ColumnId;
use strandline_core::scan::{Aggregate, AggregateFn, BucketFill, Quantile};
use strandline_core::schema::{Label, TableDef};
use strandline_core::value::Kind;

/// Aggregates of numbers that answer DOUBLE.
fn answers_double(func: AggregateFn) -> bool {
    use AggregateFn as F;
    func.is_moment()
        || matches!(
            func,
            F::Sum | F::Avg | F::Percentile(_) | F::ApproxPercentile(_)
        )
}

impl<'a> Binder<'a> {
    /// An aggregate and the type of its answer. min, max, first and last keep their column's label, sum and
    /// avg answer DOUBLE, count INT; a FILL that can put a fraction between makes INT and BOOL a DOUBLE.
    pub(super) fn aggregate(
        &self,
        def: &'a TableDef,
        select: &Select,
        call: &AggregateCall,
        fill: Option<BucketFill>,
    ) -> Result<(Aggregate, SqlType)> {
        let fraction = fill.is_some_and(BucketFill::makes_fractions);
        let count_type = if fraction {
            SqlType::Float8
        } else {
            SqlType::Int8
        };
        let rows = Aggregate {
            func: AggregateFn::Count,
            column: None,
        };
        let Some(name) = &call.column else {
            return Ok((rows, count_type));
        };
        let channel = match self.stream_column(def, select, name)? {
            StreamColumn::Channel(c) => c,
            // Every row has an entity and a ts.
            _ if call.func == AggregateFn::Count => return Ok((rows, count_type)),
            _ => {
                let what = format!("{}({})", call.name, name.column.text);
                return Err(self.not_answered(def, call.at, &what));
            }
        };
        let func = self.with_share(call)?;
        let label = SqlType::of(channel.label);
        let ty = match func {
            AggregateFn::Count => count_type,
            _ if answers_double(func) => {
                if !matches!(channel.label, Label::Double | Label::Int) {
                    return Err(self.error(
                        SqlState::UndefinedFunction,
                        call.at,
                        format!(
                            "{}() does not take {} column \"{}\" of table \"{}\"",
                            call.name,
                            channel.label.name(),
                            channel.name,
                            def.name
                        ),
                    ));
                }
                SqlType::Float8
            }
            _ => match (label, fill) {
                (SqlType::Int8 | SqlType::Bool, _) if fraction => SqlType::Float8,
                (SqlType::Bool, Some(BucketFill::Number(n))) if n != 0.0 && n != 1.0 => {
                    SqlType::Float8
                }
                (SqlType::Text, Some(BucketFill::Number(_))) => {
                    return Err(self.error(
                        SqlState::DatatypeMismatch,
                        call.at,
                        format!(
                            "FILL with a number does not fit TEXT column \"{}\"",
                            channel.name
                        ),
                    ));
                }
                _ => label,
            },
        };
        let column: Option<(ColumnId, Kind)> = Some((channel.id, channel.label.kind()));
        Ok((Aggregate { func, column }, ty))
    }
}

impl Binder<'_> {
    /// The function with the share of its percentile.
    fn with_share(&self, call: &AggregateCall) -> Result<AggregateFn> {
        let Some((share, descending)) = &call.share else {
            return Ok(call.func);
        };
        let number = match self.constant(share, SqlType::Float8)? {
            Datum::Int(i) => Some(i as f64),
            Datum::Float(x) => Some(x),
            Datum::Text {
                text,
                unknown: true,
            } => text.trim().parse().ok(),
            Datum::Null if self.describing() => Some(0.0),
            _ => None,
        };
        let q = number
            .and_then(|x| Quantile::new(x, *descending))
            .ok_or_else(|| {
                let message = format!("{} takes a share between 0 and 1", call.name);
                self.error(SqlState::InvalidParameterValue, share.at, message)
            })?;
        Ok(match call.func {
            AggregateFn::ApproxPercentile(_) => AggregateFn::ApproxPercentile(q),
            _ => AggregateFn::Percentile(q),
        })
    }
}
