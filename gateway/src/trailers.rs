//! Fields that come after a body.
//!
//! Some servers merge them into the head, after policy has judged it. So
//! a trailer of a request may not be named like anything that decides what the
//! request means: what frames or routes it, what says who sent it, what replaces
//! its method, path, host or scheme, what a rule of the policy judges. HTTP/1.1
//! and HTTP/2 ask here, in both directions.

use policies::{control_field, is_gateway_field, is_override_field};

use crate::policy_cell::PolicyCell;
use crate::refuse::Refusal;

/// Refuses a request by the names of its trailers.
pub(crate) fn check_request<'n>(
    policy: &PolicyCell,
    names: impl Iterator<Item = &'n [u8]>,
) -> Result<(), Refusal> {
    let loaded = policy.load();
    for name in names {
        if belongs_in_a_head(name) || loaded.policy.judges_header(name) {
            let name = String::from_utf8_lossy(name);
            let why = format!("`{name}` comes after the body, and belongs before it");
            return Err(Refusal::Malformed(why));
        }
    }
    Ok(())
}

/// Whether a trailer of an answer may be passed on.
pub(crate) fn may_follow_an_answer(name: &[u8]) -> bool {
    !belongs_in_a_head(name)
}

fn belongs_in_a_head(name: &[u8]) -> bool {
    control_field(name).is_some() || is_override_field(name) || is_gateway_field(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Stage;

    #[tokio::test]
    async fn what_decides_what_a_request_means_comes_before_its_body() {
        let policy = "version: 1\nnet:\n  enabled: true\n  allow:\n    \
                      - {host: allowed.test, headers: {x-mode: safe}}\n";
        let stage = Stage::new(policy);
        let check = |name: &str| {
            check_request(&stage.gateway.policy, [name.as_bytes()].into_iter())
                .map_err(|refusal| refusal.to_string())
        };
        for name in ["grpc-status", "x-checksum", "digest", "x-amz-checksum-crc32", "server-timing"]
        {
            assert_eq!(check(name), Ok(()), "{name}");
        }
        for name in [
            "Host",
            "authorization",
            "Content_Length",
            "x-http-method-override",
            "X_Original_Url",
            "destination",
            "x-sluice-code",
            "x-mode",
            "X.Mode",
        ] {
            let why = format!("`{name}` comes after the body, and belongs before it");
            assert_eq!(check(name), Err(why));
        }
    }

    #[test]
    fn a_trailer_of_an_answer_may_not_be_named_like_what_belongs_before_it() {
        for (name, may) in [
            ("grpc-status", true),
            ("server-timing", true),
            ("content-length", false),
            ("Set-Cookie", control_field(b"set-cookie").is_none()),
            ("x-sluice-code", false),
            ("x-original-url", false),
        ] {
            assert_eq!(may_follow_an_answer(name.as_bytes()), may, "{name}");
        }
    }
}
