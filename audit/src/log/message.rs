//! What a handle tells the writer.

use tokio::sync::oneshot;

use super::unavailable::Unavailable;
use crate::chain::Head;

/// Whoever waits for a line to be as safe as the policy makes it.
pub(super) type Answer = oneshot::Sender<Result<(), Unavailable>>;

#[derive(Debug)]
pub(super) enum Message {
    /// Write `log_closed` once every entry has closed, and say where it ended.
    Close(oneshot::Sender<Result<Head, Unavailable>>),
    Record(Record),
    /// Say when everything before is safe.
    Settle(Answer),
}

/// A line to be. Its fields are among the bytes that were handed over.
#[derive(Debug)]
pub(super) struct Record {
    /// How many of them.
    pub(super) length: usize,
    /// How many places are free again once it is written.
    pub(super) places: u32,
    /// Who waits for it to be safe.
    pub(super) written: Option<Answer>,
}
