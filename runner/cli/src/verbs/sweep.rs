//! `sluice sweep`.

use clap::Args;
use engine::backend::{self, BackendError};
use engine::sweep::{Swept, sweep};
use files::printable::Printable;

use crate::caller;
use crate::console::{Console, Format};
use crate::environment;
use crate::exit::{Exit, Failure};

/// Clean up after killed runs.
#[derive(Debug, Args)]
pub struct Sweep {}

pub fn run(_: &Sweep, console: &mut Console) -> Result<Exit, Failure> {
    let environment = environment::of_this_process();
    let runtime = caller::runtime()?;
    let swept = runtime.block_on(async {
        let mut swept = Swept::default();
        for backend in backend::all(environment).await {
            let found = sweep(&*backend, environment).await?;
            swept.removed.extend(found.removed);
            swept.left.extend(found.left);
            swept.sealed.extend(found.sealed);
            swept.missing.extend(found.missing);
        }
        Ok::<_, BackendError>(swept)
    });
    let swept = swept.map_err(anyhow::Error::new)?;
    if console.format == Format::Table {
        for thing in &swept.removed {
            console.line(format_args!("removed {thing}"))?;
        }
        for thing in &swept.left {
            console.say(format_args!("left behind: {thing}"));
        }
        for run in &swept.sealed {
            console.line(format_args!("sealed {run} as lost"))?;
        }
        for what in &swept.missing {
            console.say(format_args!("not in the evidence: {}", Printable(what)));
        }
        if swept.removed.is_empty() && swept.left.is_empty() && swept.sealed.is_empty() {
            console.say("nothing to clean up");
        }
    } else {
        console.json(&swept)?;
    }
    Ok(if swept.left.is_empty() { Exit::Success } else { Exit::Failed })
}
