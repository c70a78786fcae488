//! The policy language.

mod problems;
pub mod yaml;

pub use problems::{At, Problem, Problems, Source};
