//! No change whatever goes unseen, and what was only written is whole.

use proptest::prelude::*;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_byte_of_any_file_can_be_flipped(
        file in 0..FILES.len(),
        at: prop::sample::Index,
        flip in 1u8..=255,
    ) {
        let evidence = Evidence::new();
        evidence.rewrite(FILES[file], |bytes| *at.get_mut(bytes) ^= flip);
        prop_assert!(matches!(evidence.verify(), Err(VerifyError::Broken(_))));
    }

    #[test]
    fn no_byte_of_any_file_can_be_deleted_or_doubled(
        file in 0..FILES.len(),
        at: prop::sample::Index,
        double: bool,
    ) {
        let evidence = Evidence::new();
        evidence.rewrite(FILES[file], |bytes| {
            let at = at.index(bytes.len());
            match double {
                true => bytes.insert(at, bytes[at]),
                false => drop(bytes.remove(at)),
            }
        });
        prop_assert!(matches!(evidence.verify(), Err(VerifyError::Broken(_))));
    }

    #[test]
    fn no_file_can_be_cut_short(file in 0..FILES.len(), at: prop::sample::Index) {
        let evidence = Evidence::new();
        evidence.rewrite(FILES[file], |bytes| bytes.truncate(at.index(bytes.len())));
        prop_assert!(matches!(evidence.verify(), Err(VerifyError::Broken(_))));
    }

    /// Without a seal, everything but the last line is still held by the chain.
    #[test]
    fn no_line_but_the_last_can_be_changed_without_a_seal(
        at: prop::sample::Index,
        flip in 1u8..=255,
    ) {
        let evidence = Evidence::new();
        evidence.remove("seal.json");
        evidence.rewrite("audit.jsonl", |bytes| {
            let last_line = bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap();
            bytes[at.index(last_line)] ^= flip;
        });
        prop_assert!(matches!(evidence.verify(), Err(VerifyError::Broken(_))));
    }

    #[test]
    fn lines_cannot_be_deleted_doubled_or_moved(
        (a, b) in (0usize..6, 0usize..6),
        how in 0..3,
    ) {
        let evidence = Evidence::new();
        evidence.rewrite("audit.000002.jsonl", |bytes| {
            let text = String::from_utf8(bytes.clone()).unwrap();
            let mut lines: Vec<_> = text.split_inclusive('\n').collect();
            match how {
                0 => drop(lines.remove(a)),
                1 => lines.insert(b, lines[a]),
                _ => lines.swap(a, if a == b { (b + 1) % 6 } else { b }),
            }
            *bytes = lines.concat().into_bytes();
        });
        prop_assert!(matches!(evidence.verify(), Err(VerifyError::Broken(_))));
    }

    #[test]
    fn no_bytes_make_verify_panic(bytes: Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("audit.jsonl"), &bytes).unwrap();
        fs::write(dir.path().join("seal.json"), &bytes).unwrap();
        drop(verify(dir.path(), &[]));
    }

    #[test]
    fn what_was_appended_always_verifies(
        texts in proptest::collection::vec(any::<String>(), 0..20),
        segment_bytes in 1u64..2000,
    ) {
        let dir = private_dir();
        let options =
            Options { sync: SyncPolicy::Never, segment_bytes, ..Options::new("run-1") };
        let (log, _) = Log::open(dir.path(), options).unwrap();
        for text in &texts {
            let detail = Some(text.as_str().into());
            log.record(Operator { action: "x".into(), detail, ..Operator::default() }).unwrap();
        }
        let head = log.close_blocking().unwrap();
        let verified = verify(dir.path(), &[]).unwrap().log.unwrap();
        prop_assert_eq!(verified.head, head);
        prop_assert_eq!(verified.closed, true);
    }
}
