//! Why an action was not carried out, and how the caller is told.

use audit::{ErrorChain, Unavailable};
use policies::Problem;
use protocol::control::PolicyProblem;

use crate::policy_file::PolicyError;

/// Why an action was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ActionError {
    #[error("the gateway is stopping, and takes no policy any more")]
    Draining,
    #[error("the policy was refused, and the one before it stays: {}", summary(.0))]
    Policy(#[from] PolicyError),
    #[error("what cannot be recorded is not done: {0}")]
    Unrecorded(#[from] Unavailable),
}

impl ActionError {
    /// A stable code, and the status it is sent with.
    pub(super) fn status_and_code(&self) -> (u16, &'static str) {
        match self {
            Self::Draining => (409, "draining"),
            Self::Policy(_) => (422, "policy_refused"),
            Self::Unrecorded(_) => (503, "audit_unavailable"),
        }
    }

    /// Everything that is wrong with the policy, if that was it.
    pub(super) fn problems(&self) -> Vec<PolicyProblem> {
        match self {
            Self::Policy(PolicyError::Problems(problems)) => problems.iter().map(written).collect(),
            Self::Policy(PolicyError::Beyond(beyond)) => {
                beyond.iter().map(|one| whole(one.to_string())).collect()
            }
            Self::Policy(other @ (PolicyError::Read { .. } | PolicyError::TooLarge { .. })) => {
                vec![whole(ErrorChain(other).to_string())]
            }
            Self::Draining | Self::Unrecorded(_) => Vec::new(),
        }
    }
}

fn written(problem: &Problem) -> PolicyProblem {
    PolicyProblem {
        source: problem.source.to_string(),
        line: problem.at.map(|at| at.line),
        column: problem.at.map(|at| at.column),
        path: problem.path.clone(),
        message: problem.message.clone(),
        text: problem.to_string(),
    }
}

/// A problem that has no place in the file.
fn whole(message: String) -> PolicyProblem {
    PolicyProblem { text: message.clone(), message, ..PolicyProblem::default() }
}

/// Without the problems themselves, which stand beside it.
fn summary(err: &PolicyError) -> String {
    let count = match err {
        PolicyError::Beyond(beyond) => beyond.len(),
        PolicyError::Problems(problems) => problems.len(),
        PolicyError::Read { .. } | PolicyError::TooLarge { .. } => {
            return ErrorChain(err).to_string();
        }
    };
    if count == 1 { "it has 1 problem".to_owned() } else { format!("it has {count} problems") }
}
