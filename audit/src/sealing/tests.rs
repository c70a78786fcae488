//! A seal can be made once, of anything, and be checked without us.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;

use tempfile::TempDir;

use super::*;
use crate::event::Operator;
use crate::seal::{FileContent, PathName};
use crate::{Digest, Log, Options};

#[test]
fn a_seal_lists_every_file_and_the_last_line() {
    let (dir, key) = evidence();
    let head = verify::chain(dir.path()).unwrap().unwrap().head;
    let seal = seal(dir.path(), &key).unwrap();

    assert_eq!(seal.log, Some(head));
    let names: Vec<_> = seal.files.iter().map(|file| file.path.path()).collect();
    assert_eq!(names, [Path::new("artifacts/a.txt"), Path::new("audit.jsonl")]);
    let content = FileContent::File { size: 5, sha256: Digest::of(b"hello") };
    assert_eq!(seal.files[0].content, content);
    let mode = dir.path().join(SEAL).metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn what_is_known_of_a_file_holds_only_for_a_file_of_that_size() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("as-known"), "hello").unwrap();
    fs::write(dir.path().join("grown"), "hello!").unwrap();
    // As long as the name that it leads to.
    symlink("grown", dir.path().join("replaced")).unwrap();
    let known = Digest::of(b"what was read before");
    let names = ["as-known", "grown", "replaced"];
    let all = KnownDigests::from(names.map(|name| (PathBuf::from(name), (5, known))));

    let listed = list(dir.path(), &all).unwrap();
    let found: Vec<_> = listed.into_iter().map(|sealed| sealed.content).collect();
    let expected = [
        FileContent::File { size: 5, sha256: known },
        FileContent::File { size: 6, sha256: Digest::of(b"hello!") },
        FileContent::Link { target: PathName::Text("grown".to_owned()) },
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_folder_is_sealed_once() {
    let (dir, key) = evidence();
    seal(dir.path(), &key).unwrap();
    let err = seal(dir.path(), &key).unwrap_err();
    assert!(matches!(err, SealError::AlreadySealed { .. }), "{err}");
}

#[test]
fn a_log_that_is_open_or_broken_is_not_sealed() {
    let (dir, key) = evidence();
    let (log, _) = Log::open(dir.path(), Options::new("run-1")).unwrap();
    assert!(matches!(seal(dir.path(), &key), Err(SealError::Busy { .. })));
    drop(log);

    let file = dir.path().join("audit.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("reload", "upload")).unwrap();
    assert!(matches!(seal(dir.path(), &key), Err(SealError::Log(_))));
    assert!(!dir.path().join(SEAL).exists());
}

#[test]
fn a_crash_while_sealing_does_not_keep_a_folder_from_being_sealed() {
    let (dir, key) = evidence();
    fs::write(dir.path().join("seal.json.draft"), "half a se").unwrap();
    let seal = seal(dir.path(), &key).unwrap();
    assert_eq!(seal.files.len(), 2);
    verify::verify(dir.path(), &[key.public()]).unwrap();
}

#[test]
fn a_sealed_log_is_not_continued() {
    let (dir, key) = evidence();
    seal(dir.path(), &key).unwrap();
    let err = Log::open(dir.path(), Options::new("run-1")).unwrap_err();
    assert!(matches!(err, crate::OpenError::Sealed { .. }), "{err}");
}

#[test]
fn a_run_without_a_log_can_be_sealed() {
    let (dir, key) = evidence();
    fs::remove_file(dir.path().join("audit.jsonl")).unwrap();
    assert_eq!(seal(dir.path(), &key).unwrap().log, None);
    let verified = verify::verify(dir.path(), &[key.public()]).unwrap();
    assert!(verified.log.is_none() && verified.seal.is_some());
}

#[test]
fn whatever_an_agent_leaves_is_sealed_and_nothing_is_followed_or_opened() {
    let (dir, key) = evidence();
    let artifacts = dir.path().join("artifacts");
    symlink("/etc", artifacts.join("outside")).unwrap();
    symlink(".", artifacts.join("circle")).unwrap();
    fs::write(artifacts.join(OsStr::from_bytes(b"not\xffutf8")), "x").unwrap();
    fs::write(artifacts.join("new\nline"), "y").unwrap();
    fs::write(artifacts.join(SEAL), "a decoy").unwrap();
    let _socket = UnixListener::bind(artifacts.join("socket")).unwrap();

    let sealed = seal(dir.path(), &key).unwrap();
    let of = |name: &[u8]| {
        let path = Path::new("artifacts").join(OsStr::from_bytes(name));
        let found = sealed.files.iter().find(|file| file.path.path() == path);
        found.map(|file| file.content.clone()).unwrap()
    };
    assert_eq!(of(b"outside"), FileContent::Link { target: PathName::Text("/etc".to_owned()) });
    assert_eq!(of(b"socket"), FileContent::Special);
    assert_eq!(of(b"not\xffutf8"), FileContent::File { size: 1, sha256: Digest::of(b"x") });
    assert_eq!(of(b"seal.json"), FileContent::File { size: 7, sha256: Digest::of(b"a decoy") });
    assert_eq!(fs::read_to_string(dir.path().join(SEAL)).unwrap().lines().count(), 3);
    verify::verify(dir.path(), &[key.public()]).unwrap();
}

#[test]
fn a_seal_that_cannot_be_read_is_not_the_absence_of_one() {
    use io::ErrorKind::{NotADirectory, NotFound, Other, PermissionDenied};
    assert!(matches!(unless_absent::<()>(Err(NotFound.into())), Ok(None)));
    for kind in [NotADirectory, Other, PermissionDenied] {
        assert_eq!(unless_absent::<()>(Err(kind.into())).unwrap_err().kind(), kind);
    }

    let put: [fn(&Path); 4] = [
        |at| fs::create_dir(at).unwrap(),
        |at| symlink("nowhere", at).unwrap(),
        |at| symlink(SEAL, at).unwrap(),
        |at| drop(UnixListener::bind(at).unwrap()),
    ];
    for put in put {
        let (dir, key) = evidence();
        put(&dir.path().join(SEAL));
        let err = verify::verify(dir.path(), &[key.public()]).unwrap_err();
        assert_eq!(err.to_string(), "seal.json: it is not a seal: it is not a regular file");
        assert!(matches!(seal(dir.path(), &key), Err(SealError::AlreadySealed { .. })));
    }
}

fn evidence() -> (TempDir, SigningKey) {
    let private = fs::Permissions::from_mode(0o700);
    let dir = tempfile::Builder::new().permissions(private).tempdir().unwrap();
    let (log, _) = Log::open(dir.path(), Options::new("run-1")).unwrap();
    log.record(Operator { action: "reload".into(), ..Operator::default() }).unwrap();
    log.close_blocking().unwrap();
    fs::create_dir(dir.path().join("artifacts")).unwrap();
    fs::write(dir.path().join("artifacts/a.txt"), "hello").unwrap();
    let home = tempfile::tempdir().unwrap();
    let key = SigningKey::load_or_create(&home.path().join("keys/seal.pem")).unwrap();
    (dir, key)
}
