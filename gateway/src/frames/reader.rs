//! Finds frames in a stream of bytes.

/// The nine bytes in front of a frame, and what of its payload is wanted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Http2Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) length: u32,
    /// The first bytes of the payload where they matter: how much of data is
    /// padding, and why a stream is reset. Zeros elsewhere.
    pub(super) start: [u8; 4],
}

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const CONTINUATION: u8 = 9;

impl Http2Frame {
    pub(super) fn ends_stream(&self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & 0x1 != 0
    }

    /// Bytes of content: data without its padding.
    pub(super) fn content(&self) -> u32 {
        match self.kind {
            DATA if self.is_padded_data() => {
                self.length.saturating_sub(1 + u32::from(self.start[0]))
            }
            DATA => self.length,
            _ => 0,
        }
    }

    /// Why a stream is reset.
    pub(super) fn error_code(&self) -> u32 {
        u32::from_be_bytes(self.start)
    }

    /// As people know it.
    pub(super) fn name(&self) -> &'static str {
        match self.kind {
            DATA => "DATA",
            HEADERS => "HEADERS",
            2 => "PRIORITY",
            RST_STREAM => "RST_STREAM",
            4 => "SETTINGS",
            5 => "PUSH_PROMISE",
            6 => "PING",
            7 => "GOAWAY",
            8 => "WINDOW_UPDATE",
            CONTINUATION => "CONTINUATION",
            _ => "frame of a type that nobody knows",
        }
    }

    fn is_padded_data(&self) -> bool {
        self.kind == DATA && self.flags & 0x8 != 0
    }

    /// How much of the payload is wanted.
    fn wanted(&self) -> u32 {
        let wanted = match self.kind {
            RST_STREAM => 4,
            _ if self.is_padded_data() => 1,
            _ => 0,
        };
        self.length.min(wanted)
    }
}

/// Reads frames from pieces of any size.
#[derive(Debug)]
pub(super) struct FrameReader {
    /// Bytes that are no concern of ours: the preface, payloads.
    skip: usize,
    /// What is there of a frame that is not yet complete.
    partial: [u8; HEADER_BYTES + 4],
    have: usize,
}

const HEADER_BYTES: usize = 9;

impl FrameReader {
    /// A stream that begins with `preface` bytes that are no frame.
    pub(super) fn after(preface: usize) -> Self {
        Self { skip: preface, partial: [0; HEADER_BYTES + 4], have: 0 }
    }

    /// Gives every frame that begins in `bytes`, once enough of it is there.
    pub(super) fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(Http2Frame)) {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let skipped = self.skip.min(bytes.len());
                self.skip -= skipped;
                bytes = bytes.get(skipped..).unwrap_or_default();
                continue;
            }
            let needed = match self.header() {
                Some(frame) => HEADER_BYTES + frame.wanted() as usize,
                None => HEADER_BYTES,
            };
            let taken = (needed - self.have).min(bytes.len());
            let (now, later) = bytes.split_at(taken);
            if let Some(room) = self.partial.get_mut(self.have..self.have + taken) {
                room.copy_from_slice(now);
            }
            self.have += taken;
            bytes = later;
            if let Some(frame) = self.complete() {
                self.skip = (frame.length - frame.wanted()) as usize;
                self.have = 0;
                each(frame);
            }
        }
    }

    /// The frame whose nine bytes are there.
    fn header(&self) -> Option<Http2Frame> {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3, a, b, c, d] = self.partial;
        (self.have >= HEADER_BYTES).then_some(Http2Frame {
            kind,
            flags,
            stream: u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]),
            length: u32::from_be_bytes([0, l0, l1, l2]),
            start: [a, b, c, d],
        })
    }

    fn complete(&self) -> Option<Http2Frame> {
        let mut frame = self.header()?;
        let wanted = frame.wanted() as usize;
        if self.have < HEADER_BYTES + wanted {
            return None;
        }
        // What is behind it is left over from an earlier frame.
        frame.start.iter_mut().skip(wanted).for_each(|byte| *byte = 0);
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(reader: &mut FrameReader, pieces: &[&[u8]]) -> Vec<Http2Frame> {
        let mut frames = Vec::new();
        for piece in pieces {
            reader.feed(piece, |frame| frames.push(frame));
        }
        frames
    }

    #[test]
    fn frames_are_found_behind_the_preface() {
        let wire = [
            &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
            &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100],
            &[0, 0, 4, 3, 0, 0x80, 0, 0, 5, 0, 0, 0, 8],
            &[0, 0, 7, 0, 0x9, 0, 0, 0, 7, 4, b'a', b'b', 0, 0, 0, 0],
            &[0, 0, 0, 1, 5, 0, 0, 0, 9],
        ]
        .concat();
        let frames = read(&mut FrameReader::after(24), &[&wire]);
        let seen: Vec<_> = frames.iter().map(|f| (f.name(), f.stream, f.length)).collect();
        let expected =
            [("SETTINGS", 0, 6), ("RST_STREAM", 5, 4), ("DATA", 7, 7), ("HEADERS", 9, 0)];
        assert_eq!(seen, expected);
        assert_eq!(frames[1].error_code(), 8);
        assert_eq!(frames[2].content(), 2);
        assert!(frames[2].ends_stream());
        assert!(frames[3].ends_stream());
        assert_eq!(frames[3].start, [0; 4], "not what another frame said");
    }

    proptest! {
        /// However the pieces fall, the frames are the same.
        #[test]
        fn split_is_whole(
            wire in prop::collection::vec(any::<u8>(), 0..200),
            cuts in prop::collection::vec(0usize..200, 0..20),
            preface in 0usize..30,
        ) {
            // Lengths stay small, so that there is more than one frame.
            let mut wire = wire;
            for at in (preface..wire.len()).step_by(11) {
                wire[at] = 0;
                if let Some(byte) = wire.get_mut(at + 1) {
                    *byte = 0;
                }
            }
            let whole = read(&mut FrameReader::after(preface), &[&wire]);
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < wire.len()).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts {
                pieces.push(&wire[from..cut]);
                from = cut;
            }
            pieces.push(&wire[from..]);
            prop_assert_eq!(read(&mut FrameReader::after(preface), &pieces), whole);
        }
    }

    #[test]
    fn a_frame_is_called_as_people_know_it() {
        let names: Vec<_> = (0..11)
            .map(|kind| Http2Frame { kind, flags: 0, stream: 1, length: 0, start: [0; 4] }.name())
            .collect();
        assert_eq!(
            names,
            [
                "DATA",
                "HEADERS",
                "PRIORITY",
                "RST_STREAM",
                "SETTINGS",
                "PUSH_PROMISE",
                "PING",
                "GOAWAY",
                "WINDOW_UPDATE",
                "CONTINUATION",
                "frame of a type that nobody knows",
            ]
        );
    }

    #[test]
    fn of_a_payload_only_what_matters_is_kept() {
        let one = |kind: u8, flags: u8| {
            let wire = [0, 0, 6, kind, flags, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6];
            let frames = read(&mut FrameReader::after(0), &[&wire]);
            let [frame] = frames.as_slice() else { panic!("{frames:?}") };
            (frame.start, frame.content())
        };
        assert_eq!(one(DATA, 0), ([0; 4], 6));
        assert_eq!(one(DATA, 8), ([1, 0, 0, 0], 4));
        assert_eq!(one(HEADERS, 8), ([0; 4], 0));
        assert_eq!(one(RST_STREAM, 0), ([1, 2, 3, 4], 0));
        assert_eq!(one(6, 8), ([0; 4], 0));
    }
}
