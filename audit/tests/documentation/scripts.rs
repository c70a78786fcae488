//! The page's scripts, run as they stand on it.
//!
//! They must pass whole evidence, whatever its files are called, and fail
//! whatever [`audit::verify`] fails: a script that accepts everything would prove
//! nothing.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use audit::{PublicKey, SigningKey};
use tempfile::TempDir;

use crate::page;
use crate::samples::{private_dir, sealed_folder, write_log};
use crate::tool::{EntryOutcome, are_installed, sh};

const TOOLS: [&str; 8] = ["sh", "jq", "openssl", "sha256sum", "base64", "find", "diff", "sed"];

#[test]
fn the_seals_script_passes_what_is_whole() {
    if !are_installed(&TOOLS) {
        return;
    }
    let evidence = Evidence::new();
    let EntryOutcome { success, said } = evidence.verify_seal();
    assert!(success && said.contains("Signature Verified Successfully"), "{said}");
    let whole = format!("by {}\n", evidence.key.id());
    assert!(said.contains("whole: 14 files, sealed 20") && said.contains(&whole), "{said}");
}

#[test]
fn the_seals_script_fails_what_is_tampered_with() {
    if !are_installed(&TOOLS) {
        return;
    }
    let artifact =
        |name: &'static str| move |dir: &Path| fs::write(dir.join(name), "tampered").unwrap();
    fails("an edited file", "report.txt: FAILED", artifact("artifacts/report.txt"));
    fails("an odd name's file", "FAILED", artifact(r"artifacts/a\nb"));
    fails("an added file", "", artifact("artifacts/new"));
    fails("a missing file", "FAILED open or read", |dir| {
        fs::remove_file(dir.join("artifacts/report.txt")).unwrap();
    });
    fails("a link that leads elsewhere", "outside\t/root", |dir| {
        let link = dir.join("artifacts/outside");
        fs::remove_file(&link).unwrap();
        symlink("/root", link).unwrap();
    });
    fails("a link instead of the file, with its content", "report.txt\t/", |dir| {
        let file = dir.join("artifacts/report.txt");
        let away = dir.join("audit.000009.txt");
        fs::rename(&file, &away).unwrap();
        symlink(&away, &file).unwrap();
    });
    fails("a missing socket and a new file", "socket", |dir| {
        fs::remove_file(dir.join("artifacts/socket")).unwrap();
        fs::write(dir.join("artifacts/new"), "").unwrap();
    });
    fails("a cut log", "audit.jsonl: FAILED", |dir| {
        rewrite(&dir.join("audit.jsonl"), |log| {
            let end = log.trim_end().rfind('\n').unwrap();
            log.truncate(end + 1);
        });
    });
}

/// The second line is still signed, and the file is still JSON. Read as JSON, it
/// has the list that fits the tampered folder.
#[test]
fn the_seals_script_is_not_fooled_by_a_list_that_nobody_signed() {
    if !are_installed(&TOOLS) {
        return;
    }
    let forge = |dir: &Path, smuggle: fn(&str, &str) -> String| {
        let seal = fs::read_to_string(dir.join("seal.json")).unwrap();
        let signed = seal.lines().nth(1).unwrap();
        let file = dir.join("artifacts/report.txt");
        let before = audit::Digest::of(&fs::read(&file).unwrap()).to_string();
        fs::write(&file, "tampered!!").unwrap();
        let after = audit::Digest::of(b"tampered!!").to_string();
        let forged = smuggle(&seal, &signed.replace(&before, &after));
        let read: serde_json::Value = serde_json::from_str(&forged).unwrap();
        assert!(
            forged.lines().nth(1) == Some(signed) && read["sealed"].to_string().contains(&after)
        );
        fs::write(dir.join("seal.json"), forged).unwrap();
    };
    fails("in the third line", "report.txt: FAILED", |dir| {
        forge(dir, |seal, list| seal.replace("\n}\n", &format!("\n,\"sealed\":{list}}}\n")));
    });
    fails("in the first line", "report.txt: FAILED", |dir| {
        forge(dir, |seal, list| {
            seal.replacen("\"sealed\":\n", &format!("\"sealed\":{list},\"x\":\n"), 1)
        });
    });
}

#[test]
fn the_seals_script_trusts_the_key_it_is_given_and_no_other() {
    if !are_installed(&TOOLS) {
        return;
    }
    let mut evidence = Evidence::new();
    let home = tempfile::tempdir().unwrap();
    evidence.key = SigningKey::load_or_create(&home.path().join("keys/seal.pem")).unwrap().public();
    let EntryOutcome { success, said } = evidence.verify_seal();
    assert!(!success && !said.contains("whole"), "{said}");

    let evidence = Evidence::new();
    rewrite(&evidence.path().join("seal.json"), |seal| {
        *seal = seal.replacen("\"time\":\"2", "\"time\":\"3", 1);
    });
    let EntryOutcome { success, said } = evidence.verify_seal();
    assert!(!success && said.contains("Signature Verification Failure"), "{said}");
}

#[test]
fn names_that_the_tools_cannot_carry_fail_and_are_not_passed_over() {
    if !are_installed(&TOOLS) {
        return;
    }
    let dir = private_dir();
    fs::write(dir.path().join("one\ntwo"), "").unwrap();
    let home = tempfile::tempdir().unwrap();
    let key = SigningKey::load_or_create(&home.path().join("keys/seal.pem")).unwrap();
    audit::seal(dir.path(), &key).unwrap();
    let evidence = Evidence { dir, key: key.public() };
    let EntryOutcome { success, said } = evidence.verify_seal();
    assert!(!success && said.contains("false"), "{said}");
}

#[test]
fn the_public_half_is_what_openssl_makes_of_the_key() {
    if !are_installed(&TOOLS) {
        return;
    }
    let command = page::block("```sh\nopenssl pkey");
    let (_, rest) = command.split_once("-in ~/.local/state/sluice/keys/seal.pem").unwrap();
    let home = tempfile::tempdir().unwrap();
    let private = home.path().join("keys/seal.pem");
    let key = SigningKey::load_or_create(&private).unwrap();
    let public = home.path().join("installation.pub.pem");
    let rest = rest.replace("installation.pub.pem", public.to_str().unwrap());
    let script = home.path().join("script.sh");
    fs::write(&script, format!("openssl pkey -in {} {rest}", private.display())).unwrap();
    let EntryOutcome { success, said } = sh(&script, &[]);
    assert!(success, "{said}");
    assert_eq!(fs::read_to_string(&public).unwrap(), key.public().to_pem());
}

#[test]
fn the_chains_script_finds_the_end_or_the_break() {
    if !are_installed(&TOOLS) {
        return;
    }
    let chain = |change: fn(&mut String)| {
        let dir = private_dir();
        write_log(dir.path());
        let before = fs::read_to_string(dir.path().join("audit.000001.jsonl")).unwrap();
        rewrite(&dir.path().join("audit.000002.jsonl"), change);
        let verified = audit::verify(dir.path(), &[]);
        let EntryOutcome { success, said } = run("verify-chain.sh", &[dir.path()]);
        assert_eq!(success, verified.is_ok(), "{said}");
        (said, before.lines().count(), verified.ok().map(|whole| whole.log.unwrap().head))
    };
    let (said, _, head) = chain(|_| {});
    let head = head.unwrap();
    assert_eq!(said, format!("{}\n{}\n", head.seq, head.hash));

    // The first of the segment's operator lines is its second line.
    let (said, before, _) = chain(|log| *log = log.replacen("reload", "upload", 1));
    assert!(said.starts_with(&format!("{0}c{0}\n", before + 3)), "{said}");
    let (said, before, _) = chain(|log| {
        let first = log.find('\n').unwrap();
        log.replace_range(..=first, "");
    });
    assert!(said.starts_with(&format!("{0}c{0}\n", before + 1)), "{said}");
    let (said, ..) = chain(|log| log.push_str("{\"v\":1"));
    assert!(said.contains("parse error"), "{said}");
}

/// A sealed folder, and the key to check it with.
struct Evidence {
    dir: TempDir,
    key: PublicKey,
}

impl Evidence {
    fn new() -> Self {
        let (dir, key) = sealed_folder();
        audit::verify(dir.path(), &[key]).unwrap();
        Self { dir, key }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn verify_seal(&self) -> EntryOutcome {
        let elsewhere = tempfile::tempdir().unwrap();
        let public = elsewhere.path().join("installation.pub.pem");
        fs::write(&public, self.key.to_pem()).unwrap();
        run("verify-seal.sh", &[self.path(), &public])
    }
}

#[track_caller]
fn fails(what: &str, says: &str, tamper: impl FnOnce(&Path)) {
    let evidence = Evidence::new();
    tamper(evidence.path());
    assert!(audit::verify(evidence.path(), &[evidence.key]).is_err(), "{what}: verify passes it");
    let EntryOutcome { success, said } = evidence.verify_seal();
    assert!(!success && !said.contains("whole"), "{what} passes: {said}");
    assert!(said.contains(says), "{what}: {said}");
}

/// Runs the script of this name from the page.
fn run(name: &str, args: &[&Path]) -> EntryOutcome {
    let dir = tempfile::tempdir().unwrap();
    let script: PathBuf = dir.path().join(name);
    fs::write(&script, page::block(&format!("```sh {name}\n"))).unwrap();
    sh(&script, args)
}

fn rewrite(path: &Path, change: impl FnOnce(&mut String)) {
    let mut text = fs::read_to_string(path).unwrap();
    change(&mut text);
    fs::write(path, text).unwrap();
}
