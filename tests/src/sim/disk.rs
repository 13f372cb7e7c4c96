//! The simulated disk. A write is in the page cache until its file is synced; a name is in the cache until
//! its directory is. A crash keeps, of what was not synced, what the seed says: nothing, all, or single
//! sectors of it. Operations take virtual time and, when asked to, fail.

use crate::sim::world::World;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use strandline_core::io::{DIRECT_ALIGN, Disk, File, FileMode, LocalFuture};

/// What a crash keeps or loses as one.
const SECTOR: usize = 512;

type InodeId = u64;

#[derive(Default)]
struct Inode {
    /// What surely is on the disk.
    durable: Vec<u8>,
    /// What every reader sees.
    cached: Vec<u8>,
    /// Writes since the last sync: where, how long.
    unsynced: Vec<(usize, usize)>,
    /// A sync failed: the cache says "clean" of pages that never reached the disk.
    lost: bool,
}

/// A change of names in one directory, not yet synced.
#[derive(Clone, Debug)]
enum NameOp {
    Add(String, InodeId),
    Remove(String),
    /// A rename: one step, whatever a crash keeps.
    Move {
        from: String,
        to: String,
        inode: InodeId,
    },
}

impl NameOp {
    fn apply(self, names: &mut BTreeMap<String, InodeId>) {
        match self {
            NameOp::Add(path, inode) => {
                names.insert(path, inode);
            }
            NameOp::Remove(path) => {
                names.remove(&path);
            }
            NameOp::Move { from, to, inode } => {
                names.remove(&from);
                names.insert(to, inode);
            }
        }
    }
}

/// Which failures the disk injects.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskFaults {
    /// One write in so many fails (0: none).
    pub write_errors: u64,
    /// One sync in so many fails, and drops what it should have made durable (0: none).
    pub sync_errors: u64,
    /// One creation in so many finds no space (0: none).
    pub no_space: u64,
    /// Planted fault: sync answers and does nothing.
    pub sync_lies: bool,
}

struct State {
    inodes: BTreeMap<InodeId, Inode>,
    next_inode: InodeId,
    /// Names as the process sees them; full paths.
    names: BTreeMap<String, InodeId>,
    /// Names that a crash keeps for sure.
    durable_names: BTreeMap<String, InodeId>,
    /// Per directory, in order.
    pending_names: BTreeMap<String, Vec<NameOp>>,
    dirs: BTreeMap<String, ()>,
}

/// See the module. One value is the disk through all crashes of a run.
pub struct SimDisk {
    world: Rc<World>,
    state: RefCell<State>,
    /// Goes up with each crash: files opened before it are dead.
    epoch: Cell<u64>,
    /// Failures to inject.
    pub faults: Cell<DiskFaults>,
    /// Set when an injected failure hit.
    pub failed: Cell<bool>,
}

fn dir_of(path: &str) -> String {
    path.rsplit_once('/')
        .map_or(String::new(), |(d, _)| d.to_string())
}

fn not_found(path: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{path}: no such file"))
}

impl SimDisk {
    /// Empty.
    pub fn new(world: Rc<World>) -> Rc<Self> {
        Rc::new(SimDisk {
            world,
            state: RefCell::new(State {
                inodes: BTreeMap::new(),
                next_inode: 1,
                names: BTreeMap::new(),
                durable_names: BTreeMap::new(),
                pending_names: BTreeMap::new(),
                dirs: BTreeMap::new(),
            }),
            epoch: Cell::new(0),
            faults: Cell::default(),
            failed: Cell::new(false),
        })
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
        let state = &mut *state;
        for (_, ops) in std::mem::take(&mut state.pending_names) {
            // The directory's own order holds: a prefix of its changes is on the disk.
            let kept = rng.below(ops.len() as u64 + 1) as usize;
            ops.into_iter()
                .take(kept)
                .for_each(|op| op.apply(&mut state.durable_names));
        }
        state.names = state.durable_names.clone();
        for inode in state.inodes.values_mut() {
            for (at, len) in std::mem::take(&mut inode.unsynced) {
                let mode = rng.below(3);
                let mut from = at;
                while from < at + len {
                    // Sectors stand at multiples of their size in the file.
                    let to = ((from / SECTOR + 1) * SECTOR).min(at + len);
                    let keep = match mode {
                        0 => false,
                        1 => true,
                        _ => rng.one_in(2),
                    };
                    if keep && !inode.lost {
                        if inode.durable.len() < to {
                            inode.durable.resize(to, 0);
                        }
                        inode.durable[from..to].copy_from_slice(&inode.cached[from..to]);
                    }
                    from = to;
                }
            }
            inode.lost = false;
            inode.cached = inode.durable.clone();
        }
    }

    /// Every byte of every file as readers see it, for a look at what is still there.
    pub fn contains(&self, needle: &[u8]) -> bool {
        let state = self.state.borrow();
        state.names.values().any(|i| {
            state.inodes[i]
                .cached
                .windows(needle.len())
                .any(|w| w == needle)
        })
    }

    fn add_name(&self, path: &str, inode: InodeId) {
        let mut state = self.state.borrow_mut();
        state.names.insert(path.to_string(), inode);
        state
            .pending_names
            .entry(dir_of(path))
            .or_default()
            .push(NameOp::Add(path.to_string(), inode));
    }

    fn remove_name(&self, path: &str) -> Option<InodeId> {
        let mut state = self.state.borrow_mut();
        let inode = state.names.remove(path)?;
        state
            .pending_names
            .entry(dir_of(path))
            .or_default()
            .push(NameOp::Remove(path.to_string()));
        Some(inode)
    }
}

/// [`SimDisk`] as the engine sees it: with a root, and dead after a crash.
pub struct SimMount {
    disk: Rc<SimDisk>,
    epoch: u64,
    root: String,
}

impl SimMount {
    /// The disk as a process started now sees it, with `root` in front of every path.
    pub fn new(disk: Rc<SimDisk>, root: &str) -> Rc<Self> {
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
            return Err(io::Error::other("the machine crashed"));
        }
        Ok(())
    }
    fn file(&self, inode: InodeId, mode: FileMode) -> Rc<dyn File> {
        Rc::new(SimFile {
            disk: self.disk.clone(),
            epoch: self.epoch,
            inode,
            mode,
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
            let no_space = self.disk.faults.get().no_space;
            if no_space > 0 && self.disk.world.rng.one_in(no_space) {
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            let path = self.path(path);
            let inode = {
                let mut state = self.disk.state.borrow_mut();
                let inode = state.next_inode;
                state.next_inode += 1;
                state.inodes.insert(inode, Inode::default());
                inode
            };
            self.disk.add_name(&path, inode);
            Ok(self.file(inode, mode))
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
            let inode = self
                .disk
                .state
                .borrow()
                .names
                .get(&path)
                .copied()
                .ok_or_else(|| not_found(&path))?;
            Ok(self.file(inode, mode))
        })
    }
    fn rename<'a>(&'a self, from: &'a str, to: &'a str) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(async move {
            self.op().await?;
            let (from, to) = (self.path(from), self.path(to));
            let renamed = self.disk.state.borrow_mut().names.remove(&from);
            if let Some(inode) = renamed {
                let mut state = self.disk.state.borrow_mut();
                state.names.insert(to.clone(), inode);
                state
                    .pending_names
                    .entry(dir_of(&to))
                    .or_default()
                    .push(NameOp::Move { from, to, inode });
                return Ok(());
            }
            // A directory: every path below it moves, durably at once (its inode does not change).
            let mut state = self.disk.state.borrow_mut();
            let State {
                names,
                durable_names,
                pending_names,
                dirs,
                ..
            } = &mut *state;
            let prefix = format!("{from}/");
            let moved = |p: &str| p.strip_prefix(&prefix).map(|rest| format!("{to}/{rest}"));
            if !dirs.contains_key(&from) {
                return Err(not_found(&from));
            }
            for map in [names, durable_names] {
                let old: Vec<String> = map
                    .keys()
                    .filter(|k| k.starts_with(&prefix))
                    .cloned()
                    .collect();
                for path in old {
                    if let (Some(inode), Some(new)) = (map.remove(&path), moved(&path)) {
                        map.insert(new, inode);
                    }
                }
            }
            let old: Vec<String> = dirs
                .keys()
                .filter(|k| **k == from || k.starts_with(&prefix))
                .cloned()
                .collect();
            for dir in old {
                dirs.remove(&dir);
                dirs.insert(moved(&dir).unwrap_or_else(|| to.clone()), ());
                pending_names.remove(&dir);
            }
            Ok(())
        })
    }
    fn remove<'a>(&'a self, path: &'a str) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(async move {
            self.op().await?;
            let path = self.path(path);
            self.disk
                .remove_name(&path)
                .map(drop)
                .ok_or_else(|| not_found(&path))
        })
    }
    fn hard_link<'a>(&'a self, from: &'a str, to: &'a str) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(async move {
            self.op().await?;
            let (from, to) = (self.path(from), self.path(to));
            let inode = self
                .disk
                .state
                .borrow()
                .names
                .get(&from)
                .copied()
                .ok_or_else(|| not_found(&from))?;
            self.disk.add_name(&to, inode);
            Ok(())
        })
    }
    fn create_dir_all<'a>(&'a self, path: &'a str) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(async move {
            self.op().await?;
            let path = self.path(path);
            let mut state = self.disk.state.borrow_mut();
            let mut at = path.as_str();
            while !at.is_empty() {
                state.dirs.insert(at.to_string(), ());
                at = at.rsplit_once('/').map_or("", |(d, _)| d);
            }
            Ok(())
        })
    }
    fn list<'a>(&'a self, path: &'a str) -> LocalFuture<'a, io::Result<Vec<String>>> {
        Box::pin(async move {
            self.op().await?;
            let path = self.path(path);
            let prefix = if path.is_empty() {
                String::new()
            } else {
                format!("{path}/")
            };
            let state = self.disk.state.borrow();
            let mut found: Vec<String> = state
                .names
                .keys()
                .chain(state.dirs.keys())
                .filter_map(|p| p.strip_prefix(&prefix))
                .filter(|rest| !rest.is_empty())
                .map(|rest| rest.split('/').next().unwrap_or(rest).to_string())
                .collect();
            found.sort();
            found.dedup();
            Ok(found)
        })
    }
    fn sync_dir<'a>(&'a self, path: &'a str) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(async move {
            self.op().await?;
            let path = self.path(path);
            let mut state = self.disk.state.borrow_mut();
            let State {
                pending_names,
                durable_names,
                ..
            } = &mut *state;
            for op in pending_names.remove(&path).unwrap_or_default() {
                op.apply(durable_names);
            }
            Ok(())
        })
    }
}

struct SimFile {
    disk: Rc<SimDisk>,
    epoch: u64,
    inode: InodeId,
    mode: FileMode,
}

impl SimFile {
    async fn op(&self) -> io::Result<()> {
        self.disk.latency().await;
        if self.epoch != self.disk.epoch.get() {
            return Err(io::Error::other("the machine crashed"));
        }
        Ok(())
    }
    fn fails(&self, one_in: u64) -> io::Result<()> {
        if one_in > 0 && self.disk.world.rng.one_in(one_in) {
            self.disk.failed.set(true);
            return Err(io::Error::other("injected input/output error"));
        }
        Ok(())
    }
    fn gone() -> io::Error {
        io::Error::other("no such inode")
    }
}

impl File for SimFile {
    fn read_at<'a>(&'a self, offset: u64, len: usize) -> LocalFuture<'a, io::Result<Vec<u8>>> {
        Box::pin(async move {
            self.op().await?;
            let state = self.disk.state.borrow();
            let data = &state
                .inodes
                .get(&self.inode)
                .ok_or_else(SimFile::gone)?
                .cached;
            let from = (offset as usize).min(data.len());
            Ok(data[from..from.saturating_add(len).min(data.len())].to_vec())
        })
    }
    fn write_at<'a>(&'a self, offset: u64, data: &'a [u8]) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(async move {
            if self.mode == FileMode::Direct {
                assert!(
                    offset % DIRECT_ALIGN == 0 && data.len() as u64 % DIRECT_ALIGN == 0,
                    "a direct write of {} bytes at {offset} is not aligned",
                    data.len()
                );
            }
            // A crash may come before, in the middle, or after: the write is in the cache first.
            {
                let mut state = self.disk.state.borrow_mut();
                if self.epoch != self.disk.epoch.get() {
                    return Err(io::Error::other("the machine crashed"));
                }
                let inode = state
                    .inodes
                    .get_mut(&self.inode)
                    .ok_or_else(SimFile::gone)?;
                let (from, to) = (offset as usize, offset as usize + data.len());
                if inode.cached.len() < to {
                    inode.cached.resize(to, 0);
                }
                inode.cached[from..to].copy_from_slice(data);
                inode.unsynced.push((from, data.len()));
            }
            self.op().await?;
            self.fails(self.disk.faults.get().write_errors)
        })
    }
    fn sync<'a>(&'a self) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let covered = {
                let state = self.disk.state.borrow();
                state
                    .inodes
                    .get(&self.inode)
                    .ok_or_else(SimFile::gone)?
                    .unsynced
                    .len()
            };
            self.op().await?;
            if let Err(e) = self.fails(self.disk.faults.get().sync_errors) {
                // As Linux does: the pages are marked clean and what they held may never be written.
                let mut state = self.disk.state.borrow_mut();
                if self.disk.world.rng.one_in(2)
                    && let Some(inode) = state.inodes.get_mut(&self.inode)
                {
                    inode.unsynced.clear();
                }
                return Err(e);
            }
            if self.disk.faults.get().sync_lies {
                return Ok(());
            }
            let mut state = self.disk.state.borrow_mut();
            let inode = state
                .inodes
                .get_mut(&self.inode)
                .ok_or_else(SimFile::gone)?;
            for (at, len) in inode
                .unsynced
                .drain(..covered.min(inode.unsynced.len()))
                .collect::<Vec<_>>()
            {
                if inode.durable.len() < at + len {
                    inode.durable.resize(at + len, 0);
                }
                inode.durable[at..at + len].copy_from_slice(&inode.cached[at..at + len]);
            }
            Ok(())
        })
    }
    fn size<'a>(&'a self) -> LocalFuture<'a, io::Result<u64>> {
        Box::pin(async move {
            self.op().await?;
            let state = self.disk.state.borrow();
            Ok(state
                .inodes
                .get(&self.inode)
                .ok_or_else(SimFile::gone)?
                .cached
                .len() as u64)
        })
    }
}
