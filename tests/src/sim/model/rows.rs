//! Facts about one rows table.

use super::Check;
use std::collections::{BTreeMap, BTreeSet};
use strandline_core::xid::Xid;

/// A row as somebody saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its write.
    pub rev: u64,
    /// A tombstone.
    pub deleted: bool,
    /// The token of the write that made it (a tombstone keeps the one before).
    pub token: String,
}

/// What a write tried.
#[derive(Clone, Debug)]
pub enum What {
    /// Rows with these tokens: each run of them all or none, and none after a run that is not there.
    Insert(Vec<Vec<String>>),
    /// This token on this row.
    Update(Xid, String),
    /// A tombstone on this row.
    Delete(Xid),
}

/// When a write was sent, and, once it was acknowledged, when that was and what it became.
#[derive(Clone, Copy, Debug)]
struct Times {
    sent: u64,
    done: Option<(u64, Xid, u64)>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct RowsModel {
    /// The newest version of each row that anybody saw.
    pub rows: BTreeMap<Xid, Seen>,
    /// Who had which number, for ever.
    revs: BTreeMap<u64, (Xid, String)>,
    /// Tokens that anybody saw.
    tokens: BTreeSet<String>,
    /// Writes without an answer, by when they were sent.
    attempts: BTreeMap<u64, What>,
    /// Tokens of writes that are known not to be there.
    refused: BTreeSet<String>,
    /// Inserts that were seen: x_rev and xid.
    inserts: BTreeMap<u64, Xid>,
    /// Tombstones that were tried: when the first was sent, and the one that was acknowledged.
    deletes: BTreeMap<Xid, Times>,
    /// The highest x_rev anybody saw.
    pub highest: u64,
    /// Compare-and-sets that won, by row and expected number.
    won: BTreeSet<(Xid, u64)>,
    times: BTreeMap<String, Times>,
}

impl RowsModel {
    /// A write is sent.
    pub fn sent(&mut self, now: u64, what: What) {
        let mut note = |token: &String| {
            let times = Times {
                sent: now,
                done: None,
            };
            self.times.insert(token.clone(), times);
        };
        match &what {
            What::Insert(runs) => runs.iter().flatten().for_each(&mut note),
            What::Update(_, token) => note(token),
            What::Delete(xid) => {
                self.deletes.entry(*xid).or_insert(Times {
                    sent: now,
                    done: None,
                });
            }
        }
        self.attempts.insert(now, what);
    }

    /// Its outcome is known; `written` false: nothing of it is there, ever.
    pub fn settled(&mut self, sent: u64, written: bool) {
        let what = self.attempts.remove(&sent);
        if written {
            return;
        }
        match what {
            Some(What::Insert(runs)) => self.refused.extend(runs.into_iter().flatten()),
            Some(What::Update(_, token)) => {
                self.refused.insert(token);
            }
            _ => {}
        }
    }

    /// A write was acknowledged at `now` as this version.
    pub fn acked(&mut self, who: &str, now: u64, xid: Xid, seen: Seen) -> Check {
        let done = Some((now, xid, seen.rev));
        if seen.deleted {
            if let Some(times) = self.deletes.get_mut(&xid) {
                times.done = done;
            }
        } else if let Some(times) = self.times.get_mut(&seen.token) {
            times.done = done;
        }
        self.saw(who, xid, seen)
    }

    /// A compare-and-set was answered. `known` is what was known of the row when it was sent.
    pub fn compared(&mut self, xid: Xid, expected: Option<u64>, known: &Seen, won: bool) -> Check {
        let Some(expected) = expected else {
            if !won && !self.deletes.contains_key(&xid) {
                return Err(format!("{xid} is there, and its UPDATE found nothing"));
            }
            return Ok(());
        };
        if won && !self.won.insert((xid, expected)) {
            return Err(format!(
                "two compare-and-sets on {xid} won against x_rev {expected}"
            ));
        }
        if won && (expected < known.rev || known.deleted) {
            return Err(format!(
                "a compare-and-set on {xid} won against x_rev {expected}, which was past: {known:?}"
            ));
        }
        Ok(())
    }

    /// Somebody saw this version: it is a fact from now on.
    pub fn saw(&mut self, who: &str, xid: Xid, seen: Seen) -> Check {
        let Seen {
            rev,
            deleted,
            token,
        } = &seen;
        if self.refused.contains(token) {
            return Err(format!(
                "{who}: token {token} was refused and is there all the same"
            ));
        }
        if let Some((x, t)) = self.revs.insert(*rev, (xid, token.clone()))
            && (x, &t) != (xid, token)
        {
            return Err(format!(
                "{who}: x_rev {rev} was {x}/{t} and is {xid}/{token}: a number was used twice"
            ));
        }
        self.tokens.insert(token.clone());
        self.highest = self.highest.max(*rev);
        match self.rows.get(&xid) {
            Some(old) if old.rev == *rev && old != &seen => {
                return Err(format!(
                    "{who}: {xid} at x_rev {rev} was {old:?} and is {seen:?}"
                ));
            }
            Some(old) if old.rev >= *rev => return Ok(()),
            Some(old) => {
                if old.deleted {
                    return Err(format!(
                        "{who}: {xid} came back from its tombstone: {old:?} then {seen:?}"
                    ));
                }
                if *deleted && old.token != *token && !self.could_be(xid, token) {
                    return Err(format!(
                        "{who}: the tombstone of {xid} has values it never had: {old:?}, {seen:?}"
                    ));
                }
            }
            None => {}
        }
        self.rows.insert(xid, seen);
        Ok(())
    }

    fn could_be(&self, xid: Xid, token: &str) -> bool {
        self.attempts.values().any(|a| match a {
            What::Insert(runs) => runs.iter().flatten().any(|t| t == token),
            What::Update(x, t) => *x == xid && t == token,
            What::Delete(_) => false,
        })
    }

    /// An insert was seen: later numbers have later ids.
    pub fn saw_insert(&mut self, rev: u64, xid: Xid) -> Check {
        self.inserts.insert(rev, xid);
        let below = self.inserts.range(..rev).next_back();
        let above = self.inserts.range(rev + 1..).next();
        if below.is_some_and(|(_, x)| *x >= xid) || above.is_some_and(|(_, x)| *x <= xid) {
            return Err(format!(
                "insert {rev} has xid {xid}, out of order between {below:?} and {above:?}"
            ));
        }
        Ok(())
    }

    /// What a scan must hold that begins now, against what it answered.
    pub fn check_scan(&self, before: &BTreeMap<Xid, Seen>, found: &BTreeMap<Xid, Seen>) -> Check {
        for (xid, fact) in before {
            match found.get(xid) {
                Some(now) if fact.deleted => {
                    return Err(format!("a scan shows {xid} as {now:?} after {fact:?}"));
                }
                Some(now) if now.rev < fact.rev => {
                    return Err(format!("a scan shows {now:?} of {xid} after {fact:?}"));
                }
                None if !fact.deleted && !self.deletes.contains_key(xid) => {
                    return Err(format!("a scan does not show {xid}, seen as {fact:?}"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The whole table, tombstones too, as it stands with nobody writing. With `settle`, after a crash: what
    /// was not known is known now.
    pub fn check_table(
        &mut self,
        table: &BTreeMap<Xid, Seen>,
        horizon: u64,
        settle: bool,
    ) -> Check {
        for (xid, fact) in self.rows.clone() {
            match table.get(&xid) {
                Some(now) if now == &fact => {}
                Some(now) if now.rev > fact.rev => {
                    // Then a write without an answer did happen.
                    let known = if now.deleted {
                        self.deletes.contains_key(&xid)
                    } else {
                        self.could_be(xid, &now.token)
                    };
                    if !known {
                        return Err(format!(
                            "{xid} is {now:?}, which nobody wrote; known was {fact:?}"
                        ));
                    }
                }
                Some(now) => return Err(format!("{xid} went back: seen as {fact:?}, is {now:?}")),
                None if fact.rev <= horizon && self.deletes.contains_key(&xid) => {}
                None => {
                    return Err(format!(
                        "{xid} is lost: seen as {fact:?}, vacuum horizon {horizon}"
                    ));
                }
            }
        }
        let mut new: Vec<(Xid, Seen)> = Vec::new();
        for (xid, now) in table {
            if !self.rows.contains_key(xid) {
                let tried = |a: &What| match a {
                    What::Insert(runs) => runs.iter().flatten().any(|t| *t == now.token),
                    _ => false,
                };
                if !self.attempts.values().any(tried) {
                    return Err(format!("{xid} was invented: {now:?}"));
                }
                new.push((*xid, now.clone()));
            }
        }
        let there: BTreeSet<&String> = table.values().map(|s| &s.token).collect();
        for attempt in self.attempts.values() {
            if let What::Insert(runs) = attempt {
                let counts: Vec<usize> = runs
                    .iter()
                    .map(|run| {
                        run.iter()
                            .filter(|t| there.contains(t) || self.tokens.contains(*t))
                            .count()
                    })
                    .collect();
                let whole = counts
                    .iter()
                    .zip(runs)
                    .all(|(&n, r)| n == 0 || n == r.len());
                if !whole || !counts.is_sorted_by_key(|&n| n == 0) {
                    return Err(format!("of an insert, {counts:?} rows are there: {runs:?}"));
                }
            }
        }
        for (xid, now) in &new {
            self.saw_insert(now.rev, *xid)?;
        }
        for (xid, now) in table {
            self.saw("a full read", *xid, now.clone())?;
        }
        self.rows.retain(|xid, _| table.contains_key(xid));
        if settle {
            // What was unknown is settled now: nothing of it may appear later.
            for (_, attempt) in std::mem::take(&mut self.attempts) {
                let tokens = match attempt {
                    What::Insert(runs) => runs.into_iter().flatten().collect(),
                    What::Update(_, token) => vec![token],
                    What::Delete(_) => continue,
                };
                let gone = tokens.into_iter().filter(|t| !self.tokens.contains(t));
                self.refused.extend(gone.collect::<Vec<_>>());
            }
        }
        Ok(())
    }

    /// When the last of the writes that a cut shows was sent. None of them may be later than `acked`.
    pub fn sent_in(&self, cut: &BTreeMap<Xid, Seen>, acked: u64) -> Result<u64, String> {
        let mut latest = 0;
        for (xid, seen) in cut {
            if self.revs.get(&seen.rev).is_some_and(|(x, _)| x != xid) {
                return Err(format!("the cut has {seen:?} as {xid}, which it never was"));
            }
            let Some(times) = self.times.get(&seen.token) else {
                return Err(format!("the cut has {xid} as {seen:?}, which nobody wrote"));
            };
            let mut sent = times.sent;
            if seen.deleted {
                let delete = self.deletes.get(xid);
                let delete = delete.ok_or_else(|| format!("the cut has a tombstone of {xid}"))?;
                sent = sent.max(delete.sent);
            }
            if sent > acked {
                return Err(format!("the cut has {seen:?}, sent after its CHECKPOINT"));
            }
            latest = latest.max(sent);
        }
        Ok(latest)
    }

    /// Every write that was acknowledged before `moment` is in the cut.
    pub fn all_before(&self, cut: &BTreeMap<Xid, Seen>, horizon: u64, moment: u64) -> Check {
        let deletes = self.deletes.values().map(|t| (t, true));
        for (times, deleted) in self.times.values().map(|t| (t, false)).chain(deletes) {
            let Some((_, xid, rev)) = times.done.filter(|(at, ..)| *at < moment) else {
                continue;
            };
            match cut.get(&xid) {
                Some(seen) if seen.rev >= rev && (!deleted || seen.deleted) => {}
                None if rev <= horizon && self.deletes.contains_key(&xid) => {}
                other => {
                    return Err(format!(
                        "the cut has {xid} as {other:?}; x_rev {rev} was acknowledged before it"
                    ));
                }
            }
        }
        Ok(())
    }
}
