//! `sluice completions`: what a shell needs to complete our commands.

use clap::Command;
use clap_complete::Shell;

use crate::console::Console;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::runs;
use crate::session;

/// Print a shell completion script.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sluice completions bash > ~/.local/share/bash-completion/completions/sluice
  sluice completions zsh > \"${fpath[1]}/_sluice\"
  sluice completions fish > ~/.config/fish/completions/sluice.fish

In bash, runs and sessions are completed by name too.")]
pub struct Completions {
    /// The shell.
    #[arg(value_enum, required_unless_present = "names")]
    shell: Option<Shell>,
    /// Print the names that can be completed, instead.
    #[arg(long, hide = true, conflicts_with = "shell", env = "SLUICE_COMPLETIONS_NAMES")]
    names: Option<NameKind>,
}

/// What has names of its own.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum NameKind {
    Runs,
    Sessions,
}

pub fn run(
    asked: &Completions,
    mut command: Command,
    console: &mut Console,
) -> Result<Exit, Failure> {
    match (asked.names, asked.shell) {
        (Some(NameKind::Runs), _) => {
            let place = environment::of_this_process().runs();
            let mut all = place.map(|place| runs::names(&place)).unwrap_or_default();
            all.sort();
            // The newest first, and no more than anybody looks through.
            let newest = all.into_iter().rev().take(MAX_COMPLETED_RUNS);
            std::iter::once("last".to_owned())
                .chain(newest)
                .try_for_each(|name| console.line(name))?;
        }
        (Some(NameKind::Sessions), _) => {
            session::names().into_iter().try_for_each(|name| console.line(name))?;
        }
        (None, Some(shell)) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command, "sluice", &mut script);
            if shell == Shell::Bash {
                script.extend_from_slice(NAMES_IN_BASH.as_bytes());
            }
            console.raw(&script)?;
        }
        (None, None) => {}
    }
    Ok(Exit::Success)
}

const MAX_COMPLETED_RUNS: usize = 50;

/// Adds names to what the generated function finds.
const NAMES_IN_BASH: &str = r#"
_sluice_with_names() {
    _sluice "$@"
    local word=${COMP_WORDS[COMP_CWORD]} names=
    case $word in -*) return ;; esac
    case "${COMP_WORDS[1]} ${COMP_WORDS[2]}" in
    apply\ * | artifacts\ * | diff\ * | logs\ * | rm\ * | stats\ * | transcript\ * | "audit show")
        names=$(sluice completions --names runs 2>/dev/null) ;;
    "session cp" | "session exec" | "session shell" | "session stop")
        names=$(sluice completions --names sessions 2>/dev/null) ;;
    esac
    COMPREPLY+=($(compgen -W "$names" -- "$word"))
}
complete -F _sluice_with_names -o bashdefault -o default sluice
"#;
