//! Who started a run, where, and for what.

use std::borrow::Cow;
use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::environment::Environment;

/// What a reviewer asks first of a run. It stands in `run.json` and in the first
/// line of its log.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Origin {
    pub user: String,
    pub host: String,
    /// The project's directory; nothing if the sandbox has none.
    pub project: Option<PathBuf>,
    pub backend: Cow<'static, str>,
    pub version: Cow<'static, str>,
}

impl Origin {
    /// The same, for a log that we write ourselves.
    pub fn recorded(&self) -> audit::LogOrigin {
        let Self { user, host, project, backend, version } = self;
        audit::LogOrigin {
            user: Some(user.as_str().into()),
            host: Some(host.as_str().into()),
            project: project.as_ref().map(|path| format_args!("{}", path.display()).into()),
            backend: Some((&**backend).into()),
            version: Some((&**version).into()),
        }
    }
}

/// The person at the command line, as far as the machine knows.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct StartedBy {
    pub user: String,
    pub host: String,
}

impl StartedBy {
    /// Whoever runs us. Behind `sudo`, that is the one who typed it.
    pub fn this(environment: &Environment) -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let uid = rustix::process::getuid().as_raw();
        let user = name_of(uid, &passwd);
        let before = environment.variable("SUDO_USER").and_then(|name| name.into_string().ok());
        let user = match before.filter(|name| uid == 0 && !name.is_empty() && *name != user) {
            Some(before) => format!("{before} (as {user})"),
            None => user,
        };
        Self { user, host }
    }
}

/// The name that `passwd` has for an id; the id itself where it has none.
fn name_of(uid: u32, passwd: &str) -> String {
    let known = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let number = fields.nth(1)?;
        (number == uid.to_string() && !name.is_empty()).then(|| name.to_owned())
    });
    known.unwrap_or_else(|| format!("uid {uid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_the_name_that_the_machine_knows() {
        let passwd = "root:x:0:0::/root:/bin/sh\n+::::::\nann:x:1500:100::/home/ann:/bin/sh\n";
        assert_eq!(name_of(0, passwd), "root");
        assert_eq!(name_of(1500, passwd), "ann");
        assert_eq!(name_of(15, passwd), "uid 15");
    }
}
