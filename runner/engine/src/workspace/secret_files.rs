//! Files of a project that usually hold credentials: hidden from every sandbox
//! unless a policy (`fs.show`) or a person (`--show`) says otherwise.
//!
//! Most are known by name. Of a name that may as well be harmless, such as a
//! bundle of public certificates in `ca.pem`, the content decides: it is read up
//! to a limit, never through a link, and what cannot be read is hidden. What is
//! written to be copied (`.env.example`) stays visible.

use files::TreePath;
use files::tree::Directory;
use policies::FileGlob;
use rustix::fs::FileType;

use super::survey::named_by;

/// What becomes of a file that usually holds credentials.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fate {
    Hidden,
    /// Somebody wants it shown.
    Shown,
}

/// What becomes of `name` in the directory `at`, which is open as `here`; nothing
/// for a file like others.
pub(super) fn fate(
    here: &Directory,
    at: &TreePath,
    name: &[u8],
    kind: FileType,
    show: &[FileGlob],
) -> Option<Fate> {
    let hidden = by_name(at, name, kind)?;
    let holds_one = match hidden {
        Hidden::Always => true,
        // What a link points to is looked at under its own name.
        Hidden::IfItHolds(_) if kind != FileType::RegularFile => false,
        Hidden::IfItHolds(marks) => match here.contents(name, MOST_READ) {
            Ok(Some(content)) => marks.iter().any(|mark| contains(&content, mark.as_bytes())),
            Ok(None) | Err(_) => true,
        },
    };
    let fate = if is_shown(show, &at.join(name)) { Fate::Shown } else { Fate::Hidden };
    holds_one.then_some(fate)
}

/// What is hidden although it may not be there yet: the one file that people add
/// while an agent works.
pub(super) fn to_come(show: &[FileGlob]) -> Option<FileGlob> {
    let path = TreePath::parse(b".env").ok()?;
    if is_shown(show, &path) { None } else { FileGlob::parse(".env").ok() }
}

/// Whether `show` names this path, or a directory above it.
fn is_shown(show: &[FileGlob], path: &TreePath) -> bool {
    let mut here = Some(path.clone());
    while let Some(path) = here {
        if named_by(show, &path) {
            return true;
        }
        here = path.parent();
    }
    false
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Hidden {
    Always,
    /// If one of these is in it.
    IfItHolds(&'static [&'static str]),
}

/// A larger file is hidden without being read: no key and no list of tokens is.
const MOST_READ: u64 = 1 << 20;

fn by_name(at: &TreePath, name: &[u8], kind: FileType) -> Option<Hidden> {
    let is = |known: &&str| name.eq_ignore_ascii_case(known.as_bytes());
    if kind == FileType::Directory {
        return DIRECTORIES.iter().any(is).then_some(Hidden::Always);
    }
    if is_environment(name) {
        return (!is_example(name)).then_some(Hidden::Always);
    }
    if let Some((_, hidden)) = NAMES.iter().find(|(names, _)| names.iter().any(is)) {
        return Some(*hidden);
    }
    let below = |directory: &str| {
        at.name().is_some_and(|above| above.eq_ignore_ascii_case(directory.as_bytes()))
    };
    let mut pairs = BELOW.iter();
    if let Some((.., hidden)) = pairs.find(|(above, known, _)| is(known) && below(above)) {
        return Some(*hidden);
    }
    let dot = name.iter().rposition(|byte| *byte == b'.')?;
    let extension = name.get(dot + 1..)?;
    let ends = |known: &&str| extension.eq_ignore_ascii_case(known.as_bytes());
    let found = EXTENSIONS.iter().find(|(names, _)| names.iter().any(ends));
    found.map(|(_, hidden)| *hidden)
}

/// `.env`, `.env.local`, `.envrc`, `prod.env`.
fn is_environment(name: &[u8]) -> bool {
    let is = |part: Option<&[u8]>| part.is_some_and(|part| part.eq_ignore_ascii_case(b".env"));
    is(name.get(..4)) || is(name.len().checked_sub(4).and_then(|from| name.get(from..)))
}

fn is_example(name: &[u8]) -> bool {
    let mut parts = name.split(|byte| b".-_".contains(byte));
    parts.any(|part| EXAMPLES.iter().any(|word| part.eq_ignore_ascii_case(word.as_bytes())))
}

/// The pattern that names a path; where it has what patterns cannot say, others too.
pub(super) fn pattern(path: &TreePath) -> Option<FileGlob> {
    let mut written = String::new();
    for c in path.lossy().chars() {
        let plain = !c.is_control() && !"*?[]{}\\\u{fffd}".contains(c);
        match plain {
            true => written.push(c),
            false if written.ends_with('*') => {}
            false => written.push('*'),
        }
    }
    let last = || format!("**/{}", written.rsplit('/').next().unwrap_or_default());
    FileGlob::parse(&written).or_else(|_| FileGlob::parse(&last())).ok()
}

fn contains(content: &[u8], mark: &[u8]) -> bool {
    content.windows(mark.len()).any(|window| window.eq_ignore_ascii_case(mark))
}

/// A name with one of these words in it is written to be copied.
const EXAMPLES: &[&str] = &[
    "example", "examples", "sample", "samples", "template", "tpl", "dist", "default", "defaults",
    "schema",
];

const DIRECTORIES: &[&str] =
    &[".ssh", ".aws", ".gnupg", ".azure", ".kube", ".gcloud", ".password-store"];

const NAMES: &[(&[&str], Hidden)] = &[
    (
        &[
            ".netrc",
            "_netrc",
            ".pgpass",
            ".git-credentials",
            ".pypirc",
            ".dockercfg",
            ".htpasswd",
            ".vault-token",
            ".vault_pass",
            ".s3cfg",
            ".boto",
            ".my.cnf",
            ".mylogin.cnf",
            "id_rsa",
            "id_dsa",
            "id_ecdsa",
            "id_ed25519",
            "id_ecdsa_sk",
            "id_ed25519_sk",
            "kubeconfig",
            "application_default_credentials.json",
            ".rclone.conf",
            "rclone.conf",
            "terraform.tfstate.backup",
            "credentials.tfrc.json",
        ],
        Hidden::Always,
    ),
    (&[".npmrc"], Hidden::IfItHolds(&["_auth", "_password"])),
    (&[".yarnrc.yml", ".yarnrc"], Hidden::IfItHolds(&["npmAuth", "_auth"])),
    (&["pip.conf", "pip.ini"], Hidden::IfItHolds(&["@"])),
    (&["nuget.config"], Hidden::IfItHolds(&["password"])),
    (&["auth.json"], Hidden::IfItHolds(&["http-basic", "oauth", "bearer", "token"])),
    (&["settings.xml"], Hidden::IfItHolds(&["<password", "<privateKey"])),
    (&[".terraformrc"], Hidden::IfItHolds(&["token"])),
    (&["hosts.yml"], Hidden::IfItHolds(&["oauth_token"])),
    (
        &[
            "credentials.json",
            "client_secret.json",
            "client_secrets.json",
            "service-account.json",
            "service_account.json",
            "serviceaccount.json",
            "gcloud.json",
            "key.json",
            "keyfile.json",
        ],
        Hidden::IfItHolds(&["private_key", "client_secret", "refresh_token", "access_token"]),
    ),
];

/// A directory, and a name that means something only there.
const BELOW: &[(&str, &str, Hidden)] = &[
    (".cargo", "credentials", Hidden::Always),
    (".cargo", "credentials.toml", Hidden::Always),
    (".gem", "credentials", Hidden::Always),
    (".streamlit", "secrets.toml", Hidden::Always),
    (".docker", "config.json", Hidden::IfItHolds(&["\"auth\"", "identitytoken"])),
];

const EXTENSIONS: &[(&[&str], Hidden)] = &[
    (&["key", "ppk", "p12", "pfx", "jks", "keystore", "kdbx", "tfstate"], Hidden::Always),
    (&["pem", "crt", "cer", "asc"], Hidden::IfItHolds(&["PRIVATE KEY"])),
];

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn hidden(path: &str, content: &str, show: &[&str]) -> bool {
        let dir = tempfile::tempdir().unwrap();
        let whole = dir.path().join(path);
        fs::create_dir_all(whole.parent().unwrap()).unwrap();
        fs::write(&whole, content).unwrap();
        let path = TreePath::parse(path.as_bytes()).unwrap();
        let at = path.parent().unwrap();
        let here = Directory::open(dir.path()).unwrap().at(&at).unwrap();
        let show: Vec<_> = show.iter().map(|glob| FileGlob::parse(glob).unwrap()).collect();
        fate(&here, &at, path.name().unwrap(), FileType::RegularFile, &show) == Some(Fate::Hidden)
    }

    #[test]
    fn what_usually_holds_credentials_is_hidden() {
        for path in [
            ".env",
            "a/.env.local",
            ".ENV",
            ".envrc",
            "prod.env",
            ".netrc",
            "deep/down/id_ed25519",
            "tls.key",
            "store.p12",
            "a.jks",
            ".cargo/credentials.toml",
            "terraform.tfstate",
            "kubeconfig",
            ".git-credentials",
        ] {
            assert!(hidden(path, "", &[]), "{path}");
        }
    }

    #[test]
    fn what_is_written_to_be_copied_or_read_is_visible() {
        for path in [
            ".env.example",
            ".env.sample",
            ".env.template",
            "example.env",
            ".env-dist",
            "id_rsa.pub",
            "main.rs",
            "environment.ts",
            "keys.md",
            "a.json",
            ".gitignore",
            "settings.xml",
            "hosts.yml",
        ] {
            assert!(!hidden(path, "plain", &[]), "{path}");
        }
    }

    #[test]
    fn content_decides_where_a_name_does_not() {
        let key = "-----BEGIN EC PRIVATE KEY-----\nx\n";
        let certificate = "-----BEGIN CERTIFICATE-----\nx\n";
        assert!(hidden("server.pem", &format!("{certificate}{key}"), &[]));
        assert!(!hidden("ca.pem", certificate, &[]));
        assert!(hidden(".npmrc", "//registry.example/:_authToken=x", &[]));
        assert!(!hidden(".npmrc", "registry=https://registry.example/", &[]));
        assert!(hidden("credentials.json", "{\"private_key\": \"x\"}", &[]));
        assert!(!hidden("key.json", "{\"key\": \"of a piano\"}", &[]));
        assert!(hidden(".docker/config.json", "{\"auths\": {\"r\": {\"auth\": \"x\"}}}", &[]));
        assert!(!hidden(".docker/Dockerfile", "FROM scratch", &[]));
        assert!(hidden("big.pem", &"x".repeat(usize::try_from(MOST_READ).unwrap() + 1), &[]));
    }

    #[test]
    fn a_person_can_have_a_file_shown() {
        assert!(!hidden(".env.test", "", &[".env.test"]));
        assert!(!hidden("fixtures/tls.key", "", &["fixtures/**"]));
        assert!(hidden(".env", "", &[".env.test", "fixtures/**"]));
    }

    #[test]
    fn a_pattern_names_at_least_its_path() {
        let long = format!("{}/.env", ["d"; 600].join("/"));
        for path in ["a/.env", "[id]/.env", "{a,b}/x?/.env", "a**b/.env", "[*]/.env", &long] {
            let glob = pattern(&TreePath::parse(path.as_bytes()).unwrap()).unwrap();
            assert!(glob.matches(path), "{glob} {path}");
        }
        let odd = TreePath::parse(b"\xff\n/.env").unwrap();
        assert!(pattern(&odd).unwrap().matches(&odd.lossy()));
    }

    #[test]
    fn a_link_is_not_read_through() {
        let dir = tempfile::tempdir().unwrap();
        symlink("/dev/zero", dir.path().join("ca.pem")).unwrap();
        let here = Directory::open(dir.path()).unwrap();
        let fate = |name: &[u8]| fate(&here, &TreePath::ROOT, name, FileType::Symlink, &[]);
        assert_eq!((fate(b"ca.pem"), fate(b".env")), (None, Some(Fate::Hidden)));
    }
}
