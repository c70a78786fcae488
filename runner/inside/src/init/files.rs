//! Files in and out of a sandbox, from its inside.
//!
//! `files send LIMIT PATH` writes an archive to standard output, `files receive
//! LIMIT PATH` reads one and says how much it was. An image needs no tar for it.

use std::io::{self, Write as _};
use std::path::Path;

use files::archive::{ArchiveError, ArchiveLimits, Moved, receive, send};

/// Does what the arguments say; the exit code.
#[expect(clippy::print_stderr, reason = "whoever copies reads it there")]
pub fn carry_out(words: &[String]) -> i32 {
    let [verb, limit, path] = words else { return 125 };
    let Ok(bytes) = limit.parse() else { return 125 };
    let limits = ArchiveLimits { bytes, ..ArchiveLimits::default() };
    let path = Path::new(path);
    let moved = match verb.as_str() {
        "receive" => receive(io::stdin().lock(), path, &limits).and_then(said),
        "send" => send(path, &limits, io::BufWriter::new(io::stdout().lock())).map(drop),
        _ => return 125,
    };
    match moved {
        Ok(()) => 0,
        Err(err) => {
            eprintln!("{:#}", anyhow::Error::new(err));
            1
        }
    }
}

fn said(Moved { entries, bytes }: Moved) -> Result<(), ArchiveError> {
    writeln!(io::stdout(), "{entries} {bytes}").map_err(|source| ArchiveError::Tar { source })
}
