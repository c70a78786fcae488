//! Images, made here: nothing is ever pulled.

pub mod agent;
pub mod gateway;
