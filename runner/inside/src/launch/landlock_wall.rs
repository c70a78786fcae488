//! Landlock: what may be written to, said a second time.
//!
//! The first wall are the mounts. This one stands where a mistake in them would
//! show: a process may write below the places it was given, and nowhere else,
//! whatever is mounted there. It is not relied upon, since not every kernel has
//! it; what came of it is reported.

use landlock::{
    AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope, make_bitflags,
};

/// Builds the wall around this process and says what it is made of.
pub(super) fn build(writable: &[String]) -> String {
    match restrict(writable) {
        Ok(RulesetStatus::FullyEnforced) => "landlock".to_owned(),
        Ok(RulesetStatus::PartiallyEnforced) => "landlock, in part".to_owned(),
        Ok(RulesetStatus::NotEnforced) => "none: this kernel has no landlock".to_owned(),
        Err(err) => format!("none: {err}"),
    }
}

fn restrict(writable: &[String]) -> Result<RulesetStatus, RulesetError> {
    // Rights by name, not "all this kernel knows": a newer kernel would know
    // more of them, and a sandbox would lose what nobody meant to take.
    let ruleset = Ruleset::default()
        // Without this right a kernel refuses every rename to another directory.
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(READ | WRITE | AccessFs::Refer)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::Truncate)?
        .scope(Scope::AbstractUnixSocket | Scope::Signal)?;
    let mut ruleset = ruleset.create()?;
    let all = READ | WRITE | AccessFs::Refer | AccessFs::Truncate;
    let use_only = READ | AccessFs::WriteFile | AccessFs::Truncate;
    let places = [("/", READ), ("/dev", use_only), ("/proc", use_only)];
    let places = places.into_iter().chain(writable.iter().map(|path| (path.as_str(), all)));
    for (path, rights) in places {
        // What is not there cannot be written to either.
        if let Ok(fd) = PathFd::new(path) {
            let is_directory = std::path::Path::new(path).is_dir();
            let rights = if is_directory { rights } else { rights & FILE };
            ruleset = ruleset.add_rule(PathBeneath::new(fd, rights))?;
        }
    }
    Ok(ruleset.restrict_self()?.ruleset)
}

const READ: BitFlags<AccessFs> = make_bitflags!(AccessFs::{Execute | ReadFile | ReadDir});
/// Devices are on this list and on no list of permissions: nobody makes one.
const WRITE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{
    WriteFile | RemoveDir | RemoveFile | MakeChar | MakeDir | MakeReg | MakeSock | MakeFifo
        | MakeBlock | MakeSym
});
/// What there is to permit on a file.
const FILE: BitFlags<AccessFs> =
    make_bitflags!(AccessFs::{Execute | ReadFile | WriteFile | Truncate});
