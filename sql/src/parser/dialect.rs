//! PostgreSQL's dialect with a bound on the parser's work.
//!
//! `sqlparser` tries one reading of a text and then another, one inside the other, so its time can double
//! with every level of nesting: sixty nested calls would keep a core busy for ever. It asks its dialect at every
//! operand, and there the work is counted.

use sqlparser::ast::Expr;
use sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use std::any::TypeId;
use std::cell::Cell;

/// `PostgreSqlDialect` that ends the parser, by the error of its recursion limit, after so many operands.
#[derive(Debug)]
pub(super) struct Bounded {
    inner: PostgreSqlDialect,
    left: Cell<u64>,
}

impl Bounded {
    /// With work for this many operands, those that are read again included.
    pub(super) fn new(operands: u64) -> Self {
        Self {
            inner: PostgreSqlDialect {},
            left: Cell::new(operands),
        }
    }
}

/// What PostgreSQL's dialect answers, asked of it.
macro_rules! as_inner {
    ($($name:ident($($arg:ident: $t:ty),*) -> $answer:ty;)*) => {
        $(fn $name(&self, $($arg: $t),*) -> $answer {
            self.inner.$name($($arg),*)
        })*
    };
}

impl Dialect for Bounded {
    fn dialect(&self) -> TypeId {
        self.inner.dialect()
    }

    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        match self.left.get().checked_sub(1) {
            Some(left) => {
                self.left.set(left);
                self.inner.parse_prefix(parser)
            }
            None => Some(Err(ParserError::RecursionLimitExceeded)),
        }
    }

    // PostgreSQL's is true, for `json_object('label': value)`: every argument would be read twice.
    fn supports_named_fn_args_with_expr_name(&self) -> bool {
        false
    }

    as_inner! {
        identifier_quote_style(identifier: &str) -> Option<char>;
        is_delimited_identifier_start(ch: char) -> bool;
        is_identifier_start(ch: char) -> bool;
        is_identifier_part(ch: char) -> bool;
        supports_unicode_string_literal() -> bool;
        is_reserved_for_identifier(kw: Keyword) -> bool;
        is_custom_operator_part(ch: char) -> bool;
        get_next_precedence(parser: &Parser) -> Option<Result<u8, ParserError>>;
        supports_filter_during_aggregation() -> bool;
        supports_group_by_expr() -> bool;
        prec_value(precedence: Precedence) -> u8;
        allow_extract_custom() -> bool;
        allow_extract_single_quotes() -> bool;
        supports_create_index_with_clause() -> bool;
        supports_explain_with_utility_options() -> bool;
        supports_listen_notify() -> bool;
        supports_factorial_operator() -> bool;
        supports_bitwise_shift_operators() -> bool;
        supports_comment_on() -> bool;
        supports_load_extension() -> bool;
        supports_named_fn_args_with_colon_operator() -> bool;
        supports_empty_projections() -> bool;
        supports_nested_comments() -> bool;
        supports_string_escape_constant() -> bool;
        supports_numeric_literal_underscores() -> bool;
        supports_array_typedef_with_brackets() -> bool;
        supports_geometric_types() -> bool;
        supports_set_names() -> bool;
        supports_alter_column_type_using() -> bool;
        supports_notnull_operator() -> bool;
        supports_interval_options() -> bool;
        supports_insert_table_alias() -> bool;
        supports_create_table_like_parenthesized() -> bool;
        supports_select_wildcard_with_alias() -> bool;
        supports_comma_separated_trim() -> bool;
        supports_xml_expressions() -> bool;
        supports_comment_optimizer_hint() -> bool;
    }
}
