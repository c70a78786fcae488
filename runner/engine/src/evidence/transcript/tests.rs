use expect_test::expect;
use proptest::prelude::*;

use super::*;

/// A clock that moves on by 1.5 ms at every look.
fn clock() -> Box<dyn FnMut() -> Duration + Send> {
    let mut now = Duration::ZERO;
    Box::new(move || {
        now += Duration::from_micros(1500);
        now
    })
}

fn header() -> Header {
    Header {
        timestamp: Some(1_700_000_000),
        ..Header::new(&["npm".to_owned(), "test".to_owned()], 80, 24)
    }
}

fn read(bytes: &[u8]) -> io::Result<Vec<TranscriptEvent>> {
    let mut recording = Recording::read(bytes)?;
    let mut events = Vec::new();
    while let Some(event) = recording.next()? {
        events.push(event);
    }
    Ok(events)
}

fn shown(events: &[TranscriptEvent]) -> String {
    let output = |event: &TranscriptEvent| match &event.what {
        What::Output(text) => Some(text.clone()),
        _ => None,
    };
    events.iter().filter_map(output).collect()
}

#[test]
fn a_recording_on_disk() {
    let mut bytes = Vec::new();
    let mut transcript = Transcript::begin(&mut bytes, &header(), 100, clock()).unwrap();
    transcript.output(Stream::Output, b"\x1b[1mhello\r\n").unwrap();
    transcript.resize(100, 50).unwrap();
    transcript.output(Stream::Error, "süß\u{9b}\n".as_bytes()).unwrap();
    transcript.exit(3).unwrap();
    expect![[r#"
        {"version":3,"term":{"cols":80,"rows":24},"timestamp":1700000000,"command":"npm test"}
        [0.001500, "o", "\u001b[1mhello\r\n"]
        [0.001500, "r", "100x50"]
        [0.001500, "o", "s\u00fc\u00df\u009b\n"]
        [0.001500, "x", "3"]
    "#]]
    .assert_eq(&String::from_utf8(bytes).unwrap());
}

#[test]
fn beyond_the_limit_output_is_counted_not_kept() {
    let mut bytes = Vec::new();
    let mut transcript = Transcript::begin(&mut bytes, &header(), 6, clock()).unwrap();
    transcript.output(Stream::Output, b"12345").unwrap();
    transcript.output(Stream::Output, b"678").unwrap();
    transcript.output(Stream::Output, b"9").unwrap();
    assert_eq!(transcript.exit(0).unwrap(), 3);
    let events = read(&bytes).unwrap();
    assert_eq!(shown(&events), "123456");
    let markers = events.iter().filter(|event| matches!(event.what, What::Marker(_)));
    assert_eq!(markers.count(), 1);
}

#[test]
fn a_character_cut_in_two_is_whole_also_between_streams() {
    let mut bytes = Vec::new();
    let mut transcript = Transcript::begin(&mut bytes, &header(), 100, clock()).unwrap();
    transcript.output(Stream::Output, b"a\xe2\x82").unwrap();
    transcript.output(Stream::Error, b"\xc3").unwrap();
    transcript.output(Stream::Output, b"\xac").unwrap();
    transcript.output(Stream::Error, b"\xbcz\xff\xf0\x9f").unwrap();
    transcript.exit(0).unwrap();
    assert_eq!(shown(&read(&bytes).unwrap()), "a€üz\u{fffd}\u{fffd}");
}

proptest! {
    /// However output is cut into pieces, the recording shows the same text.
    #[test]
    fn cutting_changes_nothing(bytes in prop::collection::vec(any::<u8>(), 0..60), cuts in prop::collection::vec(0_usize..60, 0..6)) {
        let mut file = Vec::new();
        let mut transcript = Transcript::begin(&mut file, &header(), u64::MAX, clock()).unwrap();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort();
        for pair in cuts.windows(2) {
            transcript.output(Stream::Output, &bytes[pair[0]..pair[1]]).unwrap();
        }
        transcript.exit(0).unwrap();
        prop_assert_eq!(shown(&read(&file).unwrap()), String::from_utf8_lossy(&bytes));
    }

    /// A crash may cut the file anywhere: what was whole before is still there.
    #[test]
    fn a_file_cut_anywhere_is_usable(texts in prop::collection::vec("\\PC{1,9}", 0..6), cut in 0.0..1.0) {
        let mut file = Vec::new();
        let mut transcript = Transcript::begin(&mut file, &header(), u64::MAX, clock()).unwrap();
        for text in &texts {
            transcript.output(Stream::Output, text.as_bytes()).unwrap();
        }
        transcript.exit(0).unwrap();
        let at = (file.len() as f64 * cut) as usize;
        let whole = read(&file).unwrap();
        let lines = file[..at].iter().filter(|byte| **byte == b'\n').count();
        match read(&file[..at]) {
            Ok(events) => prop_assert_eq!(&events[..], &whole[..lines - 1]),
            Err(_) => prop_assert_eq!(lines, 0),
        }
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        drop(read(&bytes));
        drop(read(&[b"{\"version\":3,\"term\":{\"cols\":1,\"rows\":1}}\n".as_slice(), &bytes].concat()));
    }
}
