//! Limits without root, where somebody gave the user control groups (H16).

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use tests::available::skip;
use tests::boxes::Person;

use crate::programs;

/// A user whom nobody else is: what is given to one is found by all of their runs.
const GIVEN: u32 = 1501;

/// A directory in the tree of each controller, given to that user until dropped.
struct Given(Vec<PathBuf>);

impl Given {
    /// Removes what a test left that was killed: it would be found.
    fn forget() {
        for controller in ["memory", "pids", "cpu"] {
            let groups = fs::read_dir(Path::new("/sys/fs/cgroup").join(controller));
            for group in groups.into_iter().flatten().flatten() {
                let name = group.file_name().to_string_lossy().into_owned();
                let maker =
                    name.strip_prefix("sluice-test-").and_then(|rest| rest.rsplit('-').next());
                if maker.is_some_and(|maker| !Path::new("/proc").join(maker).exists()) {
                    drop(fs::remove_dir(group.path()));
                }
            }
        }
    }

    fn new(controllers: &[&str]) -> Option<Self> {
        let mut made = Self(Vec::new());
        for controller in controllers {
            let tree = Path::new("/sys/fs/cgroup").join(controller);
            let group =
                tree.join(format!("sluice-test-{}-{}", controllers.len(), std::process::id()));
            if !tree.join("tasks").exists() || fs::create_dir(&group).is_err() {
                skip("control groups of the first version");
                return None;
            }
            chown(&group, Some(GIVEN), Some(GIVEN)).unwrap();
            made.0.push(group);
        }
        Some(made)
    }

    /// What runs left in there.
    fn left(&self) -> Vec<PathBuf> {
        let entries = self.0.iter().flat_map(|group| fs::read_dir(group).unwrap().flatten());
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        for group in &self.0 {
            drop(fs::remove_dir(group));
        }
    }
}

#[test]
fn who_was_given_control_groups_has_limits_without_root() {
    let Some(person) = Person::without_privileges(programs(), GIVEN) else { return };
    Given::forget();
    let limits = ["--memory", "64MiB", "--cpus", "0.5", "--timeout", "60s"];
    let refused = person.shell(&limits, "echo the command ran");
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{}", refused.stderr);

    let Some(given) = Given::new(&["memory", "pids", "cpu"]) else { return };
    let fine = person.shell(&limits, "echo fine");
    assert_eq!((fine.code, fine.stdout.as_str()), (0, "fine\n"), "{}", fine.stderr);
    assert!(!fine.stderr.contains("does not limit"), "{}", fine.stderr);
    assert_eq!(fine.record["plan"]["unenforced"], serde_json::json!([]));
    // Measured inside, before the command: what is set is what there is.
    let isolation = fine.record["isolation"].to_string();
    assert!(isolation.contains("memory is limited"), "{isolation}");

    // It keeps 100 MiB until somebody ends it; the kernel does, and not we.
    let hog = person.shell(&limits, "dd if=/dev/zero of=/dev/null bs=100M");
    assert_eq!((hog.code, hog.outcome()), (137, "oom"), "{} {}", hog.record, hog.stderr);
    let crowd = "for i in $(seq 60); do sleep 5 & done";
    let crowd = person.shell(&["--pids", "20", "--timeout", "60s"], crowd);
    assert_eq!(crowd.outcome(), "pids", "{} {}", crowd.record, crowd.stderr);

    let said = person.sluice(&["doctor", "-o", "json"]).stdout;
    let named = given.0[0].to_str().unwrap();
    assert!(said.contains(&format!("memory in {named}")), "{said}");
    let left = given.left();
    assert!(left.is_empty(), "{left:?}");
}

/// Of two controllers one is there: what is not is still refused.
#[test]
fn what_was_not_given_is_not_said_to_hold() {
    let Some(person) = Person::without_privileges(programs(), GIVEN + 1) else { return };
    Given::forget();
    let Some(given) = Given::new(&["pids"]) else { return };
    chown(&given.0[0], Some(GIVEN + 1), None).unwrap();
    let memory = person.shell(&["--memory", "64MiB"], "echo the command ran");
    assert_eq!((memory.code, memory.stdout.as_str()), (2, ""), "{}", memory.stderr);
    assert!(memory.stderr.contains("cannot limit memory here"), "{}", memory.stderr);
    let fine = person.shell(&["--pids", "20"], "echo fine");
    assert_eq!((fine.code, fine.stdout.as_str()), (0, "fine\n"), "{}", fine.stderr);
}
