//! The policy language of Sluice: read, check, merge, decide, explain.
//!
//! Start at [`read`], which turns a file into a [`Policy`] or into everything
//! that is wrong with it, and at [`Policy::decide`], which answers for one
//! request. Between the two stand the types that both sides of the gateway
//! share: a [`HostName`], a [`Destination`], a [`RequestPath`] are parsed once,
//! here, and compared as they are.
//!
//! **Invariant:** this crate does no I/O, starts no task and reads no clock.

mod address;
mod authority;
mod bounds;
mod capability;
mod compile;
mod decide;
mod document;
mod explain;
mod fields;
mod fold;
mod from_text;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod glob;
mod host;
mod index;
mod lint;
mod literal;
mod merge;
mod method;
mod names;
mod overridden;
mod overrides;
mod path;
mod pattern;
mod pinned;
mod policy;
pub mod presets;
mod problems;
mod query;
mod reach;
mod read;
mod readings;
mod rule;
mod schema;
mod summary;
mod target;
mod testing;
mod units;
mod verdict;
mod written;
pub mod yaml;

pub use address::{AddressClass, embedded_v4};
pub use authority::{Authority, AuthorityError, AuthorityFault, Destination, Host};
pub use bounds::{MayMount, ProjectBounds};
pub use capability::{
    BodyCheck, GitRepository, NpmPackage, PythonPackage, Registries, RegistryUrl,
};
pub use decide::{Admission, Question};
pub use document::{
    Document, Expectation, Mode, MountMode, OverridesSection, ScanAction, SecretFrom, Workspace,
};
pub use explain::{Explanation, JudgedReading, NearMiss};
pub use fields::{
    FieldError, Headers, check_fields, control_field, is_gateway_field, is_same_field,
    misspelt_control_field,
};
pub use glob::{FileGlob, PathPattern, RefPattern, TextPattern};
pub use host::{HostError, HostFault, HostName};
pub use lint::Finding;
pub use method::{Method, MethodError};
pub use names::{HeaderName, Name, NameError, RelativePath, SandboxPath, SecretName};
pub use overridden::{FurtherPath, Overridden, OverrideError, Sent, is_override_field};
pub use overrides::{Beyond, RunOverrides};
pub use path::{PathError, PathFault, RequestPath};
pub use pattern::{HostPattern, PatternError, PatternFault};
pub use policy::{
    Approvals, Carried, Fs, Mount, Net, NetLimits, Note, Overrides, Policy, PolicyTest, ProcLimits,
    Scan, Secret,
};
pub use problems::{At, Problem, Problems, Source, did_you_mean};
pub use query::Query;
pub use reach::{AddressRange, DialAddr, Forbidden, RangeError, RangeFault, Reach};
pub use read::{NoFiles, Sources, read};
pub use rule::{Mismatch, Rule, WrittenAt};
pub use schema::schema;
pub use target::{Scheme, Target, TargetError, UrlError, UrlFault};
pub use testing::{Asked, TestResult};
pub use units::{Cpus, Size, Span, UnitError, UnitFault};
pub use verdict::{Decision, NotDoneYet, Reason, Verdict};
