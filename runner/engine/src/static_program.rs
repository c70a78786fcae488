//! Whether a program runs where nothing else is: in an image without libraries.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, bail};

/// Checks that the program at `path` is one.
pub(crate) fn check_file(path: &Path) -> anyhow::Result<()> {
    check(path, &head_of(path)?)
}

/// Program headers stand at the beginning.
fn head_of(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut head = Vec::new();
    let read = || format!("cannot read {}", path.display());
    let file = fs::File::open(path).with_context(read)?;
    file.take(64 * 1024).read_to_end(&mut head).with_context(read)?;
    Ok(head)
}

/// A program that names an interpreter does not start in an image without one.
pub(crate) fn check(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    match names_an_interpreter(bytes) {
        Some(false) => Ok(()),
        Some(true) => bail!(
            "{} is linked dynamically and cannot run inside an image; `scripts/build-static` builds one that can",
            path.display()
        ),
        None => bail!("{} is not a program for this machine", path.display()),
    }
}

/// Looks through the program headers of a 64-bit ELF file.
fn names_an_interpreter(bytes: &[u8]) -> Option<bool> {
    const INTERPRETER: u32 = 3;
    if bytes.get(..5)? != b"\x7fELF\x02" {
        return None;
    }
    let start = usize::try_from(u64::from_le_bytes(bytes.get(32..40)?.try_into().ok()?)).ok()?;
    let size = usize::from(u16::from_le_bytes(bytes.get(54..56)?.try_into().ok()?));
    let count = usize::from(u16::from_le_bytes(bytes.get(56..58)?.try_into().ok()?));
    for number in 0..count {
        let at = start.checked_add(number.checked_mul(size)?)?;
        let kind = u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?);
        if kind == INTERPRETER {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_program_is_said_to_be_none() {
        let err = check(Path::new("/x/y"), b"#!/bin/sh\n").unwrap_err();
        assert_eq!(err.to_string(), "/x/y is not a program for this machine");
    }

    #[test]
    fn a_program_that_needs_an_interpreter_is_noticed() {
        let shell = fs::read("/bin/sh").unwrap();
        assert_eq!(names_an_interpreter(&shell), Some(true));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(mut bytes: Vec<u8>) {
            names_an_interpreter(&bytes);
            bytes.splice(..0, *b"\x7fELF\x02");
            names_an_interpreter(&bytes);
        }
    }
}
