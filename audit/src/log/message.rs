//! What a handle tells the writer.

use tokio::sync::oneshot;
use uuid::Uuid;

use super::unavailable::Unavailable;
use crate::chain::Head;
use crate::event::{Run, What};
use crate::time::Time;

#[derive(Debug)]
pub(super) enum Message {
    /// Write `log_closed` once every entry has closed, and say where it ended.
    Close(oneshot::Sender<Result<Head, Unavailable>>),
    Record(Box<Record>),
}

/// A line to be: everything but its place in the chain.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) id: Uuid,
    pub(super) time: Time,
    pub(super) run: Run,
    pub(super) what: What,
    /// How many places are free again once it is written.
    pub(super) places: u32,
    /// Who waits for it to be safe.
    pub(super) written: Option<oneshot::Sender<Result<(), Unavailable>>>,
}
