//! Spools that nobody was left to read: what a command printed is whole although
//! whoever started it was killed.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use protocol::spool::{SpoolEnd, SpoolEvent};

use crate::command::SpoolReader;
use crate::evidence::{Header, Recording, RunFolder, SPOOL, Stream, Transcript};
use crate::outcome::{RunObservations, judge};

/// Writes every transcript of `evidence` that has a spool anew, out of the spool,
/// which goes then. `command` is what a run carried out. One that cannot be written
/// keeps no other from it; the first such is the error.
pub fn finish_transcripts(evidence: &RunFolder, command: &[String]) -> io::Result<()> {
    let commands = fs::read_dir(evidence.commands()).into_iter().flatten();
    let others = commands.map(|entry| finish(&entry?.path(), &[]));
    let done: Vec<io::Result<()>> =
        std::iter::once(finish(evidence.path(), command)).chain(others).collect();
    done.into_iter().collect()
}

/// How the run's command ended, if it did while nobody had read its spool.
pub fn end_of_run(evidence: &RunFolder) -> Option<SpoolEnd> {
    let mut reader = SpoolReader::open(&evidence.spool(), 0).ok()?;
    while let Ok(Some((event, _))) = reader.next_event() {
        if let SpoolEvent::Ended(end) = event {
            return Some(end);
        }
    }
    None
}

fn finish(folder: &Path, command: &[String]) -> io::Result<()> {
    let (spool, path) = (folder.join(SPOOL), folder.join("transcript.cast"));
    let mut reader = match SpoolReader::open(&spool, 0) {
        Ok(reader) => reader,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(err) => return Err(err),
    };
    // Whoever began it knew how large the terminal was.
    let header = Recording::open(&path).map(|recording| recording.header);
    let header = header.unwrap_or_else(|_| Header::new(command, 80, 24));
    let draft = folder.join(".transcript.cast");
    drop(fs::remove_file(&draft));
    let at = Arc::new(AtomicU64::new(0));
    let now = Arc::clone(&at);
    let clock = Box::new(move || Duration::from_micros(now.load(Ordering::Relaxed)));
    // The spool was bounded when it was written.
    let mut transcript = Transcript::create(&draft, &header, u64::MAX, clock)?;
    let mut end = None;
    // A spool that was damaged is told up to there.
    while let Ok(Some((event, happened))) = reader.next_event() {
        at.store(u64::try_from(happened.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        match event {
            SpoolEvent::Error(bytes) => transcript.output(Stream::Error, &bytes)?,
            SpoolEvent::Output(bytes) => transcript.output(Stream::Output, &bytes)?,
            SpoolEvent::Resized(size) => transcript.resize(size.columns, size.rows)?,
            SpoolEvent::Ended(ended) => end = Some(ended),
        }
    }
    if let Some(end) = end {
        transcript.exit(judge(&RunObservations::from_spool(end)).code().into())?;
    }
    fs::rename(&draft, &path)?;
    fs::remove_file(&spool)
}

#[cfg(test)]
mod tests {
    use protocol::init::{CommandEnd, TerminalSize};

    use super::*;

    #[test]
    fn a_transcript_is_whole_although_its_writer_was_killed() {
        let home = tempfile::tempdir().unwrap();
        let evidence = RunFolder::create(&home.path().join("runs"), "r1").unwrap();
        let command = ["make".to_owned()];
        let clock = Box::new(|| Duration::ZERO);
        let header = Header::new(&command, 120, 40);
        let mut cut = Transcript::create(&evidence.transcript(), &header, 100, clock).unwrap();
        cut.output(Stream::Output, b"one ").unwrap();
        drop(cut);
        let size = TerminalSize { columns: 100, rows: 30 };
        let end = SpoolEnd { end: CommandEnd::Signaled(9), facts: Vec::new() };
        let mut spool = Vec::new();
        for (at, event) in [
            (1, SpoolEvent::Output(b"one ".to_vec())),
            (2, SpoolEvent::Error(b"two".to_vec())),
            (3, SpoolEvent::Resized(size)),
            (4, SpoolEvent::Ended(end)),
        ] {
            spool.extend(event.frame(Duration::from_secs(at)));
        }
        // A frame that was not written to its end is not there.
        spool.extend(&SpoolEvent::Output(b"torn".to_vec()).frame(Duration::ZERO)[..10]);
        fs::write(evidence.spool(), spool).unwrap();

        finish_transcripts(&evidence, &command).unwrap();
        let text = fs::read_to_string(evidence.transcript()).unwrap();
        let (first, rest) = text.split_once('\n').unwrap();
        assert!(first.contains(r#""cols":120"#), "{first}");
        expect_test::expect![[r#"
            [1.000000, "o", "one "]
            [1.000000, "o", "two"]
            [1.000000, "r", "100x30"]
            [1.000000, "x", "137"]
        "#]]
        .assert_eq(rest);
        assert!(!evidence.spool().exists());
        // Once more changes nothing.
        finish_transcripts(&evidence, &command).unwrap();
        assert_eq!(fs::read_to_string(evidence.transcript()).unwrap(), text);
    }
    #[test]
    fn one_transcript_that_cannot_be_written_keeps_no_other_from_it() {
        let home = tempfile::tempdir().unwrap();
        let evidence = RunFolder::create(&home.path().join("runs"), "r1").unwrap();
        let folders: Vec<_> = (0..8).map(|n| evidence.commands().join(n.to_string())).collect();
        for (number, folder) in folders.iter().enumerate() {
            fs::create_dir_all(folder).unwrap();
            match number % 2 {
                0 => fs::create_dir(folder.join(SPOOL)).unwrap(),
                _ => {
                    let said = SpoolEvent::Output(b"hi".to_vec()).frame(Duration::ZERO);
                    fs::write(folder.join(SPOOL), said).unwrap();
                }
            }
        }
        assert!(finish_transcripts(&evidence, &[]).is_err());
        for (number, folder) in folders.iter().enumerate().filter(|(number, _)| number % 2 == 1) {
            let text = fs::read_to_string(folder.join("transcript.cast")).unwrap_or_default();
            assert!(text.contains("hi"), "{number}: {text}");
        }
    }
}
