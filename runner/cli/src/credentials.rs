//! What looks like a credential, so that a person is warned before an agent
//! gets it. Only names are ever told, never a value.

/// Warnings about what a run is given: its variables, and its command.
pub(crate) fn warnings(environment: &[(String, String)], command: &[String]) -> Vec<String> {
    let mut warnings = Vec::new();
    let suspicious = |(name, value): &&(String, String)| is_name(name) || is_value(value);
    let names: Vec<&str> =
        environment.iter().filter(suspicious).map(|(name, _)| name.as_str()).collect();
    if !names.is_empty() {
        warnings.push(format!(
            "{} may be a credential: the sandbox can read it, and send it wherever its policy lets it; \
             the evidence does not hold the value",
            names.join(", ")
        ));
    }
    let numbers: Vec<String> = suspicious_arguments(command).map(|at| at.to_string()).collect();
    if !numbers.is_empty() {
        warnings.push(format!(
            "argument {} of the command may be a credential: the command line is recorded as it is; \
             pass it as a variable (`-e NAME`) instead",
            numbers.join(", ")
        ));
    }
    warnings
}

/// The numbers of arguments that look like one, the program being 0.
fn suspicious_arguments(command: &[String]) -> impl Iterator<Item = usize> {
    command.iter().enumerate().filter_map(|(number, argument)| {
        let (name, value) = argument.split_once('=').unwrap_or(("", argument));
        let named = !value.is_empty() && is_name(name.trim_start_matches('-'));
        let before = number.checked_sub(1).and_then(|before| command.get(before));
        // `--token VALUE`: the flag says what comes.
        let flagged = before.is_some_and(|flag| {
            flag.starts_with("--")
                && !flag.contains('=')
                && is_name(flag)
                && !argument.starts_with('-')
        });
        (named || flagged || is_value(value)).then_some(number)
    })
}

fn is_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase().replace('-', "_");
    NAMES.iter().any(|part| name.contains(part))
}

/// Parts of names that people give to credentials.
const NAMES: &[&str] = &[
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "API_KEY",
    "APIKEY",
    "ACCESS_KEY",
    "PRIVATE_KEY",
    "CREDENTIAL",
    "AUTH_KEY",
    "_PAT",
    "CONNECTION_STRING",
    "DATABASE_URL",
];

/// Whether a value has the shape of a well-known kind of token.
fn is_value(value: &str) -> bool {
    let long_enough = |rest: &str| rest.len() >= 12 && !rest.contains(char::is_whitespace);
    let has_prefix =
        PREFIXES.iter().any(|prefix| value.strip_prefix(prefix).is_some_and(long_enough));
    let is_jwt = value.starts_with("eyJ") && value.matches('.').count() == 2;
    has_prefix || is_jwt || value.contains("PRIVATE KEY-----") || has_password(value)
}

/// `scheme://user:password@host`.
fn has_password(value: &str) -> bool {
    let Some((_, rest)) = value.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let user = authority.rsplit_once('@').map(|(user, _)| user);
    user.and_then(|user| user.split_once(':')).is_some_and(|(_, password)| !password.is_empty())
}

const PREFIXES: &[&str] = &[
    "sk-",
    "sk_live_",
    "sk_test_",
    "rk_live_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "gldt-",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "xapp-",
    "AKIA",
    "ASIA",
    "AIza",
    "ya29.",
    "npm_",
    "pypi-",
    "hf_",
    "dckr_pat_",
    "SG.",
    "shpat_",
    "dop_v1_",
    "vercel_",
    "atlasv1.",
    "hvs.",
    "lin_api_",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn warned(environment: &[(&str, &str)], command: &[&str]) -> String {
        let environment: Vec<_> = environment
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let command: Vec<_> = command.iter().map(|word| (*word).to_owned()).collect();
        warnings(&environment, &command).join("\n")
    }

    #[test]
    fn credentials_are_named_and_their_values_never_are() {
        let told = warned(
            &[("GITHUB_TOKEN", "hunter2"), ("X", "ghp_0123456789abcdef"), ("MODE", "fast")],
            &["true"],
        );
        assert!(told.starts_with("GITHUB_TOKEN, X may be a credential"), "{told}");
        let database = warned(&[("DB", "postgres://app:hunter2@db.example/app")], &["true"]);
        assert!(database.starts_with("DB may be"), "{database}");
        for command in [
            &["curl", "--api-key", "hunter2"][..],
            &["curl", "--token=hunter2"],
            &["curl", "sk-0123456789abcdef"],
            &["psql", "postgres://app:hunter2@db.example/app"],
        ] {
            let told = warned(&[], command);
            assert!(told.starts_with("argument "), "{command:?}: {told}");
            assert!(!told.contains("hunter2") && !told.contains("sk-0"), "{told}");
        }
    }

    #[test]
    fn what_is_plain_is_not_warned_about() {
        let plain =
            [("PATH", "/bin"), ("URL", "https://api.example/x@y"), ("SK", "sk-"), ("MONKEY", "1")];
        assert_eq!(warned(&plain, &["sh", "-c", "echo a=b", "--verbose", "x"]), "");
    }
}
