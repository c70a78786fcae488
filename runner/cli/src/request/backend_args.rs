//! `--backend` and `--image`.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use engine::backend::{self, Backend};
use engine::spec::BackendKind;

use crate::config::{self, UserConfig};
use crate::console::Console;
use crate::environment;
use crate::exit::Failure;

/// Where a sandbox runs, and what it is made of.
#[derive(Clone, Debug, Args)]
pub struct BackendArgs {
    /// Where the sandbox runs [default: auto].
    #[arg(long, value_parser = backend_kind(), value_name = "NAME", env = "SLUICE_BACKEND")]
    pub(crate) backend: Option<BackendKind>,

    /// The image the sandbox is made of [default: sluice/agent, or this machine's /usr with
    /// namespaces].
    #[arg(long, value_name = "IMAGE", env = "SLUICE_IMAGE")]
    image: Option<String>,
}

impl BackendArgs {
    pub(super) fn kind(&self, config: &UserConfig) -> BackendKind {
        self.backend.or(config.backend).unwrap_or_default()
    }

    /// Nothing means the backend's usual image.
    pub(crate) fn image(&self, config: &UserConfig) -> Option<String> {
        self.image.clone().or_else(|| config.image.clone())
    }

    /// Opens the backend that is meant, and says why it is this one if nobody chose it.
    pub(crate) async fn open(
        &self,
        console: &mut Console,
    ) -> Result<(Box<dyn Backend>, Option<String>), Failure> {
        let environment = environment::of_this_process();
        let config = config::load(environment)?;
        let opened = backend::open(self.kind(&config), environment).await;
        let opened = opened.map_err(anyhow::Error::new)?;
        if let Some(why) = &opened.why {
            console.say(why);
        }
        Ok((opened.backend, self.image(&config)))
    }
}

/// Reads the name of a backend.
pub(crate) fn backend_kind() -> impl TypedValueParser<Value = BackendKind> {
    let value = |kind: BackendKind| match kind {
        BackendKind::Auto => {
            PossibleValue::new(kind.name()).help("Docker or Podman if one answers, else namespaces")
        }
        BackendKind::Docker | BackendKind::Namespaces | BackendKind::Podman => {
            PossibleValue::new(kind.name())
        }
    };
    PossibleValuesParser::new(BackendKind::ALL.map(value))
        .map(|name| BackendKind::named(&name).expect("only names that are listed pass"))
}
