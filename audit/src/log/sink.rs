//! Where the writer's bytes go.

use std::io;

/// A place for lines that can fail like a disk.
///
/// [`Folder`](super::Folder) is the real one. A test wraps it to run out of
/// space at a chosen byte.
pub trait Sink: Send {
    /// Appends some of `bytes` to the current segment and says how many.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Forces what was written to disk.
    fn sync(&mut self) -> io::Result<()>;

    /// Finishes the current segment, begins an empty one, and returns the name
    /// of the finished one.
    fn rotate(&mut self) -> io::Result<String>;
}
