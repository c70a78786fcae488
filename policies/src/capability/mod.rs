//! Rules about what is done, not only where: repositories and packages.
//!
//! A capability rule is expanded into the same [`Shape`](crate::rule::Shape)s that ordinary rules
//! are made of, so that deciding knows nothing of git or of package managers.
//! What a shape cannot say (which ref a push updates stands in the body) is
//! left as a [`BodyCheck`](crate::BodyCheck) for the gateway: a request whose decision carries
//! one may only go out through a gateway that carries it out.
//!
//! No registry's address is written here. It comes from the rule, else from
//! the package manager's own configuration, which the caller has read
//! ([`Registries`]).

mod git;
mod npm;
mod pip;
mod registry;

pub use git::GitRepository;
pub(crate) use git::{Access, expand as expand_git};
pub use npm::NpmPackage;
pub(crate) use npm::expand as expand_npm;
pub(crate) use pip::expand as expand_pip;
pub(crate) use registry::RegistryLookup;
pub use registry::{Registries, RegistryKind, RegistryUrl};

#[cfg(test)]
mod tests;
