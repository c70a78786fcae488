//! The policy language of Sluice: read, check, merge, decide, explain.
//!
//! Start at [`read()`], which turns a file into a [`Policy`] or into everything
//! that is wrong with it, and at [`Policy::decide`], which answers for one
//! request. One rule's way from YAML to a decision is a file a step: `yaml`,
//! `document` (as written), `compile` (into `rule`), `merge`, `index`, `decide` (a
//! `question` into a `decision`).
//! Both sides of the gateway share the types [`HostName`], [`Destination`] and
//! [`RequestPath`]: they are parsed once, here, and compared as they are.
//!
//! **Invariant:** this crate does no I/O, starts no task and reads no clock.

mod address_class;
mod attachment;
mod authority;
mod capability;
mod case_fold;
mod compile;
mod decide;
mod decision;
mod document;
mod doors;
mod explain;
mod from_text;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod glob;
mod header_fields;
mod host;
mod host_pattern;
mod index;
mod ipv4_literal;
mod lint;
mod merge;
mod method;
mod names;
mod path;
mod path_readings;
mod path_spelling;
mod pinned;
mod policy;
mod policy_tests;
pub mod presets;
mod problems;
mod project_bounds;
mod python_package;
mod query;
mod question;
mod quoted_input;
mod reach;
mod read;
mod request_overrides;
mod rule;
mod run_overrides;
mod sample_request;
mod schema;
mod summary;
mod target;
mod units;
mod verdict;
pub mod yaml;

pub use address_class::{AddressClass, embedded_v4};
pub use attachment::Attachment;
pub use authority::{Authority, AuthorityError, AuthorityFault, Destination, Host};
pub use capability::{GitRepository, NpmPackage, Registries, RegistryKind, RegistryUrl};
pub use decide::Admission;
pub use decision::{Decision, NotDoneYet, Reason};
pub use document::{
    Expectation, Mode, MountMode, OverridesSection, PolicyDocument, ScanAction, SecretFrom,
    Workspace,
};
pub use doors::{NamedHost, PolicyDoors};
pub use explain::{Explanation, JudgedReading, NearMiss};
pub use glob::{FileGlob, PathPattern, RefPattern, TextPattern};
pub use header_fields::{
    FieldError, Headers, check_fields, control_field, is_gateway_field, is_same_field,
    misspelt_control_field,
};
pub use host::{HostError, HostFault, HostName};
pub use host_pattern::{HostPattern, PatternError, PatternFault};
pub use lint::LintFinding;
pub use method::{Method, MethodError};
pub use names::{HeaderName, NameError, PlainName, RelativePath, SandboxPath, SecretName};
pub use path::{PathError, RequestPath};
pub use path_spelling::PathFault;
pub use policy::{
    ApprovalSettings, Carried, Fs, Mount, Net, NetLimits, Overrides, Policy, PolicyNote,
    PolicyTest, ProcLimits, ScanSettings, Secret,
};
pub use policy_tests::TestResult;
pub use problems::{Position, Problem, Problems, Source, did_you_mean};
pub use project_bounds::{MayMount, ProjectBounds};
pub use python_package::PythonPackage;
pub use query::Query;
pub use question::PolicyQuestion;
pub use reach::{AddressRange, DialAddr, Forbidden, RangeError, RangeFault, Reach};
pub use read::{NoFiles, Sources, read};
pub use request_overrides::{
    AlternatePath, OverrideError, RequestOverrides, SentRequest, is_override_field,
};
pub use rule::{BodyCheck, Mismatch, Rule, RuleLocation};
pub use run_overrides::{NotPermitted, RunOverrides};
pub use sample_request::SampleRequest;
pub use schema::schema;
pub use target::{Scheme, Target, TargetError, UrlError, UrlFault};
pub use units::{Cpus, Size, Span, UnitError, UnitFault};
pub use verdict::Verdict;
