//! The control socket on disk: who can find it, and who can open it.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _,
};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// The socket, removed when dropped.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    owner: u32,
}

/// Why there is no control socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("another gateway answers at {}; stop it, or give this one another `control`", path.display())]
    Answered { path: PathBuf },
    #[error("cannot {doing} {}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("others can enter {} (mode {mode:04o}), and could reach the control socket in it; run `chmod 700 {}`", path.display(), path.display())]
    Loose { path: PathBuf, mode: u32 },
    #[error("{} belongs to user {owner}, who could replace the control socket in it; choose a directory of our own", path.display())]
    NotOurs { path: PathBuf, owner: u32 },
    #[error("{} is there and is not a socket; remove it, or choose another `control`", path.display())]
    NotASocket { path: PathBuf },
    #[error("{} is longer than the {MAX_SOCKET_PATH_BYTES} bytes that the path of a socket may have", path.display())]
    TooLong { path: PathBuf },
}

impl ControlSocket {
    /// Makes the socket at `path`, in a directory that is ours alone.
    pub(crate) fn bind(path: &Path) -> Result<Self, SocketError> {
        if path.as_os_str().len() > MAX_SOCKET_PATH_BYTES {
            return Err(SocketError::TooLong { path: path.to_owned() });
        }
        let directory = private_directory(path)?;
        remove_stale(path)?;
        let listener = UnixListener::bind(path).map_err(failed("listen at", path))?;
        // No other user can open it before this: the directory is closed to them.
        fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed("close", path))?;
        let owner = fs::symlink_metadata(path).map_err(failed("examine", path))?.uid();
        let socket = Self { listener, path: path.to_owned(), owner };
        if directory.uid() != owner {
            let path = parent(path).to_owned();
            return Err(SocketError::NotOurs { path, owner: directory.uid() });
        }
        Ok(socket)
    }

    /// The next caller who may ask, and their user id; or the user id of one who
    /// may not.
    pub(crate) async fn accept(&self) -> io::Result<Result<(UnixStream, u32), u32>> {
        let (stream, _) = self.listener.accept().await?;
        let uid = stream.peer_cred()?.uid();
        Ok(if may_ask(uid, self.owner) { Ok((stream, uid)) } else { Err(uid) })
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // It may be gone already, and then there is nothing to do.
        drop(fs::remove_file(&self.path));
    }
}

/// The directory's mode already keeps others out. The kernel is asked as well,
/// because a mode can be changed and a socket can be passed on.
fn may_ask(uid: u32, owner: u32) -> bool {
    uid == owner || uid == 0
}

/// Makes the socket's directory, or finds it closed to others.
pub(crate) fn private_directory(socket: &Path) -> Result<Metadata, SocketError> {
    let directory = parent(socket);
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(failed("make", directory))?;
    let metadata = fs::metadata(directory).map_err(failed("examine", directory))?;
    let mode = metadata.mode() & 0o7777;
    if mode & 0o077 == 0 {
        Ok(metadata)
    } else {
        Err(SocketError::Loose { path: directory.to_owned(), mode })
    }
}

/// Removes the socket of a gateway that was killed.
fn remove_stale(path: &Path) -> Result<(), SocketError> {
    match fs::symlink_metadata(path) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(SocketError::Io { doing: "examine", path: path.to_owned(), source }),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            Err(SocketError::NotASocket { path: path.to_owned() })
        }
        Ok(_) if BlockingStream::connect(path).is_ok() => {
            Err(SocketError::Answered { path: path.to_owned() })
        }
        Ok(_) => fs::remove_file(path).map_err(failed("remove", path)),
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SocketError {
    let path = path.to_owned();
    move |source| SocketError::Io { doing, path, source }
}

/// What `sockaddr_un` holds, with its final zero.
const MAX_SOCKET_PATH_BYTES: usize = 107;

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).expect("it is there").mode() & 0o7777
    }

    #[tokio::test]
    async fn only_we_can_enter_the_directory_and_open_the_socket() {
        let base = tempfile::tempdir().expect("a directory can be made");
        let path = base.path().join("run/control.sock");
        let socket = ControlSocket::bind(&path).expect("it can be made");
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(parent(&path)), 0o700);
        drop(socket);
        assert!(!path.exists(), "it is removed with the gateway");
    }

    #[tokio::test]
    async fn a_directory_that_others_can_enter_is_refused_with_what_to_do() {
        let base = tempfile::tempdir().expect("a directory can be made");
        fs::set_permissions(base.path(), Permissions::from_mode(0o755)).expect("it is ours");
        let path = base.path().join("control.sock");
        let err = ControlSocket::bind(&path).expect_err("it is loose");
        let shown = base.path().display();
        assert_eq!(
            err.to_string(),
            format!(
                "others can enter {shown} (mode 0755), and could reach the control socket in it; run `chmod 700 {shown}`"
            )
        );
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn what_a_killed_gateway_left_is_removed_and_a_living_one_is_not() {
        let base = tempfile::tempdir().expect("a directory can be made");
        let path = base.path().join("run/control.sock");
        private_directory(&path).expect("it can be made");
        // As a killed process leaves it: the file without anybody behind it.
        drop(std::os::unix::net::UnixListener::bind(&path).expect("it can be made"));
        let living = ControlSocket::bind(&path).expect("nobody answers");
        let err = ControlSocket::bind(&path).expect_err("somebody answers");
        assert!(matches!(err, SocketError::Answered { .. }), "{err}");
        drop(living);

        fs::write(&path, "precious").expect("a file can be written");
        let err = ControlSocket::bind(&path).expect_err("it is a file");
        assert!(matches!(err, SocketError::NotASocket { .. }), "{err}");
        assert_eq!(fs::read_to_string(&path).expect("it is still there"), "precious");
    }

    #[tokio::test]
    async fn a_path_that_no_socket_can_have_is_named() {
        let base = tempfile::tempdir().expect("a directory can be made");
        let path = base.path().join("x".repeat(120));
        let err = ControlSocket::bind(&path).expect_err("it is too long");
        assert!(matches!(err, SocketError::TooLong { .. }), "{err}");
    }

    #[test]
    fn our_own_user_and_root_may_ask_and_nobody_else() {
        assert!(may_ask(1000, 1000));
        assert!(may_ask(0, 1000));
        assert!(!may_ask(1001, 1000));
        assert!(!may_ask(1000, 0));
    }
}
