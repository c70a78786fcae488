//! Runs commands in sandboxes: the engine under `sluice`.
//!
//! [`spec`] says what is wanted, [`plan`] decides what that means, a [`backend`]
//! carries it out; [`workspace`] shows the project and brings changes home;
//! [`evidence`] keeps what happened.
//!
//! **Invariant:** nothing here prints, asks a person, reads a terminal or the
//! process's own variables.
//!
//! **Invariant:** nothing here runs, or reads as configuration, what stands in
//! a project's own tree: an agent may have written it.

pub mod abilities;
pub mod backend;
pub mod command;
pub mod connector;
pub mod control;
pub mod detached;
pub mod disk;
mod door_places;
pub mod environment;
pub mod evidence;
pub mod first_process;
pub mod http_client;
pub mod image;
pub mod isolation;
pub mod leftovers;
pub mod link;
pub mod origin;
pub mod outcome;
pub mod own_user;
pub mod phases;
pub mod plan;
pub mod prepare;
pub mod public_file;
pub mod record;
mod record_format;
pub mod report;
pub mod resolve;
pub mod resource;
pub mod run;
pub mod run_id;
pub mod run_lock;
pub mod session;
pub mod settings;
#[cfg(test)]
#[path = "../../../tests/src/skip.rs"]
mod skip;
pub mod spec;
pub mod spooled;
pub mod start_turn;
pub mod state_folder;
mod static_program;
pub mod supervise;
pub mod sweep;
pub mod teardown;
pub mod unsealed;
pub mod work_budget;
pub mod workspace;
