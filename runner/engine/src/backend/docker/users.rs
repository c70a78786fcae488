//! Who the sandbox is, in the image's own words.
//!
//! A sandbox's user, its own or the person's, may have a number that the image does
//! not know, and programs that ask who they are (`whoami`, `ssh`, Node's
//! `os.userInfo`) fail where nobody answers. So the image's table of users is shown
//! with one line more. The engine
//! gives files of containers alone, so one is made that never starts; what an
//! image says is kept beside the runs until the machine restarts.

use std::fs::{self, DirBuilder};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, DownloadFromContainerOptionsBuilder,
    RemoveContainerOptionsBuilder,
};
use futures_util::TryStreamExt as _;
use tar::{Archive, EntryType};

use super::labels::{RunNames, labels};
use super::{Docker, broken, failed, status};
use crate::backend::{BackendError, BackendStep};
use crate::environment::Environment;
use crate::plan::{Plan, UserIds};
use crate::public_file;

/// Writes the table of users for the sandbox of `plan` to `at`; false where the
/// image's own will do, or has none.
pub(super) async fn write(docker: &Docker, plan: &Plan, at: &Path) -> Result<bool, BackendError> {
    // That there is no such image is said by whoever makes the sandbox.
    let Ok(image) = docker.engine.api.inspect_image(&plan.image).await else { return Ok(false) };
    let known = image.id.as_deref().map(|image| kept_at(image, &docker.engine.environment));
    let kept = known.as_ref().and_then(|path| fs::read_to_string(path).ok());
    let theirs = match kept {
        Some(theirs) => theirs,
        None => {
            let theirs = look(docker, plan).await?;
            // Whoever cannot keep it looks again.
            drop(known.map(|path| keep(&path, &theirs)));
            theirs
        }
    };
    if theirs.is_empty() || knows(&theirs, plan.user.uid) {
        return Ok(false);
    }
    let written = public_file::write(at, with(&theirs, plan.user).as_bytes());
    written.map_err(|err| broken(BackendStep::Create, err))?;
    Ok(true)
}

/// Whether somebody in the table has this number.
fn knows(table: &str, uid: u32) -> bool {
    let uid = uid.to_string();
    table.lines().any(|line| line.split(':').nth(2) == Some(&uid))
}

/// The image's lines, and the sandbox's own before them: the first one counts.
fn with(theirs: &str, user: UserIds) -> String {
    let UserIds { uid, gid } = user;
    let named = |line: &&str| line.starts_with("agent:");
    let shell = theirs.lines().find(named).and_then(|line| line.rsplit(':').next());
    let shell = shell.filter(|shell| !shell.is_empty()).unwrap_or("/bin/sh");
    let mut lines = format!("agent:x:{uid}:{gid}:agent:/home/agent:{shell}\n");
    for line in theirs.lines().filter(|line| !named(line)) {
        lines.push_str(line);
        lines.push('\n');
    }
    lines
}

/// `/etc/passwd` of the image; empty where there is none.
async fn look(docker: &Docker, plan: &Plan) -> Result<String, BackendError> {
    let api = &docker.engine.api;
    let name = format!("{}-users", RunNames::of(&plan.run).sandbox);
    let wanted = ContainerCreateBody {
        image: Some(plan.image.clone()),
        // It never starts, and an image may name none.
        cmd: Some(vec!["nothing".to_owned()]),
        labels: Some(labels(&plan.run, &docker.engine.environment)),
        host_config: Some(HostConfig {
            network_mode: Some("none".to_owned()),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    };
    let options = CreateContainerOptionsBuilder::new().name(&name).build();
    api.create_container(Some(options), wanted).await.map_err(failed(BackendStep::Create))?;
    let options = DownloadFromContainerOptionsBuilder::new().path("/etc/passwd").build();
    let found = api.download_from_container(&name, Some(options));
    let found = found
        .try_fold(Vec::new(), |mut all, piece| async move {
            if all.len() < MAX_FILE_BYTES {
                all.extend_from_slice(&piece);
            }
            Ok(all)
        })
        .await;
    let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
    let removed = api.remove_container(&name, Some(options)).await;
    let text = match found {
        Ok(bytes) => text(&bytes).map_err(|err| broken(BackendStep::Create, err))?,
        Err(err) if status(&err) == Some(404) => String::new(),
        Err(err) => return Err(failed(BackendStep::Create)(err)),
    };
    removed.map_err(failed(BackendStep::Remove))?;
    Ok(text)
}

/// The one file of an archive; a link or anything else counts as none.
fn text(archive: &[u8]) -> io::Result<String> {
    let mut text = String::new();
    if let Some(entry) = Archive::new(archive).entries()?.next() {
        let entry = entry?;
        if entry.header().entry_type() == EntryType::Regular {
            entry.take(MAX_FILE_BYTES as u64).read_to_string(&mut text)?;
        }
    }
    Ok(text)
}

const MAX_FILE_BYTES: usize = 1 << 20;

/// In the folder of all runs, which is ours alone by now.
fn kept_at(image: &str, environment: &Environment) -> PathBuf {
    let name: String = image.chars().filter(char::is_ascii_alphanumeric).collect();
    environment.runtime().join("users").join(name)
}

fn keep(path: &Path, theirs: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    audit::put_whole_file(path, 0o600, |file| file.write_all(theirs.as_bytes())).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: UserIds = UserIds { uid: 2_013_265_999, gid: 1000 };

    #[test]
    fn a_user_is_known_by_number() {
        let table = "root:x:0:0:root:/root:/bin/bash\nagent:x:1000:7:1001:/home/a:";
        assert!(knows(table, 0) && knows(table, 1000));
        assert!(!knows(table, 7) && !knows(table, 1001) && !knows("", 0));
    }

    #[test]
    fn the_sandboxs_user_is_known_and_so_are_the_images() {
        let theirs = "root:x:0:0:root:/root:/bin/bash\nagent:x:1000:1000::/home/a:/bin/bash\nnode:x:7:7::/n:";
        assert_eq!(
            with(theirs, USER),
            "agent:x:2013265999:1000:agent:/home/agent:/bin/bash\n\
             root:x:0:0:root:/root:/bin/bash\nnode:x:7:7::/n:\n"
        );
        assert!(
            with("root:x:0:0::/:/x\n", USER)
                .starts_with("agent:x:2013265999:1000:agent:/home/agent:/bin/sh\n")
        );
    }

    #[test]
    fn only_a_plain_file_is_a_table_of_users() {
        let mut made = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(5);
        header.set_entry_type(EntryType::Regular);
        made.append_data(&mut header, "passwd", &b"root:"[..]).unwrap();
        assert_eq!(text(&made.into_inner().unwrap()).unwrap(), "root:");
        let mut link = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(0);
        header.set_entry_type(EntryType::Symlink);
        link.append_link(&mut header, "passwd", "/etc/shadow").unwrap();
        assert_eq!(text(&link.into_inner().unwrap()).unwrap(), "");
    }
}
