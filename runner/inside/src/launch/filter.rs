//! The filter of system calls, compiled for this machine and put in force.

use std::io;

use seccompiler::{BpfProgram, apply_filter, compile_from_json};

use crate::seccomp;

/// A sandbox's. Two programs: the list, and the calls that must look as if they did not
/// exist.
pub(super) fn compile() -> io::Result<Vec<BpfProgram>> {
    programs(&seccomp::for_compiler(), &seccomp::PROGRAMS)
}

/// The one of a relay's end on the host.
pub(super) fn compile_for_relay() -> io::Result<Vec<BpfProgram>> {
    programs(&seccomp::relay_for_compiler(), &[seccomp::RELAY_PROGRAM])
}

fn programs(filters: &serde_json::Value, names: &[&str]) -> io::Result<Vec<BpfProgram>> {
    let architecture = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
    let text = filters.to_string();
    let mut compiled =
        compile_from_json(text.as_bytes(), architecture).map_err(io::Error::other)?;
    names
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

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::thread;

    use super::*;
    use crate::skip;

    /// Whether it succeeds behind the filter, which only its own thread has.
    fn succeeds(words: &[&str]) -> bool {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdout(Stdio::null()).stderr(Stdio::null());
        let run = move || {
            install(&compile().unwrap()).unwrap();
            command.status().unwrap().success()
        };
        thread::spawn(run).join().unwrap()
    }

    /// Somebody else with our user, as the first process is for a command.
    struct Other(Child);

    impl Drop for Other {
        fn drop(&mut self) {
            self.0.kill().ok();
            self.0.wait().ok();
        }
    }

    #[test]
    fn a_process_has_its_own_priority_and_nobody_elses() {
        let tools = ["chrt", "ionice", "nice", "prlimit", "python3", "renice", "taskset"];
        if !tools.into_iter().all(skip::is_installed) {
            return;
        }
        let other = Other(Command::new("sleep").arg("600").spawn().unwrap());
        let pid = other.0.id().to_string();
        let ordinary =
            format!("import os; os.sched_setscheduler({pid}, os.SCHED_OTHER, os.sched_param(0))");
        for refused in [
            &["renice", "-n", "5", "-p", &pid][..],
            &["renice", "-n", "0", "-g", &pid],
            &["chrt", "--idle", "-p", "0", &pid],
            &["chrt", "--batch", "-p", "0", &pid],
            &["ionice", "-c", "3", "-p", &pid],
            &["ionice", "-c", "3", "-P", &pid],
            &["prlimit", "--nofile=10", "--pid", &pid],
        ] {
            assert!(!succeeds(refused), "{refused:?}");
        }
        for allowed in [
            &["nice", "-n", "5", "true"][..],
            &["chrt", "--idle", "0", "true"],
            &["ionice", "-c", "3", "true"],
            &["taskset", "1", "true"],
            // The C library names a thread by its number, also the one that asks.
            &["python3", "-c", &ordinary],
            &["taskset", "-p", "1", &pid],
        ] {
            assert!(succeeds(allowed), "{allowed:?}");
        }
    }
}
