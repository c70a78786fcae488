use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use expect_test::{Expect, expect};
use proptest::prelude::*;
use tar::{Builder, EntryType, Header};

use super::*;
use crate::listed::listed;
use crate::tree::Directory;

/// One entry, written without the care the library takes.
fn entry(kind: EntryType, path: &[u8], link: &[u8], content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    let gnu = header.as_gnu_mut().unwrap();
    gnu.name[..path.len()].copy_from_slice(path);
    gnu.linkname[..link.len()].copy_from_slice(link);
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn into(dir: &Path, entries: &[Vec<u8>]) -> Result<Moved, ArchiveError> {
    let mut bytes = entries.concat();
    bytes.extend([0; 1024]);
    unpack(&*bytes, &Directory::open(dir).unwrap(), &ArchiveLimits::default())
}

#[track_caller]
fn refused(entries: &[Vec<u8>], expected: Expect) {
    let home = tempfile::tempdir().unwrap();
    let place = home.path().join("place");
    fs::create_dir(&place).unwrap();
    fs::write(home.path().join("precious"), "precious").unwrap();
    let mut all = vec![entry(EntryType::Regular, b"harmless", b"", b"x")];
    all.extend_from_slice(entries);
    expected.assert_eq(&into(&place, &all).unwrap_err().to_string());
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "a refused archive left something");
    assert_eq!(fs::read(home.path().join("precious")).unwrap(), b"precious");
}

#[test]
fn names_that_lead_out_are_refused() {
    refused(
        &[entry(EntryType::Regular, b"../precious", b"", b"evil")],
        expect![
            "`../precious` is not a path inside the workspace: write it relative, without `..`"
        ],
    );
    refused(
        &[entry(EntryType::Regular, b"/etc/passwd", b"", b"evil")],
        expect![
            "`/etc/passwd` is not a path inside the workspace: write it relative, without `..`"
        ],
    );
    refused(
        &[entry(EntryType::Directory, b"a/b/../../..", b"", b"")],
        expect![
            "`a/b/../../..` is not a path inside the workspace: write it relative, without `..`"
        ],
    );
}

#[test]
fn links_that_lead_out_and_files_past_links_are_refused() {
    refused(
        &[entry(EntryType::Symlink, b"way", b"..", b"")],
        expect!["way is a link to .., which leads out"],
    );
    refused(
        &[entry(EntryType::Symlink, b"a/way", b"/etc", b"")],
        expect!["a/way is a link to /etc, which leads out"],
    );
    refused(
        &[
            entry(EntryType::Symlink, b"way", b"other", b""),
            entry(EntryType::Regular, b"way/file", b"", b"x"),
        ],
        expect!["there is something else at way already"],
    );
    refused(
        &[entry(EntryType::Link, b"hard", b"../precious", b"")],
        expect!["hard is a hard link, which is not copied"],
    );
}

#[test]
fn what_is_no_file_is_refused() {
    refused(
        &[entry(EntryType::Char, b"null", b"", b"")],
        expect!["null is a device, which is not copied"],
    );
    refused(
        &[entry(EntryType::Fifo, b"pipe", b"", b"")],
        expect!["pipe is a pipe, which is not copied"],
    );
    refused(
        &[entry(EntryType::Regular, b"harmless", b"", b"again")],
        expect!["there is something else at harmless already"],
    );
}

#[test]
fn what_stands_there_is_replaced_but_never_followed() {
    let home = tempfile::tempdir().unwrap();
    let place = home.path().join("place");
    fs::create_dir_all(place.join("dir")).unwrap();
    fs::write(home.path().join("precious"), "precious").unwrap();
    fs::write(place.join("dir/old"), "old").unwrap();
    fs::write(place.join("dir/kept"), "kept").unwrap();
    symlink("../precious", place.join("link")).unwrap();
    into(
        &place,
        &[
            entry(EntryType::Regular, b"dir/old", b"", b"new"),
            entry(EntryType::Regular, b"link", b"", b"new"),
        ],
    )
    .unwrap();
    assert_eq!(fs::read(place.join("dir/old")).unwrap(), b"new");
    assert_eq!(fs::read(place.join("dir/kept")).unwrap(), b"kept");
    assert!(!place.join("link").symlink_metadata().unwrap().is_symlink());
    assert_eq!(fs::read(home.path().join("precious")).unwrap(), b"precious");

    symlink("..", place.join("way")).unwrap();
    let err =
        into(&place, &[entry(EntryType::Regular, b"way/precious", b"", b"evil")]).unwrap_err();
    assert_eq!(err.to_string(), "there is something else at way already");
    assert_eq!(fs::read(home.path().join("precious")).unwrap(), b"precious");
}

#[test]
fn names_of_any_length_and_headers_that_change_what_follows_are_refused() {
    let long = vec![b'n'; 100_000];
    refused(
        &[
            entry(EntryType::GNULongName, b"././@LongLink", b"", &long),
            entry(EntryType::Regular, b"n", b"", b""),
        ],
        expect!["the archive has an extended header that we do not read"],
    );
    refused(
        &[
            entry(EntryType::XHeader, b"pax", b"", b"13 size=1024\n"),
            entry(EntryType::Regular, b"n", b"", b""),
        ],
        expect!["the archive has an extended header that we do not read"],
    );
    refused(
        &[
            entry(EntryType::XHeader, b"pax", b"", b"16 path=../evil\n"),
            entry(EntryType::Regular, b"n", b"", b"x"),
        ],
        expect!["`../evil` is not a path inside the workspace: write it relative, without `..`"],
    );
    refused(
        &[
            entry(EntryType::GNULongLink, b"././@LongLink", b"", b"../precious\0"),
            entry(EntryType::Symlink, b"way", b"fine", b""),
        ],
        expect!["way is a link to ../precious, which leads out"],
    );
    let home = tempfile::tempdir().unwrap();
    let named = [
        entry(EntryType::XGlobalHeader, b"pax", b"", b"17 comment=hello\n"),
        entry(EntryType::XHeader, b"pax", b"", b"17 path=new/name\n"),
        entry(EntryType::Regular, b"old", b"", b"x"),
    ];
    into(home.path(), &named).unwrap();
    assert_eq!(fs::read(home.path().join("new/name")).unwrap(), b"x");
}

#[test]
fn too_much_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let limits = ArchiveLimits { bytes: 3, ..ArchiveLimits::default() };
    let bytes = entry(EntryType::Regular, b"f", b"", b"1234");
    let err = unpack(&*bytes, &Directory::open(home.path()).unwrap(), &limits).unwrap_err();
    assert_eq!(err.to_string(), "there are more than 3 bytes to copy");
}

#[test]
fn what_was_packed_unpacks_the_same() {
    let home = tempfile::tempdir().unwrap();
    let from = home.path().join("from");
    fs::create_dir_all(from.join("top/sub")).unwrap();
    let long = "n".repeat(200);
    fs::write(from.join("top/sub").join(&long), "long").unwrap();
    fs::write(from.join("top/empty"), "").unwrap();
    symlink("sub", from.join("top/link")).unwrap();
    let to = home.path().join("to");
    fs::create_dir(&to).unwrap();

    let limits = ArchiveLimits::default();
    let mut tar = Vec::new();
    let packed =
        pack(&Directory::open(&from).unwrap(), b"top", (1000, 1000), &limits, &mut tar).unwrap();
    assert_eq!(packed, Moved { entries: 5, bytes: 4 });
    unpack(&*tar, &Directory::open(&to).unwrap(), &limits).unwrap();
    assert_eq!(listed(&from), listed(&to));
}

#[test]
fn nothing_outside_is_packed() {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("top")).unwrap();
    symlink("/etc/passwd", home.path().join("top/link")).unwrap();
    let directory = Directory::open(home.path()).unwrap();
    let limits = ArchiveLimits::default();
    let err = pack(&directory, b"top", (0, 0), &limits, Vec::new()).unwrap_err();
    assert_eq!(err.to_string(), "top/link is a link to /etc/passwd, which leads out");
    fs::remove_file(home.path().join("top/link")).unwrap();
    rustix::fs::mkfifoat(&directory, "top/pipe", rustix::fs::Mode::RUSR).unwrap();
    let err = pack(&directory, b"top", (0, 0), &limits, Vec::new()).unwrap_err();
    assert_eq!(err.to_string(), "top/pipe is a pipe, which is not copied");
}

proptest! {
    #[test]
    fn no_archive_writes_outside_or_panics(bytes in prop::collection::vec(any::<u8>(), 0..1500)) {
        let home = tempfile::tempdir().unwrap();
        let place = home.path().join("place");
        fs::create_dir(&place).unwrap();
        drop(unpack(&*bytes, &Directory::open(&place).unwrap(), &ArchiveLimits::default()));
        prop_assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }

    #[test]
    fn no_name_leads_outside(path in "[a./]{1,20}", link in "[a./]{0,12}", kind in prop::sample::select(vec![b'0', b'1', b'2', b'5'])) {
        let home = tempfile::tempdir().unwrap();
        let place = home.path().join("place");
        fs::create_dir(&place).unwrap();
        let kind = EntryType::new(kind);
        let written = if kind == EntryType::Regular { &b"x"[..] } else { b"" };
        drop(into(&place, &[entry(kind, path.as_bytes(), link.as_bytes(), written)]));
        prop_assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }
}

/// What docker writes can be read.
#[test]
fn an_archive_of_the_library_is_read() {
    let home = tempfile::tempdir().unwrap();
    let mut builder = Builder::new(Vec::new());
    let mut header = Header::new_ustar();
    header.set_size(2);
    header.set_mode(0o4755);
    builder.append_data(&mut header, "dir/run", &b"hi"[..]).unwrap();
    let bytes = builder.into_inner().unwrap();
    unpack(&*bytes, &Directory::open(home.path()).unwrap(), &ArchiveLimits::default()).unwrap();
    let metadata = home.path().join("dir/run").metadata().unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o7777, 0o755);
}
