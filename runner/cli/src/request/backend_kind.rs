//! `--backend`.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use engine::spec::BackendKind;

/// Reads the name of a backend.
pub(crate) fn backend_kind() -> impl TypedValueParser<Value = BackendKind> {
    let value = |kind: BackendKind| match kind {
        BackendKind::Auto => {
            PossibleValue::new(kind.name()).help("An engine if one answers, else namespaces")
        }
        BackendKind::Docker | BackendKind::Namespaces | BackendKind::Podman => {
            PossibleValue::new(kind.name())
        }
    };
    PossibleValuesParser::new(BackendKind::ALL.map(value))
        .map(|name| BackendKind::named(&name).expect("only names that are listed pass"))
}
