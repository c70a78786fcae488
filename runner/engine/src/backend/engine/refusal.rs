//! What an engine means by a refusal.
//!
//! Engines have a status for some refusals, and for others words alone. Those
//! words are Docker's and Podman's, may change with their versions, and are known
//! nowhere else than here.

use bollard::errors::Error;

/// The status of the engine's refusal, if it was one.
pub(in crate::backend) fn status(err: &Error) -> Option<u16> {
    match err {
        Error::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

/// It is in use, or being removed by somebody else at this moment. Docker has a
/// status for it, Podman says it in words.
pub(super) fn is_in_use(err: &Error) -> bool {
    match status(err) {
        Some(403 | 409) => true,
        Some(500) => says(err, "being used"),
        Some(_) | None => false,
    }
}

/// Somebody else has that subnet: another run, or a network of the host's.
pub(in crate::backend) fn is_subnet_taken(err: &Error) -> bool {
    matches!(status(err), Some(400 | 403 | 409 | 500)) && says(err, "overlap")
}

/// There is a network of that name, or its bridge: another run was faster.
pub(in crate::backend) fn is_network_there(err: &Error) -> bool {
    status(err) == Some(409) || says(err, "same bridge")
}

/// The answer was one, and has a word in it that we do not know. Podman has words
/// for states that Docker's interface does not have, for the moment in which a
/// container changes from one to the other.
pub(super) fn is_unknown_word(err: &Error) -> bool {
    matches!(err, Error::JsonDataError { .. } | Error::JsonSerdeError { .. })
}

fn says(err: &Error, words: &str) -> bool {
    match err {
        Error::DockerResponseServerError { message, .. } => message.contains(words),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status_code: u16, message: &str) -> Error {
        Error::DockerResponseServerError { status_code, message: message.to_owned() }
    }

    /// As Docker 20.10 to 29 and Podman 4 to 5 say it.
    #[test]
    fn what_engines_say_in_words_is_understood() {
        let podman = "\"sluice-x\" has associated containers with it. ... network is being used";
        assert!(is_in_use(&refusal(500, podman)));
        assert!(is_in_use(&refusal(403, "error while removing network: has active endpoints")));
        assert!(!is_in_use(&refusal(500, "no space left on device")));

        let pool = "Pool overlaps with other one on this address space";
        let bridge = "cannot create network 1f (br-a): conflicts with network 2e (br-b): networks \
                      have overlapping IPv4";
        for (status, words) in [(403, pool), (400, pool), (500, bridge)] {
            assert!(is_subnet_taken(&refusal(status, words)), "{words}");
        }
        assert!(!is_subnet_taken(&refusal(404, pool)));

        assert!(is_network_there(&refusal(409, "network with name sluice-egress already exists")));
        let bridge = "conflicts with network 2e (sluice-egress): networks have same bridge name";
        assert!(is_network_there(&refusal(403, bridge)));
        assert!(!is_network_there(&refusal(500, "failed to create bridge")));
    }

    #[test]
    fn an_answer_that_cannot_be_read_is_no_refusal() {
        let unread = serde_json::from_str::<u8>("\"stopping\"").unwrap_err();
        let err = Error::JsonSerdeError { err: unread };
        assert!(is_unknown_word(&err));
        assert!(!is_in_use(&err) && !is_subnet_taken(&err) && status(&err).is_none());
        assert!(!is_unknown_word(&refusal(500, "unknown variant")));
    }
}
