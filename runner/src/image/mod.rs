//! Images, made here: nothing is ever pulled.

pub mod agent;
pub mod gateway;
pub mod program;
mod verb;

pub use verb::{Image, run};
