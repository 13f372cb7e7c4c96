//! The keyed store against a model that is a list of versions.

use super::*;
use crate::segment::BlockCache;
use crate::store::Collect;
use crate::testing::{block_on, env};
use proptest::prelude::*;
use strandline_core::ids::TableId;
use strandline_core::keyed::ScanLayout;
use strandline_core::limits::Limits;
use strandline_core::scan::{CmpOp, FeedRange, KeyedColumn, KeyedFilter, KeyedOrder};
use strandline_core::schema::{ColumnDef, Family, Fill, Label};
use strandline_core::value::{Cell as C, Kind, Value};
use strandline_core::xid::Xid;

const A: ColumnId = ColumnId(64);
const B: ColumnId = ColumnId(65);

fn def() -> Arc<TableDef> {
    let column = |id, name: &str, label| ColumnDef {
        id,
        name: name.into(),
        label,
        fill: Fill::None,
        declared: true,
    };
    Arc::new(TableDef {
        id: TableId(1),
        name: "t".into(),
        family: Family::Rows,
        columns: vec![column(A, "a", Label::Int), column(B, "b", Label::TEXT)],
        entity_uuid: false,
        options: Default::default(),
        next_column: ColumnId(66),
    })
}

fn limits() -> Arc<Limits> {
    Arc::new(Limits {
        block_rows: 4,
        merge_fan_in: 2,
        ..Limits::default()
    })
}

fn context(limits: &Arc<Limits>) -> StoreContext {
    StoreContext {
        dir: "seg".into(),
        limits: limits.clone(),
        next_segment: Rc::new(Cell::new(1)),
        cache: BlockCache::new(1 << 20),
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert { a: Option<i8>, b: Option<u8> },
    Update { row: usize, a: i8 },
    Delete { row: usize },
    Freeze,
    Flush,
    Merge,
    Vacuum,
    Watermark(u8),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (proptest::option::of(-5i8..5), proptest::option::of(0u8..4)).prop_map(|(a, b)| Step::Insert { a, b }),
        6 => (0usize..20, -5i8..5).prop_map(|(row, a)| Step::Update { row, a }),
        2 => (0usize..20).prop_map(|row| Step::Delete { row }),
        1 => Just(Step::Freeze),
        2 => Just(Step::Flush),
        2 => Just(Step::Merge),
        1 => Just(Step::Vacuum),
        2 => (0u8..4).prop_map(Step::Watermark),
        1 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..60)
}

struct Bench {
    table: KeyedTable,
    env: Env,
    limits: Arc<Limits>,
    /// All versions that are not purged.
    model: Vec<Version>,
    watermark: Rev,
    next: u64,
    lsn: u64,
}

fn value(v: &Version, id: ColumnId) -> Value {
    v.value(id).clone()
}

impl Bench {
    fn newest(&self, key: &[u8], at: Rev) -> Option<&Version> {
        self.model
            .iter()
            .filter(|v| &*v.key == key && v.rev <= at)
            .max_by_key(|v| v.rev)
    }
    fn keys(&self) -> Vec<Box<[u8]>> {
        let mut keys: Vec<_> = self.model.iter().map(|v| v.key.clone()).collect();
        keys.sort();
        keys.dedup();
        keys
    }
    fn write(&mut self, mut version: Version) {
        self.next += 1;
        self.lsn += 1;
        version.rev = Rev(self.next);
        let shared = Rc::new(version.clone());
        self.table.stage(shared.clone());
        assert_eq!(
            self.table.newest_in_memory(&version.key).map(|v| v.rev),
            Some(version.rev)
        );
        self.table.apply(shared, Lsn(self.lsn));
        self.model.push(version);
    }
    fn pick(&self, row: usize) -> Option<Version> {
        let keys = self.keys();
        let key = keys.get(row % keys.len().max(1))?;
        self.newest(key, Rev::MAX).filter(|v| !v.deleted).cloned()
    }
    async fn flush_all(&self) {
        self.table.freeze();
        while let Some(done) = self.table.flush(self.watermark).await.unwrap() {
            self.table.install_flush(done);
        }
    }
    async fn step(&mut self, step: Step) {
        match step {
            Step::Insert { a, b } => {
                let xid =
                    Xid(0x0190_0000_0000_0000_0000_0000_0000_0000
                        + u128::from(self.next * 7919 % 1000));
                if self.newest(&xid.to_bytes(), Rev::MAX).is_some() {
                    return;
                }
                let mut values = Vec::new();
                values.extend(a.map(|a| (A, Value::F64(f64::from(a)))));
                values.extend(b.map(|b| (B, Value::str(format!("b{b}")))));
                let key = Box::new(xid.to_bytes());
                self.write(Version {
                    key,
                    rev: Rev(0),
                    deleted: false,
                    first: true,
                    values,
                });
            }
            Step::Update { row, a } => {
                if let Some(old) = self.pick(row) {
                    let values = strandline_core::keyed::with_values(
                        &old.values,
                        &[(A, Value::F64(f64::from(a)))],
                    );
                    self.write(Version {
                        first: false,
                        values,
                        ..old
                    });
                }
            }
            Step::Delete { row } => {
                if let Some(old) = self.pick(row) {
                    self.write(Version {
                        first: false,
                        deleted: true,
                        ..old
                    });
                }
            }
            Step::Freeze => {
                self.table.freeze();
            }
            Step::Flush => self.flush_all().await,
            Step::Merge => {
                if let Some(job) = self.table.pick_merge() {
                    let done = self.table.merge(&job, self.watermark).await.unwrap();
                    self.table.install_merge(done);
                }
            }
            Step::Vacuum => {
                let plan = self.table.purgeable(self.watermark).await.unwrap();
                let model = self
                    .model
                    .iter()
                    .filter(|v| v.deleted && v.rev <= self.watermark);
                assert_eq!(plan.count, model.clone().count() as u64);
                assert_eq!(plan.max_rev, model.map(|v| v.rev).max().unwrap_or(Rev(0)));
                self.flush_all().await;
                let done = self.table.purge(&plan, self.watermark).await.unwrap();
                self.table.install_merge(done);
                let gone: Vec<Box<[u8]>> = self
                    .model
                    .iter()
                    .filter(|v| v.deleted && v.rev <= self.watermark)
                    .map(|v| v.key.clone())
                    .collect();
                self.model.retain(|v| !gone.contains(&v.key));
            }
            Step::Watermark(back) => {
                self.watermark = self
                    .watermark
                    .max(Rev(self.next.saturating_sub(u64::from(back))));
            }
            Step::Reopen => {
                self.flush_all().await;
                let fresh = context(&self.limits);
                fresh.next_segment.set(self.table.cx.next_segment.get());
                let table = KeyedTable::new(self.env.clone(), def(), fresh.clone());
                let mut segments = Vec::new();
                for s in self.table.segments() {
                    segments.push(
                        Segment::open(&self.env, "seg", s.id(), fresh.cache.clone())
                            .await
                            .unwrap(),
                    );
                }
                table.open_segments(segments).await.unwrap();
                table.resolve_floor.set(self.table.resolve_floor.get());
                self.table = table;
            }
        }
    }

    async fn rows(
        &self,
        scan: &KeyedScan,
        watermark: Rev,
    ) -> Vec<(String, u64, bool, Value, Value)> {
        let mut out = Collect::default();
        self.table
            .scan(scan, watermark, &def(), &mut out)
            .await
            .unwrap();
        let layout = ScanLayout::of(scan);
        let mut rows = Vec::new();
        for batch in out.batches {
            let batch = layout.visible(batch.clone(), 0, batch.rows);
            for row in 0..batch.rows {
                let cell = |i: usize| batch.columns[i].cell(row);
                let owned = |c: C<'_>| match c {
                    C::F64(x) => Value::F64(x),
                    C::Str(s) => Value::str(s),
                    _ => Value::Null,
                };
                let (C::Str(xid), C::I64(rev), C::I64(deleted)) = (cell(0), cell(1), cell(2))
                else {
                    panic!()
                };
                rows.push((
                    xid.to_string(),
                    rev as u64,
                    deleted != 0,
                    owned(cell(3)),
                    owned(cell(4)),
                ));
            }
        }
        rows
    }

    fn expected(&self, at: Rev, tombstones: bool) -> Vec<(String, u64, bool, Value, Value)> {
        let rows = self
            .keys()
            .into_iter()
            .filter_map(|k| self.newest(&k, at).cloned());
        rows.filter(|v| tombstones || !v.deleted)
            .map(|v| {
                let xid = Xid::from_bytes(v.key[..].try_into().unwrap()).to_string();
                (xid, v.rev.0, v.deleted, value(&v, A), value(&v, B))
            })
            .collect()
    }

    async fn check(&self) {
        let all = self.expected(Rev::MAX, false);
        let plain = scan(None, None, Vec::new());
        assert_eq!(self.rows(&plain, self.watermark).await, all);
        assert_eq!(
            self.rows(
                &KeyedScan {
                    limit: Some(3),
                    offset: 1,
                    ..plain.clone()
                },
                self.watermark
            )
            .await,
            all[..all.len().min(4)]
        );
        let live = all.len() as u64;
        let dead = self.expected(Rev::MAX, true).len() as u64 - live;
        assert_eq!(self.table.counts().await.unwrap(), (live, dead));
        let mut counted = Collect::default();
        self.table
            .scan(
                &KeyedScan {
                    count: true,
                    ..plain.clone()
                },
                self.watermark,
                &def(),
                &mut counted,
            )
            .await
            .unwrap();
        assert_eq!(counted.batches[0].columns[0].cell(0), C::I64(live as i64));

        // Filters and orders.
        for value in [-2.0, 0.0, 3.0] {
            for op in [CmpOp::Eq, CmpOp::Lt, CmpOp::Ge] {
                let filter = KeyedFilter::Compare {
                    column: A,
                    op,
                    value: Value::F64(value),
                };
                let mut want: Vec<_> = all
                    .iter()
                    .filter(|r| matches!(r.3, Value::F64(x) if op.holds(x.partial_cmp(&value).unwrap())))
                    .cloned()
                    .collect();
                if op != CmpOp::Eq {
                    want.sort_by(|a, b| number(&a.3).total_cmp(&number(&b.3)).then(a.0.cmp(&b.0)));
                }
                let got = self
                    .rows(
                        &scan(Some(filter.clone()), None, Vec::new()),
                        self.watermark,
                    )
                    .await;
                assert_eq!(got, want);
                let limited = KeyedScan {
                    limit: Some(2),
                    ..scan(Some(filter), None, Vec::new())
                };
                assert_eq!(
                    self.rows(&limited, self.watermark).await,
                    want[..want.len().min(2)]
                );
            }
        }
        let nulls = KeyedFilter::IsNull {
            column: B,
            negated: false,
        };
        let want: Vec<_> = all.iter().filter(|r| r.4.is_null()).cloned().collect();
        assert_eq!(
            self.rows(&scan(Some(nulls), None, Vec::new()), self.watermark)
                .await,
            want
        );
        let by_b = KeyedOrder {
            column: KeyedColumn::User(B, Kind::Str),
            descending: true,
            nulls_first: true,
        };
        let mut want = all.clone();
        want.sort_by(|a, b| text(&b.4).cmp(&text(&a.4)).then(a.0.cmp(&b.0)));
        assert_eq!(
            self.rows(&scan(None, None, vec![by_b]), self.watermark)
                .await,
            want
        );
        if let Some(row) = all.first() {
            let one = KeyedFilter::XidEq(Xid::parse(&row.0).unwrap());
            assert_eq!(
                self.rows(&scan(Some(one), None, Vec::new()), self.watermark)
                    .await,
                std::slice::from_ref(row)
            );
        }

        // The feed at the watermark, and at any that no flush has passed.
        for at in [self.watermark.0, self.table.resolve_floor().0, self.next] {
            let at = Rev(at);
            if at < self.table.resolve_floor() {
                continue;
            }
            let mut want = self.expected(at, true);
            want.sort_by_key(|r| r.1);
            for after in [0, self.next / 2, self.next.saturating_sub(2)] {
                let feed = FeedRange {
                    after: Rev(after),
                    after_given: true,
                    until: Rev::MAX,
                    deleted: None,
                    watermark: at,
                };
                let want: Vec<_> = want.iter().filter(|r| r.1 > after).cloned().collect();
                let page = KeyedScan {
                    limit: Some(3),
                    ..scan(None, Some(feed), Vec::new())
                };
                assert_eq!(self.rows(&page, at).await, want[..want.len().min(3)]);
                assert_eq!(
                    self.rows(&scan(None, Some(feed), Vec::new()), at).await,
                    want
                );
                for deleted in [true, false] {
                    let feed = FeedRange {
                        deleted: Some(deleted),
                        until: Rev(self.next / 2 + 2),
                        ..feed
                    };
                    let want: Vec<_> = want
                        .iter()
                        .filter(|r| r.2 == deleted && r.1 <= self.next / 2 + 2)
                        .cloned()
                        .collect();
                    assert_eq!(
                        self.rows(&scan(None, Some(feed), Vec::new()), at).await,
                        want
                    );
                }
            }
        }
    }
}

fn number(v: &Value) -> f64 {
    if let Value::F64(x) = v {
        *x
    } else {
        f64::INFINITY
    }
}
/// NULL sorts above all text, so that in reverse it comes first.
fn text(v: &Value) -> (bool, String) {
    if let Value::Str(s) = v {
        (false, s.to_string())
    } else {
        (true, String::new())
    }
}

fn scan(filter: Option<KeyedFilter>, feed: Option<FeedRange>, order: Vec<KeyedOrder>) -> KeyedScan {
    KeyedScan {
        table: TableId(1),
        columns: vec![
            KeyedColumn::Xid,
            KeyedColumn::Rev,
            KeyedColumn::Deleted,
            KeyedColumn::User(A, Kind::F64),
            KeyedColumn::User(B, Kind::Str),
        ],
        filter,
        feed,
        order,
        limit: None,
        offset: 0,
        count: false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn any_schedule_reads_like_the_model(steps in steps()) {
        let dir = tempfile::tempdir().unwrap();
        let env = env(dir.path());
        let limits = limits();
        block_on(async {
            env.disk.create_dir_all("seg").await.unwrap();
            let table = KeyedTable::new(env.clone(), def(), context(&limits));
            let mut bench =
                Bench { table, env: env.clone(), limits, model: Vec::new(), watermark: Rev(0), next: 0, lsn: 0 };
            let n = steps.len();
            for (i, step) in steps.into_iter().enumerate() {
                bench.step(step).await;
                if i % 9 == 8 || i + 1 == n {
                    bench.check().await;
                }
            }
        });
    }
}

#[test]
fn a_reader_keeps_its_picture_while_the_table_moves_on() {
    let dir = tempfile::tempdir().unwrap();
    let env = env(dir.path());
    let limits = limits();
    block_on(async {
        env.disk.create_dir_all("seg").await.unwrap();
        let table = KeyedTable::new(env.clone(), def(), context(&limits));
        let mut bench = Bench {
            table,
            env: env.clone(),
            limits,
            model: Vec::new(),
            watermark: Rev(0),
            next: 0,
            lsn: 0,
        };
        for _ in 0..40 {
            bench
                .step(Step::Insert {
                    a: Some(1),
                    b: None,
                })
                .await;
        }
        let before = bench.expected(Rev::MAX, false);
        let snapshot = bench.table.snapshot();
        for row in 0..30 {
            bench.step(Step::Update { row, a: 2 }).await;
            bench.step(Step::Delete { row: row + 1 }).await;
        }
        bench.watermark = Rev(bench.next);
        bench.step(Step::Flush).await;
        bench.step(Step::Vacuum).await;
        let mut out = Collect::default();
        snapshot
            .scan(&scan(None, None, Vec::new()), Rev(40), &def(), &mut out)
            .await
            .unwrap();
        let rows: usize = out.batches.iter().map(|b| b.rows).sum();
        assert_eq!(rows, before.len());
        bench.check().await;
    });
}

/// Statistics of a damaged footer whose checksum is right: counts stay within what is stored.
#[test]
fn marks_are_never_more_than_rows() {
    use crate::segment::SegmentSink;
    use strandline_core::format::block::{
        Block, BlockColumn, BlockData, Presence, SegmentInfo, SegmentKind,
    };
    use strandline_core::ids::SegmentId;
    let dir = tempfile::tempdir().unwrap();
    let env = env(dir.path());
    let info = SegmentInfo {
        kind: SegmentKind::Keyed,
        table: TableId(1),
        flushes: (1, 1),
        rows: 4,
        range: (1, 2),
        max_rev: 2,
        tombstones: 0,
    };
    let counts = block_on(async {
        env.disk.create_dir_all("seg").await.unwrap();
        let id = SegmentId(1);
        let mut sink = SegmentSink::create(&env, "seg", id, info.clone())
            .await
            .unwrap();
        for key in [1u8, 2] {
            let column = |id, mark| BlockColumn {
                id,
                presence: Presence::All,
                data: BlockData::I64(vec![mark; 2]),
                edges_ts: None,
            };
            let block = Block {
                section: BY_KEY,
                rows: 2,
                first_key: vec![key],
                last_key: vec![key],
                range: (1, 2),
                columns: vec![
                    column(ColumnId::FIRST, i64::MAX),
                    column(ColumnId::DELETED, 1),
                ],
            };
            sink.push(block).await.unwrap();
        }
        sink.finish(info).await.unwrap();
        let segment = Segment::open(&env, "seg", id, BlockCache::new(1 << 20))
            .await
            .unwrap();
        segment_counts(&segment)
    });
    assert_eq!(counts, (4, 4));
}
