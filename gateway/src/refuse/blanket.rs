//! One refusal for all requests of a connection.

use super::Refusal;
use crate::admit::NotAdmitted;
use crate::denial::Denial;
use crate::limits::LimitReached;

/// Why every request of a connection is refused.
#[derive(Clone, Debug)]
pub(crate) enum BlanketRefusal {
    /// Not even its name may leave.
    BudgetSpent(LimitReached),
    ConnectInside,
    Denied(Denial),
    NameMismatch {
        admitted: String,
        named: String,
    },
}

impl BlanketRefusal {
    pub(crate) fn refusal(&self) -> Refusal {
        match self.clone() {
            Self::BudgetSpent(limit) => Refusal::BudgetSpent(limit),
            Self::ConnectInside => Refusal::ConnectInside,
            Self::Denied(denial) => Refusal::Policy(denial),
            Self::NameMismatch { admitted, named } => Refusal::NameMismatch { admitted, named },
        }
    }
}

impl From<NotAdmitted> for BlanketRefusal {
    fn from(why: NotAdmitted) -> Self {
        match why {
            NotAdmitted::BudgetSpent(limit) => Self::BudgetSpent(limit),
            NotAdmitted::Denied(denial) => Self::Denied(denial),
        }
    }
}
