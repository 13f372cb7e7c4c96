//! `/metrics` in Prometheus' text format, version 0.0.4: <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use super::HttpContext;
use super::write::{Api, Rejection};
use crate::counters::{LATENCY_BOUNDS_US, StatementKind};
use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use strandline_core::error::Result;
use strandline_core::limits::Limits;
use strandline_shard::api::{ShardStatus, TableStatus};

/// Tables that are listed one by one; a scrape asks every shard once for each.
const MAX_TABLES: usize = 200;

const COUNTER: &str = "counter";
const GAUGE: &str = "gauge";

struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing into a String cannot fail.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (i, (label, text)) in labels.iter().enumerate() {
            self.0.push(if i == 0 { '{' } else { ',' });
            self.0.push_str(label);
            self.0.push_str("=\"");
            for c in text.chars() {
                match c {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    c => self.0.push(c),
                }
            }
            self.0.push('"');
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

/// The whole page.
pub async fn render(cx: &HttpContext) -> Result<String> {
    let shards = cx.engine.shard_status().await?;
    let catalog = cx.engine.catalog();
    let mut tables = Vec::new();
    for def in catalog.tables().take(MAX_TABLES) {
        // A table that is dropped meanwhile is left out.
        if let Ok(status) = cx.engine.table_status(def.id).await {
            tables.push((def.name.as_str(), def.family.name(), status));
        }
    }
    let mut page = Page(String::with_capacity(32 << 10));
    page.one(
        "strandline_ready",
        GAUGE,
        "1 while writes are taken.",
        u8::from(cx.engine.ready().is_ok()),
    );
    page.one(
        "strandline_tables",
        GAUGE,
        "Tables of the database.",
        catalog.len(),
    );
    shard_families(&mut page, &shards);
    table_families(&mut page, &tables);
    sql_families(&mut page, cx);
    ilp_families(&mut page, cx);
    front_families(&mut page, cx);
    limit_families(&mut page, cx.engine.limits());
    Ok(page.0)
}

fn shard_families(page: &mut Page, shards: &[ShardStatus]) {
    type Get = fn(&ShardStatus) -> u64;
    let families: &[(&str, &str, &str, Get)] = &[
        (
            "strandline_shard_writable",
            GAUGE,
            "1 while the shard takes writes.",
            |s| u64::from(s.write_refusal.is_none()),
        ),
        (
            "strandline_log_commits_total",
            COUNTER,
            "Commits of the log (fsyncs).",
            |s| s.commits,
        ),
        (
            "strandline_log_records_total",
            COUNTER,
            "Records written to the log.",
            |s| s.records,
        ),
        (
            "strandline_log_written_bytes_total",
            COUNTER,
            "Bytes written to the log.",
            |s| s.log_written_bytes,
        ),
        (
            "strandline_log_bytes",
            GAUGE,
            "Bytes of log that a start would replay.",
            |s| s.log_bytes,
        ),
        (
            "strandline_stream_rows_total",
            COUNTER,
            "Rows written to timeseries tables.",
            |s| s.stream_rows,
        ),
        (
            "strandline_keyed_versions_total",
            COUNTER,
            "Versions written to rows tables.",
            |s| s.keyed_versions,
        ),
        (
            "strandline_memtable_bytes",
            GAUGE,
            "Bytes of memtables, frozen ones too.",
            |s| s.memtable_bytes,
        ),
        ("strandline_tail_bytes", GAUGE, "Bytes of tails.", |s| {
            s.tail_bytes
        }),
        (
            "strandline_tails_given_up",
            GAUGE,
            "Channels whose tails have no room in memory.",
            |s| s.tails_given_up,
        ),
        (
            "strandline_name_bytes",
            GAUGE,
            "Bytes of entity names.",
            |s| s.name_bytes,
        ),
        (
            "strandline_cache_bytes",
            GAUGE,
            "Bytes of the block cache.",
            |s| s.cache_bytes,
        ),
        ("strandline_entities", GAUGE, "Entities known.", |s| {
            s.entities
        }),
        ("strandline_segments", GAUGE, "Segments.", |s| s.segments),
        (
            "strandline_damaged_segments",
            GAUGE,
            "Segments that cannot be read, or of which a read has met damage since the start.",
            |s| s.damaged_segments,
        ),
        (
            "strandline_segment_bytes",
            GAUGE,
            "Bytes of segments.",
            |s| s.segment_bytes,
        ),
        ("strandline_flushes_total", COUNTER, "Flushes done.", |s| {
            s.flushes
        }),
        ("strandline_merges_total", COUNTER, "Merges done.", |s| {
            s.merges
        }),
        (
            "strandline_merge_debt_bytes",
            GAUGE,
            "Bytes that merges still have to rewrite.",
            |s| s.merge_debt_bytes,
        ),
        (
            "strandline_flushed_bytes_total",
            COUNTER,
            "Bytes of segments that flushes wrote.",
            |s| s.flushed_bytes,
        ),
        (
            "strandline_merge_read_bytes_total",
            COUNTER,
            "Bytes of segments that merges read.",
            |s| s.merge_read_bytes,
        ),
        (
            "strandline_merge_written_bytes_total",
            COUNTER,
            "Bytes of segments that merges wrote.",
            |s| s.merge_written_bytes,
        ),
        (
            "strandline_blocks_encoded_total",
            COUNTER,
            "Blocks that merges encoded anew.",
            |s| s.blocks_encoded,
        ),
        (
            "strandline_blocks_copied_total",
            COUNTER,
            "Blocks that merges took over as they stood.",
            |s| s.blocks_copied,
        ),
        (
            "strandline_expired_segments_total",
            COUNTER,
            "Segments that RETENTION took away as a whole.",
            |s| s.expired_segments,
        ),
        (
            "strandline_expired_bytes_total",
            COUNTER,
            "Bytes of segments that RETENTION took away as a whole.",
            |s| s.expired_bytes,
        ),
        (
            "strandline_held_segments",
            GAUGE,
            "Segments replaced or expired whose files stay for readers.",
            |s| s.held_segments,
        ),
        (
            "strandline_writes_slowed_total",
            COUNTER,
            "Writes that were slowed because flushes or merges lag behind.",
            |s| s.writes_slowed,
        ),
        (
            "strandline_writes_slowed_us_total",
            COUNTER,
            "Microseconds that writes were slowed, all together.",
            |s| s.slowed_us,
        ),
        (
            "strandline_slow_down_us",
            GAUGE,
            "Microseconds that a write would be slowed now.",
            |s| s.slow_down_us,
        ),
        (
            "strandline_writers_waiting",
            GAUGE,
            "Writers that wait for memory or for the log.",
            |s| s.writers_waiting,
        ),
        (
            "strandline_messages_total",
            COUNTER,
            "Messages from other executors.",
            |s| s.messages,
        ),
    ];
    for (name, kind, help, get) in families {
        page.family(name, kind, help);
        for s in shards {
            page.sample(name, &[("shard", &s.shard.to_string())], get(s));
        }
    }
    let name = "strandline_log_commit_seconds";
    page.family(name, "summary", "Time of a log commit, write and fsync.");
    for s in shards {
        let shard = s.shard.to_string();
        let [count, sum, p50, p99, _] = s.commit_us;
        page.sample(
            name,
            &[("shard", &shard), ("quantile", "0.5")],
            seconds(p50),
        );
        page.sample(
            name,
            &[("shard", &shard), ("quantile", "0.99")],
            seconds(p99),
        );
        page.sample(
            "strandline_log_commit_seconds_sum",
            &[("shard", &shard)],
            seconds(sum),
        );
        page.sample(
            "strandline_log_commit_seconds_count",
            &[("shard", &shard)],
            count,
        );
    }
    let name = "strandline_log_commit_seconds_max";
    page.family(name, GAUGE, "The longest log commit.");
    for s in shards {
        page.sample(
            name,
            &[("shard", &s.shard.to_string())],
            seconds(s.commit_us[4]),
        );
    }
}

fn table_families(page: &mut Page, tables: &[(&str, &str, TableStatus)]) {
    type Get = fn(&TableStatus) -> u64;
    let families: &[(&str, &str, Get)] = &[
        (
            "strandline_table_rows",
            "Stored rows, duplicates and old versions too.",
            |t| t.rows,
        ),
        (
            "strandline_table_segment_bytes",
            "Bytes of the table's segments.",
            |t| t.segment_bytes,
        ),
        (
            "strandline_table_memtable_bytes",
            "Bytes of the table's memtables.",
            |t| t.memtable_bytes,
        ),
        ("strandline_table_segments", "Segments of the table.", |t| {
            t.segments
        }),
    ];
    for (name, help, get) in families {
        page.family(name, GAUGE, help);
        for (table, family, status) in tables {
            page.sample(name, &[("table", table), ("family", family)], get(status));
        }
    }
}

fn sql_families(page: &mut Page, cx: &HttpContext) {
    let sql = &cx.sql;
    for (name, help, counter) in [
        (
            "strandline_pg_connections_total",
            "PostgreSQL connections that finished their start-up.",
            &sql.connections_total,
        ),
        (
            "strandline_pg_cancels_total",
            "Cancel requests that found their session.",
            &sql.cancels_total,
        ),
        (
            "strandline_pg_received_bytes_total",
            "Bytes received over PostgreSQL's protocol.",
            &sql.received_bytes,
        ),
        (
            "strandline_pg_sent_bytes_total",
            "Bytes sent over PostgreSQL's protocol.",
            &sql.sent_bytes,
        ),
    ] {
        page.one(name, COUNTER, help, load(counter));
    }
    page.family(
        "strandline_errors_total",
        COUNTER,
        "Errors told to SQL clients, by SQLSTATE class.",
    );
    for (class, count) in sql.errors() {
        page.sample("strandline_errors_total", &[("class", class)], count);
    }
    page.family(
        "strandline_statement_seconds",
        "histogram",
        "Time of a statement, by kind.",
    );
    for kind in StatementKind::ALL {
        let reading = sql.latency(kind);
        let mut cumulative = 0;
        for (i, count) in reading.buckets.iter().enumerate() {
            cumulative += count;
            let bound = LATENCY_BOUNDS_US
                .get(i)
                .map_or("+Inf".into(), |us| seconds(*us).to_string());
            page.sample(
                "strandline_statement_seconds_bucket",
                &[("kind", kind.name()), ("le", &bound)],
                cumulative,
            );
        }
        page.sample(
            "strandline_statement_seconds_sum",
            &[("kind", kind.name())],
            seconds(reading.sum_us),
        );
        page.sample(
            "strandline_statement_seconds_count",
            &[("kind", kind.name())],
            cumulative,
        );
    }
}

fn ilp_families(page: &mut Page, cx: &HttpContext) {
    let ilp = &cx.ilp;
    for (name, kind, help, counter) in [
        (
            "strandline_ilp_connections_total",
            COUNTER,
            "Line-protocol connections accepted.",
            &ilp.connections_total,
        ),
        (
            "strandline_ilp_connections",
            GAUGE,
            "Line-protocol connections open.",
            &ilp.connections_open,
        ),
        (
            "strandline_ilp_received_bytes_total",
            COUNTER,
            "Bytes received over line protocol's own port.",
            &ilp.received_bytes,
        ),
        (
            "strandline_ilp_lines_total",
            COUNTER,
            "Lines read, bad and blank ones and HTTP's too.",
            &ilp.lines_total,
        ),
        (
            "strandline_ilp_in_flight_bytes",
            GAUGE,
            "Bytes of lines that are parsed and not durable yet.",
            &ilp.in_flight_bytes,
        ),
        (
            "strandline_ilp_rows_total",
            COUNTER,
            "Rows of line protocol that are durable, HTTP's too.",
            &ilp.rows_total,
        ),
        (
            "strandline_ilp_rows_lost_total",
            COUNTER,
            "Rows parsed and not written: dropped table or dead shard.",
            &ilp.rows_lost_total,
        ),
        (
            "strandline_ilp_retries_total",
            COUNTER,
            "Writes refused for want of disk or memory and tried again.",
            &ilp.retries_total,
        ),
    ] {
        page.one(name, kind, help, load(counter));
    }
    page.family(
        "strandline_ilp_bad_lines_total",
        COUNTER,
        "Lines refused, by reason.",
    );
    for (reason, count) in ilp.bad_lines() {
        page.sample(
            "strandline_ilp_bad_lines_total",
            &[("reason", reason.name())],
            count,
        );
    }
}

fn front_families(page: &mut Page, cx: &HttpContext) {
    page.one(
        "strandline_http_connections_total",
        COUNTER,
        "HTTP connections accepted.",
        load(&cx.counters.connections_total),
    );
    page.family(
        "strandline_http_answers_total",
        COUNTER,
        "HTTP answers, by class of status.",
    );
    for (class, count) in cx.counters.answers() {
        page.sample(
            "strandline_http_answers_total",
            &[("class", &format!("{class}xx"))],
            count,
        );
    }
    page.family(
        "strandline_http_writes_total",
        COUNTER,
        "Requests to write lines, by API.",
    );
    for api in [Api::V1, Api::V2] {
        let count = load(cx.counters.writes(api));
        page.sample(
            "strandline_http_writes_total",
            &[("api", api.name())],
            count,
        );
    }
    for (name, help, counter) in [
        (
            "strandline_http_body_bytes_total",
            "Bytes of bodies of lines, as they came.",
            &cx.counters.body_bytes,
        ),
        (
            "strandline_http_line_bytes_total",
            "Bytes of bodies of lines, unpacked.",
            &cx.counters.line_bytes,
        ),
    ] {
        page.one(name, COUNTER, help, load(counter));
    }
    page.family(
        "strandline_http_bodies_rejected_total",
        COUNTER,
        "Bodies of lines that were not taken, or not to their end, by reason.",
    );
    for why in Rejection::ALL {
        page.sample(
            "strandline_http_bodies_rejected_total",
            &[("reason", why.name())],
            load(cx.counters.rejected(why)),
        );
    }
    page.one(
        "strandline_connections",
        GAUGE,
        "Connections of all protocols.",
        cx.admission.open(),
    );
    page.one(
        "strandline_connections_refused_total",
        COUNTER,
        "Connections over the limit.",
        cx.admission.refused(),
    );
    if let Some(bytes) = resident_bytes() {
        page.one(
            "process_resident_memory_bytes",
            GAUGE,
            "Resident memory of the process.",
            bytes,
        );
    }
}

fn limit_families(page: &mut Page, limits: &Limits) {
    page.family("strandline_limit", GAUGE, "The limits in force.");
    for info in Limits::ALL {
        if let Some(value) = limits.get(info.name) {
            page.sample("strandline_limit", &[("name", info.name)], value);
        }
    }
}

/// The second number of `/proc/self/statm`, which counts pages.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    // SAFETY: sysconf has no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Some(pages * u64::try_from(page).ok()?)
}
