//! A disk in memory, without faults of its own: a test changes its files behind the engine's back.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::rc::Rc;
use strandline_core::io::{Disk, Env, File, FileMode, LocalFuture};
use strandline_tests::sim::world::{SimClock, SimRandom, SimTasks, World};

type Content = Rc<RefCell<Vec<u8>>>;

/// Files by path.
pub type Files = BTreeMap<String, Vec<u8>>;

/// See the module.
#[derive(Default)]
pub struct MemDisk {
    files: RefCell<BTreeMap<String, Content>>,
    folders: RefCell<BTreeSet<String>>,
}

impl MemDisk {
    /// With these files.
    pub fn of(files: &Files) -> Rc<MemDisk> {
        let disk = MemDisk::default();
        for (path, bytes) in files {
            let content = Rc::new(RefCell::new(bytes.clone()));
            disk.files.borrow_mut().insert(path.clone(), content);
        }
        Rc::new(disk)
    }
    /// A copy of all files.
    pub fn copy(&self) -> Files {
        let files = self.files.borrow();
        let copied = files.iter().map(|(p, c)| (p.clone(), c.borrow().clone()));
        copied.collect()
    }
    /// A world over this disk.
    pub fn env(self: &Rc<Self>, world: &Rc<World>) -> Env {
        Env {
            disk: self.clone(),
            clock: Rc::new(SimClock(world.clone())),
            random: Rc::new(SimRandom(world.clone())),
            tasks: Rc::new(SimTasks(world.clone())),
        }
    }
    fn take(&self, path: &str) -> io::Result<Content> {
        let found = self.files.borrow_mut().remove(path);
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
    fn names(&self, path: &str) -> Vec<String> {
        let prefix = match path {
            "" => String::new(),
            path => format!("{path}/"),
        };
        let mut names = BTreeSet::new();
        for at in self.files.borrow().keys().chain(&*self.folders.borrow()) {
            if let Some(rest) = at.strip_prefix(&prefix)
                && let Some(name) = rest.split('/').next().filter(|n| !n.is_empty())
            {
                names.insert(name.to_string());
            }
        }
        names.into_iter().collect()
    }
}

fn ready<'a, T: 'a>(value: T) -> LocalFuture<'a, T> {
    Box::pin(std::future::ready(value))
}

impl Disk for MemDisk {
    fn create<'a>(
        &'a self,
        path: &'a str,
        _mode: FileMode,
    ) -> LocalFuture<'a, io::Result<Rc<dyn File>>> {
        let content = Content::default();
        let file = Rc::new(MemFile(content.clone())) as Rc<dyn File>;
        self.files.borrow_mut().insert(path.to_string(), content);
        ready(Ok(file))
    }
    fn open<'a>(
        &'a self,
        path: &'a str,
        _mode: FileMode,
    ) -> LocalFuture<'a, io::Result<Rc<dyn File>>> {
        let content = self.files.borrow().get(path).cloned();
        ready(match content {
            Some(content) => Ok(Rc::new(MemFile(content)) as Rc<dyn File>),
            None => Err(io::ErrorKind::NotFound.into()),
        })
    }
    fn rename<'a>(&'a self, from: &'a str, to: &'a str) -> LocalFuture<'a, io::Result<()>> {
        ready(self.take(from).map(|content| {
            self.files.borrow_mut().insert(to.to_string(), content);
        }))
    }
    fn remove<'a>(&'a self, path: &'a str) -> LocalFuture<'a, io::Result<()>> {
        ready(self.take(path).map(drop))
    }
    fn hard_link<'a>(&'a self, from: &'a str, to: &'a str) -> LocalFuture<'a, io::Result<()>> {
        ready(self.take(from).map(|content| {
            let mut files = self.files.borrow_mut();
            files.insert(from.to_string(), content.clone());
            files.insert(to.to_string(), content);
        }))
    }
    fn create_dir_all<'a>(&'a self, path: &'a str) -> LocalFuture<'a, io::Result<()>> {
        self.folders.borrow_mut().insert(path.to_string());
        ready(Ok(()))
    }
    fn list<'a>(&'a self, path: &'a str) -> LocalFuture<'a, io::Result<Vec<String>>> {
        ready(Ok(self.names(path)))
    }
    fn sync_dir<'a>(&'a self, _path: &'a str) -> LocalFuture<'a, io::Result<()>> {
        ready(Ok(()))
    }
}

struct MemFile(Content);

impl File for MemFile {
    fn read_at<'a>(&'a self, offset: u64, len: usize) -> LocalFuture<'a, io::Result<Vec<u8>>> {
        let content = self.0.borrow();
        let start = usize::try_from(offset).map_or(content.len(), |o| o.min(content.len()));
        let end = start.saturating_add(len).min(content.len());
        ready(Ok(content[start..end].to_vec()))
    }
    fn write_at<'a>(&'a self, offset: u64, data: &'a [u8]) -> LocalFuture<'a, io::Result<()>> {
        let mut content = self.0.borrow_mut();
        let end = offset as usize + data.len();
        if content.len() < end {
            content.resize(end, 0);
        }
        content[offset as usize..end].copy_from_slice(data);
        ready(Ok(()))
    }
    fn sync<'a>(&'a self) -> LocalFuture<'a, io::Result<()>> {
        ready(Ok(()))
    }
    fn size<'a>(&'a self) -> LocalFuture<'a, io::Result<u64>> {
        ready(Ok(self.0.borrow().len() as u64))
    }
}
