//! The simulated disk. A write is in the page cache until its file is synced; a name is in the cache until
//! its directory is. A crash keeps, of what was not synced, what the seed says: nothing, all, or single
//! sectors of it; of the names of a directory, the first so many changes. Operations take virtual time and,
//! when asked to, fail: with an input/output error, or because there is no space.

use crate::sim::world::World;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::rc::Rc;
use strandline_core::io::{DIRECT_ALIGN, Disk, File, FileMode, LocalFuture};

/// What a crash keeps or loses as one.
const SECTOR: usize = 512;

/// Damage hits one of the last commits: most of the older ones are in segments.
const DAMAGE_AMONG: usize = 6;

type Id = u64;
const ROOT: Id = 0;

/// What a file is for, by where it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A shard's log.
    Log,
    /// A segment.
    Segment,
    /// The catalog, a manifest, a fence.
    Small,
}

fn class_of(path: &str) -> Class {
    if path.contains("/log/") {
        Class::Log
    } else if path.contains("/seg/") {
        Class::Segment
    } else {
        Class::Small
    }
}

#[derive(Default)]
struct Data {
    /// What surely is on the disk.
    durable: Vec<u8>,
    /// What every reader sees.
    cached: Vec<u8>,
    /// Writes since the last sync: where, how long.
    unsynced: Vec<(usize, usize)>,
}

/// A change of names in a directory, not yet synced.
#[derive(Clone, Debug)]
enum NameOp {
    Add(String, Id),
    Remove(String),
    /// A rename: one step, whatever a crash keeps.
    Move {
        from: String,
        to: String,
        id: Id,
    },
}

impl NameOp {
    fn apply(self, names: &mut BTreeMap<String, Id>) {
        match self {
            NameOp::Add(name, id) => {
                names.insert(name, id);
            }
            NameOp::Remove(name) => {
                names.remove(&name);
            }
            NameOp::Move { from, to, id } => {
                names.remove(&from);
                names.insert(to, id);
            }
        }
    }
}

#[derive(Default)]
struct Dir {
    /// As the process sees it.
    now: BTreeMap<String, Id>,
    /// What a crash keeps for sure.
    durable: BTreeMap<String, Id>,
    pending: Vec<NameOp>,
}

impl Dir {
    fn change(&mut self, op: NameOp) {
        op.clone().apply(&mut self.now);
        self.pending.push(op);
    }
}

enum Node {
    File(Class, Data),
    Dir(Dir),
}

/// A sync that answers and does nothing: a fault to plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Of every file.
    Everywhere,
    /// Of files of this class.
    Of(Class),
    /// Of directories.
    Directories,
}

/// Which failures the disk injects.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskFaults {
    /// One write in so many fails (0: none).
    pub write_errors: u64,
    /// One sync in so many fails, and may drop what it should have made durable (0: none).
    pub sync_errors: u64,
    /// One sync of a directory in so many fails, and leaves its names as they were (0: none).
    pub dir_sync_errors: u64,
    /// One read in so many fails (0: none).
    pub read_errors: u64,
    /// Nothing that needs space succeeds: new names, longer files.
    pub full: bool,
    /// Planted fault.
    pub sync_lies: Option<Lie>,
}

/// What happened on the disk, so that a test can see that it met what it is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounts {
    /// Errors injected.
    pub errors: u64,
    /// Operations refused for want of space.
    pub refused: u64,
    /// Fences written.
    pub fences: u64,
    /// Log files that were taken into use again.
    pub recycled: u64,
    /// Writes that a crash tore: some sectors kept, some lost.
    pub torn: u64,
}

struct State {
    nodes: BTreeMap<Id, Node>,
    next: Id,
    /// Per log directory: synced commits in order, as file, place, length. Those written over are gone.
    commits: BTreeMap<Id, Vec<(Id, usize, usize)>>,
    /// Log directories one of whose live files failed since the last crash.
    failed_logs: BTreeSet<Id>,
}

/// See the module. One value is the disk through all crashes of a run.
pub struct SimDisk {
    world: Rc<World>,
    state: RefCell<State>,
    /// Goes up with each crash: files opened before it are dead.
    epoch: Cell<u64>,
    /// Failures to inject.
    pub faults: Cell<DiskFaults>,
    /// What happened so far.
    pub counts: Cell<DiskCounts>,
    /// A rule about the disk that was broken.
    pub broken_rule: RefCell<Option<String>>,
}

/// A byte that was changed, so that it can be put right again.
#[derive(Clone, Debug)]
pub struct Damage {
    file: Id,
    at: usize,
    was: u8,
    /// Where, for people.
    pub place: String,
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

fn not_found(path: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{path}: no such file"))
}

fn crashed() -> io::Error {
    io::Error::other("the machine crashed")
}

impl State {
    fn dir(&mut self, id: Id) -> Option<&mut Dir> {
        match self.nodes.get_mut(&id) {
            Some(Node::Dir(dir)) => Some(dir),
            _ => None,
        }
    }
    fn find(&self, path: &str) -> Option<Id> {
        let mut at = ROOT;
        for part in path.split('/').filter(|p| !p.is_empty()) {
            let Some(Node::Dir(dir)) = self.nodes.get(&at) else {
                return None;
            };
            at = *dir.now.get(part)?;
        }
        Some(at)
    }
    /// The directory that a path's last name stands in.
    fn parent(&mut self, path: &str) -> io::Result<(Id, &mut Dir)> {
        let (parent, _) = split(path);
        let id = self.find(parent).ok_or_else(|| not_found(parent))?;
        let dir = self.dir(id).ok_or_else(|| not_found(parent))?;
        Ok((id, dir))
    }
    fn add(&mut self, node: Node) -> Id {
        let id = self.next;
        self.next += 1;
        self.nodes.insert(id, node);
        id
    }
    fn data(&mut self, id: Id) -> io::Result<&mut Data> {
        match self.nodes.get_mut(&id) {
            Some(Node::File(_, data)) => Ok(data),
            _ => Err(io::Error::other("no such file any more")),
        }
    }
    /// The directory in which a file is a log file in use now.
    fn live_log(&self, file: Id) -> Option<Id> {
        if !matches!(self.nodes.get(&file), Some(Node::File(Class::Log, _))) {
            return None;
        }
        self.nodes.iter().find_map(|(&id, node)| match node {
            Node::Dir(d) if d.now.iter().any(|(n, &f)| f == file && n.ends_with(".log")) => {
                Some(id)
            }
            _ => None,
        })
    }
}

impl SimDisk {
    /// Empty.
    pub fn new(world: Rc<World>) -> Rc<Self> {
        Rc::new(SimDisk {
            world,
            state: RefCell::new(State {
                nodes: BTreeMap::from([(ROOT, Node::Dir(Dir::default()))]),
                next: ROOT + 1,
                commits: BTreeMap::new(),
                failed_logs: BTreeSet::new(),
            }),
            epoch: Cell::new(0),
            faults: Cell::default(),
            counts: Cell::default(),
            broken_rule: RefCell::default(),
        })
    }

    fn count(&self, one: impl FnOnce(&mut DiskCounts)) {
        let mut counts = self.counts.get();
        one(&mut counts);
        self.counts.set(counts);
    }

    async fn latency(&self) {
        let ns = self.world.rng.between(5_000, 400_000);
        self.world.sleep_ns(ns).await;
    }

    /// The machine dies: what was not synced survives by chance.
    pub fn crash(&self) {
        let rng = &self.world.rng;
        self.epoch.set(self.epoch.get() + 1);
        let mut state = self.state.borrow_mut();
        state.failed_logs.clear();
        let mut torn = 0;
        for node in state.nodes.values_mut() {
            match node {
                Node::Dir(dir) => {
                    let ops = std::mem::take(&mut dir.pending);
                    let kept = rng.below(ops.len() as u64 + 1) as usize;
                    ops.into_iter()
                        .take(kept)
                        .for_each(|op| op.apply(&mut dir.durable));
                    dir.now = dir.durable.clone();
                }
                Node::File(_, data) => {
                    for (at, len) in std::mem::take(&mut data.unsynced) {
                        torn += u64::from(tear(data, at, len, rng));
                    }
                    data.cached = data.durable.clone();
                }
            }
        }
        self.count(|c| c.torn += torn);
        // What no name leads to any more is gone.
        let mut reached = BTreeSet::from([ROOT]);
        let mut open = vec![ROOT];
        while let Some(id) = open.pop() {
            if let Some(Node::Dir(dir)) = state.nodes.get(&id) {
                open.extend(dir.now.values().filter(|&&id| reached.insert(id)));
            }
        }
        state.nodes.retain(|id, _| reached.contains(id));
        state
            .commits
            .values_mut()
            .for_each(|c| c.retain(|(file, ..)| reached.contains(file)));
    }

    /// Gives the memory of all files back, at the end of a run.
    pub fn clear(&self) {
        self.state.borrow_mut().nodes.clear();
    }

    /// Whether any file holds these bytes.
    pub fn contains(&self, needle: &[u8]) -> bool {
        self.state.borrow().nodes.values().any(|node| match node {
            Node::File(_, data) => data.cached.windows(needle.len()).any(|w| w == needle),
            Node::Dir(_) => false,
        })
    }

    /// Damages a commit of a log that has an intact one behind it. With nothing running.
    pub fn damage_log(&self) -> Option<Damage> {
        let mut state = self.state.borrow_mut();
        let mut places = Vec::new();
        for (&dir, commits) in &state.commits {
            let live: Vec<_> = commits
                .iter()
                .filter(|(file, ..)| state.live_log(*file) == Some(dir))
                .collect();
            let behind = live.iter().rev().skip(1);
            places.extend(behind.take(DAMAGE_AMONG).map(|c| (c.0, c.1, c.2)));
        }
        let &(file, at, len) = self.pick(&places)?;
        let at = at + self.world.rng.below(len as u64) as usize;
        Self::flip(&mut state, file, at, "log")
    }

    /// Damages a segment that a database names. With nothing running.
    pub fn damage_segment(&self) -> Option<Damage> {
        let mut state = self.state.borrow_mut();
        let places: Vec<(Id, usize)> = state
            .nodes
            .iter()
            .filter_map(|(&id, node)| match node {
                Node::File(Class::Segment, data) if !data.durable.is_empty() => {
                    Some((id, data.durable.len()))
                }
                _ => None,
            })
            .collect();
        let &(file, len) = self.pick(&places)?;
        let at = self.world.rng.below(len as u64) as usize;
        Self::flip(&mut state, file, at, "segment")
    }

    fn pick<'a, T>(&self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.world.rng.below(from.len() as u64) as usize)
    }

    fn flip(state: &mut State, file: Id, at: usize, what: &str) -> Option<Damage> {
        let data = state.data(file).ok()?;
        let byte = data.durable.get_mut(at)?;
        let damage = Damage {
            file,
            at,
            was: *byte,
            place: format!("{what} file {file} at {at}"),
        };
        *byte ^= 0x5A;
        data.cached = data.durable.clone();
        Some(damage)
    }

    /// Puts a damaged byte right again, if nobody has written over it.
    pub fn repair(&self, damage: &Damage) {
        if let Ok(data) = self.state.borrow_mut().data(damage.file) {
            for side in [&mut data.durable, &mut data.cached] {
                if let Some(byte) = side.get_mut(damage.at)
                    && *byte == damage.was ^ 0x5A
                {
                    *byte = damage.was;
                }
            }
        }
    }

    fn io_error(&self) -> io::Error {
        self.count(|c| c.errors += 1);
        io::Error::other("injected input/output error")
    }

    fn needs_space(&self) -> io::Result<()> {
        if self.faults.get().full {
            self.count(|c| c.refused += 1);
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        Ok(())
    }

    fn hits(&self, one_in: u64) -> bool {
        one_in > 0 && self.world.rng.one_in(one_in)
    }
}

/// What a crash leaves of one unsynced write. Whether it was torn.
fn tear(data: &mut Data, at: usize, len: usize, rng: &crate::sim::world::Rng) -> bool {
    let mode = rng.below(4);
    let (mut kept, mut lost) = (false, false);
    let mut from = at;
    while from < at + len {
        // Sectors stand at multiples of their size in the file.
        let to = ((from / SECTOR + 1) * SECTOR).min(at + len);
        let keep = match mode {
            0 => false,
            1 => true,
            _ => rng.one_in(2),
        };
        if keep {
            if data.durable.len() < to {
                data.durable.resize(to, 0);
            }
            data.durable[from..to].copy_from_slice(&data.cached[from..to]);
        }
        (kept, lost) = (kept || keep, lost || !keep);
        from = to;
    }
    kept && lost
}

/// [`SimDisk`] as the engine sees it: with a root, and dead after a crash.
pub struct SimMount {
    disk: Rc<SimDisk>,
    epoch: u64,
    root: String,
}

impl SimMount {
    /// The disk as a process started now sees it, with `root` in front of every path. The root itself is
    /// made by whoever starts a process, durably.
    pub fn new(disk: Rc<SimDisk>, root: &str) -> Rc<Self> {
        {
            let mut state = disk.state.borrow_mut();
            let mut at = ROOT;
            for part in root.split('/').filter(|p| !p.is_empty()) {
                let there = state.dir(at).and_then(|d| d.now.get(part).copied());
                at = there.unwrap_or_else(|| {
                    let id = state.add(Node::Dir(Dir::default()));
                    if let Some(dir) = state.dir(at) {
                        dir.now.insert(part.to_string(), id);
                        dir.durable.insert(part.to_string(), id);
                    }
                    id
                });
            }
        }
        Rc::new(SimMount {
            epoch: disk.epoch.get(),
            disk,
            root: root.to_string(),
        })
    }
    fn path(&self, path: &str) -> String {
        match (self.root.as_str(), path) {
            ("", p) => p.to_string(),
            (r, "") => r.to_string(),
            (r, p) => format!("{r}/{p}"),
        }
    }
    async fn op(&self) -> io::Result<()> {
        self.disk.latency().await;
        if self.epoch != self.disk.epoch.get() {
            return Err(crashed());
        }
        Ok(())
    }
    fn file(&self, file: Id, mode: FileMode, path: String) -> Rc<dyn File> {
        Rc::new(SimFile {
            disk: self.disk.clone(),
            epoch: self.epoch,
            file,
            mode,
            path,
        })
    }
}

impl Disk for SimMount {
    fn create<'a>(
        &'a self,
        path: &'a str,
        mode: FileMode,
    ) -> LocalFuture<'a, io::Result<Rc<dyn File>>> {
        Box::pin(async move {
            self.op().await?;
            self.disk.needs_space()?;
            let path = self.path(path);
            let mut state = self.disk.state.borrow_mut();
            state.parent(&path)?;
            let file = state.add(Node::File(class_of(&path), Data::default()));
            let name = split(&path).1.to_string();
            state.parent(&path)?.1.change(NameOp::Add(name, file));
            drop(state);
            Ok(self.file(file, mode, path))
        })
    }
    fn open<'a>(
        &'a self,
        path: &'a str,
        mode: FileMode,
    ) -> LocalFuture<'a, io::Result<Rc<dyn File>>> {
        Box::pin(async move {
            self.op().await?;
            let path = self.path(path);
            let found = self.disk.state.borrow().find(&path);
            let file = found.ok_or_else(|| not_found(&path))?;
            Ok(self.file(file, mode, path))
        })
    }
    fn rename<'a>(&'a self, from: &'a str, to: &'a str) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(async move {
            self.op().await?;
            let (from, to) = (self.path(from), self.path(to));
            assert_eq!(split(&from).0, split(&to).0, "a rename across directories");
            let mut state = self.disk.state.borrow_mut();
            let id = state.find(&from).ok_or_else(|| not_found(&from))?;
            let (_, dir) = state.parent(&from)?;
            let name = |path: &str| split(path).1.to_string();
            dir.change(NameOp::Move {
                from: name(&from),
                to: name(&to),
                id,
            });
            self.disk.count(|c| {
                c.fences += u64::from(to.ends_with("/fence"));
                c.recycled += u64::from(from.ends_with(".free"));
            });
            Ok(())
        })
    }
    fn remove<'a>(&'a self, path: &'a str) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(async move {
            self.op().await?;
            let path = self.path(path);
            let mut state = self.disk.state.borrow_mut();
            state.find(&path).ok_or_else(|| not_found(&path))?;
            let name = split(&path).1.to_string();
            state.parent(&path)?.1.change(NameOp::Remove(name));
            Ok(())
        })
    }
    fn hard_link<'a>(&'a self, from: &'a str, to: &'a str) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(async move {
            self.op().await?;
            self.disk.needs_space()?;
            let (from, to) = (self.path(from), self.path(to));
            let mut state = self.disk.state.borrow_mut();
            let file = state.find(&from).ok_or_else(|| not_found(&from))?;
            let name = split(&to).1.to_string();
            state.parent(&to)?.1.change(NameOp::Add(name, file));
            Ok(())
        })
    }
    fn create_dir_all<'a>(&'a self, path: &'a str) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(async move {
            self.op().await?;
            let path = self.path(path);
            let mut state = self.disk.state.borrow_mut();
            let mut at = ROOT;
            for part in path.split('/').filter(|p| !p.is_empty()) {
                let there = state.dir(at).and_then(|d| d.now.get(part).copied());
                at = match there {
                    Some(id) => id,
                    None => {
                        self.disk.needs_space()?;
                        let id = state.add(Node::Dir(Dir::default()));
                        if let Some(dir) = state.dir(at) {
                            dir.change(NameOp::Add(part.to_string(), id));
                        }
                        id
                    }
                };
            }
            Ok(())
        })
    }
    fn list<'a>(&'a self, path: &'a str) -> LocalFuture<'a, io::Result<Vec<String>>> {
        Box::pin(async move {
            self.op().await?;
            let mut state = self.disk.state.borrow_mut();
            let found = state.find(&self.path(path));
            let dir = found.and_then(|id| state.dir(id));
            Ok(dir.map_or(Vec::new(), |d| d.now.keys().cloned().collect()))
        })
    }
    fn sync_dir<'a>(&'a self, path: &'a str) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let path = self.path(path);
            let (dir, covered) = {
                let mut state = self.disk.state.borrow_mut();
                let id = state.find(&path).ok_or_else(|| not_found(&path))?;
                (id, state.dir(id).map_or(0, |d| d.pending.len()))
            };
            self.op().await?;
            if self.disk.hits(self.disk.faults.get().dir_sync_errors) {
                return Err(self.disk.io_error());
            }
            if let Some(Lie::Everywhere | Lie::Directories) = self.disk.faults.get().sync_lies {
                return Ok(());
            }
            let mut state = self.disk.state.borrow_mut();
            if let Some(dir) = state.dir(dir) {
                let ops: Vec<_> = dir
                    .pending
                    .drain(..covered.min(dir.pending.len()))
                    .collect();
                ops.into_iter().for_each(|op| op.apply(&mut dir.durable));
            }
            Ok(())
        })
    }
}

struct SimFile {
    disk: Rc<SimDisk>,
    epoch: u64,
    file: Id,
    mode: FileMode,
    path: String,
}

impl SimFile {
    async fn op(&self) -> io::Result<()> {
        self.disk.latency().await;
        if self.epoch != self.disk.epoch.get() {
            return Err(crashed());
        }
        Ok(())
    }

    /// The error of this file, noting what it does to a log.
    fn fail(&self) -> io::Error {
        let mut state = self.disk.state.borrow_mut();
        if let Some(dir) = state.live_log(self.file) {
            state.failed_logs.insert(dir);
        }
        self.disk.io_error()
    }

    /// A log one of whose commits failed takes no more: what the disk holds of it is not known.
    fn check_log(&self, state: &State) {
        if !state.failed_logs.is_empty()
            && let Some(dir) = state.live_log(self.file)
            && state.failed_logs.contains(&dir)
        {
            let rule = format!("{} was written to after its log had failed", self.path);
            self.disk.broken_rule.borrow_mut().get_or_insert(rule);
        }
    }
}

impl File for SimFile {
    fn read_at<'a>(&'a self, offset: u64, len: usize) -> LocalFuture<'a, io::Result<Vec<u8>>> {
        Box::pin(async move {
            self.op().await?;
            if self.disk.hits(self.disk.faults.get().read_errors) {
                return Err(self.disk.io_error());
            }
            let mut state = self.disk.state.borrow_mut();
            let data = &state.data(self.file)?.cached;
            let from = (offset as usize).min(data.len());
            Ok(data[from..from.saturating_add(len).min(data.len())].to_vec())
        })
    }
    fn write_at<'a>(&'a self, offset: u64, data: &'a [u8]) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(async move {
            if self.mode == FileMode::Direct {
                assert!(
                    offset.is_multiple_of(DIRECT_ALIGN)
                        && (data.len() as u64).is_multiple_of(DIRECT_ALIGN),
                    "a direct write of {} bytes at {offset} is not aligned",
                    data.len()
                );
            }
            // A crash may come before, in the middle, or after: the write is in the cache first.
            {
                let mut state = self.disk.state.borrow_mut();
                if self.epoch != self.disk.epoch.get() {
                    return Err(crashed());
                }
                self.check_log(&state);
                let file = state.data(self.file)?;
                let (from, to) = (offset as usize, offset as usize + data.len());
                if file.cached.len() < to {
                    self.disk.needs_space()?;
                    file.cached.resize(to, 0);
                }
                file.cached[from..to].copy_from_slice(data);
                file.unsynced.push((from, data.len()));
            }
            self.op().await?;
            if self.disk.hits(self.disk.faults.get().write_errors) {
                return Err(self.fail());
            }
            Ok(())
        })
    }
    fn sync<'a>(&'a self) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let (covered, class) = match self.disk.state.borrow().nodes.get(&self.file) {
                Some(Node::File(class, data)) => (data.unsynced.len(), *class),
                _ => return Err(io::Error::other("no such file any more")),
            };
            self.op().await?;
            let faults = self.disk.faults.get();
            if self.disk.hits(faults.sync_errors) {
                // As Linux does: the pages are marked clean and what they held may never be written.
                if self.disk.world.rng.one_in(2) {
                    self.disk
                        .state
                        .borrow_mut()
                        .data(self.file)?
                        .unsynced
                        .clear();
                }
                return Err(self.fail());
            }
            if faults.sync_lies == Some(Lie::Everywhere) || faults.sync_lies == Some(Lie::Of(class))
            {
                return Ok(());
            }
            let mut state = self.disk.state.borrow_mut();
            let log = (class == Class::Log)
                .then(|| state.live_log(self.file))
                .flatten();
            let data = state.data(self.file)?;
            let synced: Vec<_> = data
                .unsynced
                .drain(..covered.min(data.unsynced.len()))
                .collect();
            let mut written = Vec::new();
            for (at, len) in synced {
                if data.durable.len() < at + len {
                    data.durable.resize(at + len, 0);
                }
                data.durable[at..at + len].copy_from_slice(&data.cached[at..at + len]);
                written.push((at, len, data.cached[at..at + len].iter().any(|&b| b != 0)));
            }
            for commits in state.commits.values_mut() {
                commits.retain(|&(file, from, n)| {
                    let over = written.iter().any(|w| w.0 < from + n && from < w.0 + w.1);
                    file != self.file || !over
                });
            }
            if let Some(dir) = log {
                let commits = state.commits.entry(dir).or_default();
                let full = written.iter().filter(|w| w.2);
                commits.extend(full.map(|w| (self.file, w.0, w.1)));
            }
            Ok(())
        })
    }
    fn size<'a>(&'a self) -> LocalFuture<'a, io::Result<u64>> {
        Box::pin(async move {
            self.op().await?;
            let mut state = self.disk.state.borrow_mut();
            Ok(state.data(self.file)?.cached.len() as u64)
        })
    }
}
