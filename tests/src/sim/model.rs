//! What must be true after anything: the facts that clients and readers have seen, and the attempts whose
//! outcome they do not know.

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

/// What a write that got no answer tried.
#[derive(Clone, Debug)]
pub enum Attempt {
    /// Rows with these tokens, all or none.
    Insert(Vec<String>),
    /// This token on this row.
    Update(Xid, String),
    /// A tombstone on this row.
    Delete(Xid),
}

/// Facts and attempts of a run. Outlives every crash.
#[derive(Debug, Default)]
pub struct Model {
    /// The newest version of each row that anybody saw.
    pub rows: BTreeMap<Xid, Seen>,
    /// Who had which number, for ever.
    pub revs: BTreeMap<u64, (Xid, String)>,
    /// Writes without an answer.
    pub attempts: Vec<Attempt>,
    /// Tokens of writes that were refused as not written.
    pub refused: BTreeSet<String>,
    /// Inserts that were seen: x_rev and xid.
    pub inserts: BTreeMap<u64, Xid>,
    /// Rows whose tombstone was tried.
    pub deletes: BTreeSet<Xid>,
    /// The highest x_rev anybody saw.
    pub highest: u64,
    /// Compare-and-sets that won, by row and expected number.
    pub won: BTreeSet<(Xid, u64)>,
    /// Samples that were acknowledged: entity, ts, value.
    pub samples: BTreeMap<(String, i64), f64>,
    /// Samples without an answer.
    pub sample_attempts: BTreeMap<(String, i64), f64>,
    /// Tokens made so far.
    pub tokens: u64,
    /// Counts, so that a run that did nothing is noticed.
    pub acked: u64,
}

type Check = Result<(), String>;

impl Model {
    /// A token for a write that nothing else ever has.
    pub fn token(&mut self) -> String {
        self.tokens += 1;
        format!("t{}", self.tokens)
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
        self.attempts.iter().any(|a| match a {
            Attempt::Insert(tokens) => tokens.iter().any(|t| t == token),
            Attempt::Update(x, t) => *x == xid && t == token,
            Attempt::Delete(_) => false,
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

    /// The whole table, tombstones too, as it stands with nobody writing.
    pub fn check_table(&mut self, table: &BTreeMap<Xid, Seen>, horizon: u64) -> Check {
        for (xid, fact) in self.rows.clone() {
            match table.get(&xid) {
                Some(now) if now == &fact => {}
                Some(now) if now.rev > fact.rev => {
                    // Then a write without an answer did happen.
                    let known = if now.deleted {
                        self.deletes.contains(&xid)
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
                None if fact.rev <= horizon && self.deletes.contains(&xid) => {}
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
                if !self
                    .attempts
                    .iter()
                    .any(|a| matches!(a, Attempt::Insert(t) if t.contains(&now.token)))
                {
                    return Err(format!("{xid} was invented: {now:?}"));
                }
                new.push((*xid, now.clone()));
            }
        }
        for attempt in &self.attempts {
            if let Attempt::Insert(tokens) = attempt {
                let there = new
                    .iter()
                    .filter(|(_, s)| tokens.contains(&s.token))
                    .count();
                if there != 0 && there != tokens.len() {
                    return Err(format!(
                        "of an insert of {} rows, {there} are there: {tokens:?}",
                        tokens.len()
                    ));
                }
            }
        }
        for (xid, now) in &new {
            self.saw_insert(now.rev, *xid)?;
        }
        for (xid, now) in table {
            self.saw("recovery", *xid, now.clone())?;
        }
        self.rows.retain(|xid, _| table.contains_key(xid));
        // What was unknown is settled now: nothing of it may appear later.
        for attempt in std::mem::take(&mut self.attempts) {
            let tokens = match attempt {
                Attempt::Insert(tokens) => tokens,
                Attempt::Update(_, token) => vec![token],
                Attempt::Delete(_) => continue,
            };
            for token in tokens {
                if !self.revs.values().any(|(_, t)| *t == token) {
                    self.refused.insert(token);
                }
            }
        }
        Ok(())
    }

    /// All samples of the telemetry table, with nobody writing.
    pub fn check_samples(&mut self, found: &[(String, i64, f64)]) -> Check {
        let mut seen = BTreeMap::new();
        for (entity, ts, value) in found {
            if let Some(other) = seen.insert((entity.clone(), *ts), *value) {
                return Err(format!(
                    "sample {entity}/{ts} is there twice: {other} and {value}"
                ));
            }
        }
        for (key, value) in &self.samples {
            if seen.get(key) != Some(value) {
                return Err(format!(
                    "sample {key:?} = {value} is lost: found {:?}",
                    seen.get(key)
                ));
            }
        }
        for (key, value) in seen {
            if !self.samples.contains_key(&key) {
                if self.sample_attempts.get(&key) != Some(&value) {
                    return Err(format!("sample {key:?} = {value} was invented"));
                }
                self.samples.insert(key, value);
            }
        }
        self.sample_attempts.clear();
        Ok(())
    }
}
