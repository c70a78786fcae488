//! What `sluice` can be asked: a file a verb.

pub mod apply;
pub mod artifacts;
pub mod completions;
pub mod demo;
pub mod diff;
pub mod doctor;
pub mod image;
pub mod logs;
pub mod ls;
pub mod rm;
pub mod run;
pub mod selftest;
pub mod stats;
pub mod sweep;
pub mod transcript;
