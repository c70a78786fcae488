//! The filter of system calls, compiled for this machine and put in force.

use std::io;

use seccompiler::{BpfProgram, apply_filter, compile_from_json};

use crate::seccomp;

/// Two programs: the list, and the one call that must look as if it did not
/// exist.
pub(super) fn compile() -> io::Result<Vec<BpfProgram>> {
    let architecture = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
    let text = seccomp::for_compiler().to_string();
    let mut compiled =
        compile_from_json(text.as_bytes(), architecture).map_err(io::Error::other)?;
    seccomp::PROGRAMS
        .iter()
        .map(|name| {
            compiled.remove(*name).ok_or_else(|| io::Error::other(format!("no program {name}")))
        })
        .collect()
}

/// Puts them in force for this process and everything it becomes or starts. Of
/// two refusals the later one is told, so the order of the programs counts.
pub(super) fn install(programs: &[BpfProgram]) -> io::Result<()> {
    programs.iter().try_for_each(|program| apply_filter(program).map_err(io::Error::other))
}
