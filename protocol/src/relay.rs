//! What the two ends of a relay say to each other, over one stream.
//!
//! Where the sockets of a gateway cannot be opened in a sandbox and handed out, the
//! sandbox's first process opens doors of its own. It announces each connection to
//! the end outside, which connects to the gateway, and from then on bytes go both
//! ways. Whatever the end inside says is a sandbox's word: the end outside judges it.
//!
//! A frame is a kind in one byte, the number of a stream in four, a length or a number
//! in four, most significant byte first, then as many bytes as the length says.
//!
//! ```text
//! inside    Open             a connection was accepted at this address of the sandbox
//! either    Data, End        bytes of it, at most as many as credit is left; no more bytes
//! either    Credit           so many bytes of yours were passed on: send as many more
//! either    Done             all bytes of yours were passed on, and that they ended
//! either    Reset            it broke; the other answers with Reset, unless it sent one
//! inside    Datagram         a question was sent to this address of the sandbox
//! outside   Datagram, Reset  its answer; there is none
//! ```
//!
//! Streams and questions are numbered 1, 2, 3 and so on, and no number comes back. An
//! end that sent End and Done is done with a stream: it only answers a Reset. So
//! when it also got both, or when Reset went both ways, nothing about that stream can
//! be on its way. A frame that fits no stream is therefore never a race, and whoever gets
//! one ends the channel. The one exception is a stream that the receiver has reset
//! and the sender does not know about yet.

use std::net::{Ipv4Addr, SocketAddrV4};

/// How many bytes of a stream may be on their way, in each direction.
pub const WINDOW_BYTES: u32 = 64 << 10;
/// Bytes of a stream in one frame.
pub const MAX_DATA_BYTES: usize = 16 << 10;
/// Bytes of a question or an answer.
pub const MAX_DATAGRAM_BYTES: usize = 4096;
/// Streams at once.
pub const MAX_STREAMS: usize = 1024;
/// Questions without an answer at once.
pub const MAX_QUESTIONS: usize = 256;

/// One frame. The number is a stream's or a question's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RelayFrame<'a> {
    /// The receiver may send so many bytes more.
    Credit {
        id: u32,
        bytes: u32,
    },
    Data {
        id: u32,
        bytes: &'a [u8],
    },
    Datagram {
        id: u32,
        /// The door's, as the sandbox sees it.
        address: SocketAddrV4,
        bytes: &'a [u8],
    },
    /// The sender has passed on all that it received of this stream, and its end.
    Done {
        id: u32,
    },
    /// The sender has no more bytes of this stream.
    End {
        id: u32,
    },
    Open {
        id: u32,
        /// The door's, as the sandbox sees it.
        address: SocketAddrV4,
    },
    Reset {
        id: u32,
    },
}

/// These bytes are no frame, whatever follows them.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not a frame of a relay")]
pub struct NotARelayFrame;

impl<'a> RelayFrame<'a> {
    /// Appends it to `into`. A sender keeps to the limits above; what is longer
    /// would be refused at the other end.
    pub fn write_to(&self, into: &mut impl for<'b> Extend<&'b u8>) {
        let (kind, id, number, address, bytes) = match *self {
            Self::Credit { id, bytes } => (CREDIT, id, bytes, None, &[][..]),
            Self::Data { id, bytes } => (DATA, id, length_of(bytes), None, bytes),
            Self::Datagram { id, address, bytes } => {
                let length = length_of(bytes).saturating_add(ADDRESS_BYTES);
                (DATAGRAM, id, length, Some(address), bytes)
            }
            Self::Done { id } => (DONE, id, 0, None, &[][..]),
            Self::End { id } => (END, id, 0, None, &[][..]),
            Self::Open { id, address } => (OPEN, id, ADDRESS_BYTES, Some(address), &[][..]),
            Self::Reset { id } => (RESET, id, 0, None, &[][..]),
        };
        into.extend(&[kind]);
        into.extend(&id.to_be_bytes());
        into.extend(&number.to_be_bytes());
        if let Some(address) = address {
            into.extend(&address.ip().octets());
            into.extend(&address.port().to_be_bytes());
        }
        into.extend(bytes);
    }

    /// The first frame of `bytes` and how long it is; nothing if it is not all there
    /// yet. What can become no frame is refused at once: nobody waits for the rest.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, NotARelayFrame> {
        let Some((&[kind, a, b, c, d, number @ ..], rest)) =
            bytes.split_first_chunk::<HEADER_BYTES>()
        else {
            return Ok(None);
        };
        let (id, number) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes(number));
        let length = number as usize;
        let (least, most) = match kind {
            CREDIT if (1..=WINDOW_BYTES).contains(&number) => (0, 0),
            DATA => (1, MAX_DATA_BYTES),
            DATAGRAM => (ADDRESS_BYTES as usize, ADDRESS_BYTES as usize + MAX_DATAGRAM_BYTES),
            DONE | END | RESET => (0, 0),
            OPEN => (ADDRESS_BYTES as usize, ADDRESS_BYTES as usize),
            _ => return Err(NotARelayFrame),
        };
        let length = if kind == CREDIT { 0 } else { length };
        if id == 0 || !(least..=most).contains(&length) {
            return Err(NotARelayFrame);
        }
        let Some(payload) = rest.get(..length) else { return Ok(None) };
        let frame = match kind {
            CREDIT => Self::Credit { id, bytes: number },
            DATA => Self::Data { id, bytes: payload },
            DONE => Self::Done { id },
            END => Self::End { id },
            RESET => Self::Reset { id },
            _ => {
                let (&[a, b, c, d, high, low], bytes) =
                    payload.split_first_chunk().ok_or(NotARelayFrame)?;
                let address =
                    SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]));
                match kind {
                    OPEN => Self::Open { id, address },
                    _ => Self::Datagram { id, address, bytes },
                }
            }
        };
        Ok(Some((frame, HEADER_BYTES + length)))
    }
}

fn length_of(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

/// What a frame has besides its payload.
pub const HEADER_BYTES: usize = 9;
/// An address and a port.
const ADDRESS_BYTES: u32 = 6;

const OPEN: u8 = 1;
const DATA: u8 = 2;
const END: u8 = 3;
const DONE: u8 = 4;
const RESET: u8 = 5;
const CREDIT: u8 = 6;
const DATAGRAM: u8 = 7;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A frame that owns its bytes.
    #[derive(Clone, Debug)]
    struct Sample {
        kind: u8,
        id: u32,
        credit: u32,
        address: SocketAddrV4,
        bytes: Vec<u8>,
    }

    impl Sample {
        fn frame(&self) -> RelayFrame<'_> {
            let (id, address, bytes) = (self.id, self.address, &*self.bytes);
            match self.kind {
                CREDIT => RelayFrame::Credit { id, bytes: self.credit },
                DATA => RelayFrame::Data { id, bytes },
                DATAGRAM => RelayFrame::Datagram { id, address, bytes: &bytes[1..] },
                DONE => RelayFrame::Done { id },
                END => RelayFrame::End { id },
                OPEN => RelayFrame::Open { id, address },
                _ => RelayFrame::Reset { id },
            }
        }
    }

    fn samples() -> impl Strategy<Value = Sample> {
        let address = (any::<[u8; 4]>(), any::<u16>())
            .prop_map(|(octets, port)| SocketAddrV4::new(octets.into(), port));
        let bytes = prop::collection::vec(any::<u8>(), 1..300);
        (1..=7_u8, 1..u32::MAX, 1..=WINDOW_BYTES, address, bytes).prop_map(
            |(kind, id, credit, address, bytes)| Sample { kind, id, credit, address, bytes },
        )
    }

    fn written(frame: RelayFrame<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame.write_to(&mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn frames_read_back_as_they_were_written_however_they_are_cut(
            samples in prop::collection::vec(samples(), 1..8),
            cut: prop::sample::Index,
        ) {
            let whole: Vec<u8> = samples.iter().flat_map(|it| written(it.frame())).collect();
            let mut rest = &*whole;
            for sample in &samples {
                let (frame, length) = RelayFrame::parse(rest).unwrap().unwrap();
                prop_assert_eq!(frame, sample.frame());
                // A torn frame is one that is not there yet, never another one.
                let torn = &rest[..cut.index(length)];
                prop_assert_eq!(RelayFrame::parse(torn), Ok(None));
                rest = &rest[length..];
            }
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            if let Ok(Some((frame, length))) = RelayFrame::parse(&bytes) {
                prop_assert_eq!(written(frame), &bytes[..length]);
            }
        }
    }

    #[test]
    fn a_frame_over_a_limit_is_refused_before_its_bytes_come() {
        let header = |kind: u8, id: u32, number: usize| {
            let number = u32::try_from(number).unwrap();
            [&[kind][..], &id.to_be_bytes(), &number.to_be_bytes()].concat()
        };
        for (header, what) in [
            (header(0, 1, 0), "no kind"),
            (header(8, 1, 0), "no kind either"),
            (header(END, 0, 0), "no stream"),
            (header(END, 1, 1), "an end with bytes"),
            (header(DONE, 1, 1), "a confirmation with bytes"),
            (header(RESET, 1, 1), "a reset with bytes"),
            (header(OPEN, 1, 5), "half an address"),
            (header(OPEN, 1, 7), "more than an address"),
            (header(DATA, 1, 0), "data without any"),
            (header(DATA, 1, MAX_DATA_BYTES + 1), "too much data"),
            (header(DATAGRAM, 1, 5), "a question to half an address"),
            (header(DATAGRAM, 1, 6 + MAX_DATAGRAM_BYTES + 1), "a question that is too long"),
            (header(CREDIT, 1, 0), "credit for nothing"),
            (header(CREDIT, 1, WINDOW_BYTES as usize + 1), "credit for more than a window"),
        ] {
            assert_eq!(RelayFrame::parse(&header), Err(NotARelayFrame), "{what}");
            assert_eq!(RelayFrame::parse(&header[..HEADER_BYTES - 1]), Ok(None), "{what}");
        }
        for (header, length) in
            [(header(DATA, 1, MAX_DATA_BYTES), MAX_DATA_BYTES), (header(OPEN, 1, 6), 6)]
        {
            assert_eq!(RelayFrame::parse(&header), Ok(None));
            let whole = [header, vec![0; length]].concat();
            assert_eq!(RelayFrame::parse(&whole).unwrap().unwrap().1, whole.len());
        }
    }
}
