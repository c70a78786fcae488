//! Where the writer's bytes go.

use std::fs::File;
use std::io;
use std::sync::Arc;

/// A place for lines that can fail like a disk.
///
/// [`Folder`](super::Folder) is the real one. A test wraps it to run out of
/// space at a chosen byte.
pub trait Sink: Send {
    /// Appends some of `bytes` to the current segment and says how many.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// What forces the current segment to disk. It is used while others write.
    fn durable(&self) -> Arc<dyn Durable>;

    /// Finishes the current segment, begins an empty one, and returns the name
    /// of the finished one. Called again after it failed for want of room, it
    /// goes on where it failed.
    fn rotate(&mut self) -> io::Result<String>;
}

/// Something written that can be forced to disk.
pub trait Durable: Send + Sync {
    fn sync(&self) -> io::Result<()>;
}

impl Durable for File {
    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}
