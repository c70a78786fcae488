//! Messages from handles to the writer.

use tokio::sync::oneshot;

use super::unavailable::Unavailable;
use crate::chain::ChainHead;

/// Sends the result once a line is as safe as the [`SyncPolicy`](super::SyncPolicy) makes it.
pub(super) type SyncReply = oneshot::Sender<Result<(), Unavailable>>;

#[derive(Debug)]
pub(super) enum WriterMessage {
    /// Write `log_closed` once every entry has closed, and say where it ended.
    Close(oneshot::Sender<Result<ChainHead, Unavailable>>),
    Record(QueuedRecord),
    /// Say when everything before is safe.
    Settle(SyncReply),
}

/// A record to be written. Its fields are among the queue's bytes.
#[derive(Debug)]
pub(super) struct QueuedRecord {
    /// How many bytes its fields take.
    pub(super) length: usize,
    /// How many places are free again once it is written.
    pub(super) places: u32,
    /// Where to report that it is safe.
    pub(super) written: Option<SyncReply>,
}
