//! What holds for any frames, and what holds between two ends that keep to the protocol.

use proptest::prelude::*;
use protocol::relay::WINDOW_BYTES;

use super::*;

const DOOR: SocketAddrV4 = SocketAddrV4::new(std::net::Ipv4Addr::new(127, 18, 0, 1), 443);
/// Few, so that they are all in use at times.
const FEW_STREAMS: usize = 4;

/// Something that happens to one of the two ends.
#[derive(Clone, Copy, Debug)]
enum Step {
    Answer {
        which: usize,
        is_given: bool,
    },
    Ask,
    /// So many bytes that the other end sent arrive.
    Deliver {
        to: usize,
        bytes: usize,
    },
    End {
        at: usize,
        which: usize,
    },
    Open,
    PassOn {
        at: usize,
        which: usize,
        bytes: usize,
    },
    Read {
        at: usize,
        which: usize,
        bytes: usize,
    },
    Reset {
        at: usize,
        which: usize,
    },
}

fn steps() -> impl Strategy<Value = Step> {
    let at = || 0..2_usize;
    let which = || 0..FEW_STREAMS;
    prop_oneof![
        1 => (which(), any::<bool>())
            .prop_map(|(which, is_given)| Step::Answer { which, is_given }),
        1 => Just(Step::Ask),
        8 => (at(), 1..40_000_usize).prop_map(|(to, bytes)| Step::Deliver { to, bytes }),
        2 => (at(), which()).prop_map(|(at, which)| Step::End { at, which }),
        4 => Just(Step::Open),
        4 => (at(), which(), 1..70_000_usize)
            .prop_map(|(at, which, bytes)| Step::PassOn { at, which, bytes }),
        6 => (at(), which(), 1..20_000_usize)
            .prop_map(|(at, which, bytes)| Step::Read { at, which, bytes }),
        1 => (at(), which()).prop_map(|(at, which)| Step::Reset { at, which }),
    ]
}

/// One end with sockets that are numbers.
struct ModelEnd {
    table: RelayTable,
    incoming: Vec<u8>,
    sockets: BTreeMap<u32, ModelSocket>,
    asked: Vec<u32>,
    /// Of every stream that there ever was: how much was read here, how much came from
    /// the other end and whether that has ended, and whether it was reset.
    read: BTreeMap<u32, u64>,
    received: BTreeMap<u32, (u64, bool)>,
    was_reset: Vec<u32>,
}

#[derive(Default)]
struct ModelSocket {
    pending: usize,
    has_read_end: bool,
}

impl ModelEnd {
    fn new(side: RelaySide) -> Self {
        Self {
            table: RelayTable::new(side, FEW_STREAMS),
            incoming: Vec::new(),
            sockets: BTreeMap::new(),
            asked: Vec::new(),
            read: BTreeMap::new(),
            received: BTreeMap::new(),
            was_reset: Vec::new(),
        }
    }

    fn id(&self, which: usize) -> Option<u32> {
        self.sockets.keys().nth(which).copied()
    }

    fn forget_finished(&mut self) {
        let table = &self.table;
        self.sockets.retain(|id, _| table.is_live(*id));
    }

    /// Reads from a socket, whose bytes count themselves.
    fn read(&mut self, id: u32, bytes: usize) {
        let bytes = bytes.min(self.table.room_for(id));
        if bytes > 0 {
            let so_far = self.read.entry(id).or_default();
            let counted: Vec<u8> =
                (*so_far..).take(bytes).map(|at| u8::try_from(at % 251).unwrap()).collect();
            *so_far += bytes as u64;
            self.table.send_data(id, &counted);
        }
    }

    fn end(&mut self, id: u32) {
        if let Some(socket) = self.sockets.get_mut(&id) {
            socket.has_read_end = true;
            self.table.send_end(id);
        }
    }

    fn pass_on(&mut self, id: u32, bytes: usize) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        let bytes = bytes.min(socket.pending);
        socket.pending -= bytes;
        self.table.pass_on(id, bytes);
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), RelayViolation> {
        self.incoming.extend(bytes);
        let incoming = std::mem::take(&mut self.incoming);
        let mut rest = &*incoming;
        while let Some((frame, length)) = RelayFrame::parse(rest).unwrap() {
            rest = &rest[length..];
            match self.table.receive(frame)? {
                RelayEvent::Asked { id, .. } => self.asked.push(id),
                RelayEvent::Data { id, bytes } => {
                    self.sockets.get_mut(&id).unwrap().pending += bytes.len();
                    let (so_far, has_ended) = self.received.entry(id).or_default();
                    assert!(!*has_ended);
                    for byte in bytes {
                        assert_eq!(u64::from(*byte), *so_far % 251, "not what was sent");
                        *so_far += 1;
                    }
                }
                RelayEvent::Ended { id } => self.received.entry(id).or_default().1 = true,
                RelayEvent::Opened { id, .. } => {
                    self.sockets.insert(id, ModelSocket::default());
                }
                RelayEvent::Reset { id } => self.was_reset.push(id),
                RelayEvent::Answered { .. }
                | RelayEvent::Nothing
                | RelayEvent::Unanswered { .. } => {}
            }
            self.forget_finished();
        }
        self.incoming = rest.to_vec();
        Ok(())
    }
}

fn deliver(ends: &mut [ModelEnd; 2], to: usize, bytes: usize) -> Result<(), RelayViolation> {
    let from = &mut ends[1 - to].table;
    let some = from.outgoing();
    let some = some[..bytes.min(some.len())].to_vec();
    from.sent(some.len());
    ends[to].take(&some)
}

fn step(ends: &mut [ModelEnd; 2], step: Step) -> Result<(), RelayViolation> {
    match step {
        Step::Answer { which, is_given } => {
            let outside = &mut ends[1];
            if which < outside.asked.len() && outside.table.has_room() {
                let id = outside.asked.remove(which);
                outside.table.answer(id, is_given.then_some(b"!"));
            }
        }
        Step::Ask => drop(ends[0].table.ask(DOOR, b"?")),
        Step::Deliver { to, bytes } => deliver(ends, to, bytes)?,
        Step::End { at, which } => {
            if let Some(id) = ends[at].id(which) {
                ends[at].end(id);
            }
        }
        Step::Open => {
            if let Some(id) = ends[0].table.open(DOOR) {
                ends[0].sockets.insert(id, ModelSocket::default());
            }
        }
        Step::PassOn { at, which, bytes } => {
            if let Some(id) = ends[at].id(which) {
                ends[at].pass_on(id, bytes);
            }
        }
        Step::Read { at, which, bytes } => {
            if let Some(id) = ends[at].id(which) {
                ends[at].read(id, bytes);
            }
        }
        Step::Reset { at, which } => {
            if let Some(id) = ends[at].id(which) {
                ends[at].table.reset(id);
                ends[at].was_reset.push(id);
            }
        }
    }
    for end in ends {
        end.forget_finished();
        end.table.assert_bounded();
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever crosses what on its way, neither end takes the other for a liar,
    /// everything arrives, and both forget everything.
    #[test]
    fn two_honest_ends_understand_each_other_in_whatever_order_things_happen(
        taken in prop::collection::vec(steps(), 1..300),
    ) {
        let mut ends = [ModelEnd::new(RelaySide::Inside), ModelEnd::new(RelaySide::Outside)];
        for taken in taken {
            prop_assert_eq!(step(&mut ends, taken), Ok(()));
        }
        // Everybody ends, and everything arrives.
        for _ in 0..200 {
            for at in 0..2 {
                for id in ends[at].sockets.keys().copied().collect::<Vec<_>>() {
                    ends[at].end(id);
                    ends[at].pass_on(id, usize::MAX);
                }
                while let Some(id) = ends[at].asked.pop() {
                    ends[at].table.answer(id, None);
                }
                ends[at].forget_finished();
                prop_assert_eq!(deliver(&mut ends, at, usize::MAX), Ok(()));
            }
        }
        prop_assert!(ends.iter().all(|end| end.table.is_empty() && end.sockets.is_empty()));
        let was_reset = [&*ends[0].was_reset, &*ends[1].was_reset].concat();
        for (from, to) in [(0, 1), (1, 0)] {
            for (id, bytes) in ends[from].read.iter().filter(|(id, _)| !was_reset.contains(id)) {
                prop_assert_eq!(ends[to].received.get(id), Some(&(*bytes, true)));
            }
        }
    }

    #[test]
    fn frames_about_anything_never_take_more_than_there_is(
        is_inside: bool,
        frames in prop::collection::vec((0..7_u8, 1..12_u32, 1..=20_000_u32, any::<bool>()), 0..400),
    ) {
        let side = if is_inside { RelaySide::Inside } else { RelaySide::Outside };
        let mut table = RelayTable::new(side, FEW_STREAMS);
        while is_inside && table.open(DOOR).is_some() {}
        let bytes = vec![0; MAX_DATA_BYTES];
        let mut unpassed: BTreeMap<u32, usize> = BTreeMap::new();
        for (kind, id, number, is_passed_on) in frames {
            let data = &bytes[..MAX_DATA_BYTES.min(number as usize)];
            let frame = match kind {
                0 => RelayFrame::Credit { id, bytes: number },
                1 => RelayFrame::Data { id, bytes: data },
                2 => RelayFrame::Datagram { id, address: DOOR, bytes: b"?" },
                3 => RelayFrame::End { id },
                4 => RelayFrame::Open { id, address: DOOR },
                5 => RelayFrame::Done { id },
                _ => RelayFrame::Reset { id },
            };
            // A liar's frame that was refused changes nothing for the others either.
            if let Ok(RelayEvent::Data { id, bytes }) = table.receive(frame) {
                *unpassed.entry(id).or_default() += bytes.len();
                prop_assert!(unpassed[&id] <= WINDOW_BYTES as usize);
                if is_passed_on {
                    table.pass_on(id, std::mem::take(unpassed.get_mut(&id).unwrap()));
                }
            }
            unpassed.retain(|id, _| table.is_live(*id));
            table.assert_bounded();
        }
    }
}

fn outside() -> RelayTable {
    RelayTable::new(RelaySide::Outside, MAX_STREAMS)
}

fn open(table: &mut RelayTable, id: u32) -> Result<RelayEvent<'static>, RelayViolation> {
    table.receive(RelayFrame::Open { id, address: DOOR })
}

#[test]
fn a_number_is_the_next_or_a_lie() {
    for (ids, what) in [(&[2][..], "not the first"), (&[1, 1], "the same"), (&[1, 3], "one later")]
    {
        let mut table = outside();
        let (last, before) = ids.split_last().unwrap();
        for id in before {
            open(&mut table, *id).unwrap();
        }
        assert_eq!(open(&mut table, *last), Err(RelayViolation::Number), "{what}");
    }
    // Also of a stream that is long over, and across kinds.
    let mut table = outside();
    open(&mut table, 1).unwrap();
    table.receive(RelayFrame::Reset { id: 1 }).unwrap();
    assert_eq!(open(&mut table, 1), Err(RelayViolation::Number));
    let asked = RelayFrame::Datagram { id: 1, address: DOOR, bytes: b"?" };
    assert_eq!(table.receive(asked), Err(RelayViolation::Number));
}

#[test]
fn a_stream_over_the_limit_is_a_lie_even_if_all_are_reset() {
    let mut table = outside();
    for id in 1..=1024 {
        open(&mut table, id).unwrap();
        // As if the gateway refused: the number is free once the other end has heard.
        table.reset(id);
    }
    assert_eq!(open(&mut table, 1025), Err(RelayViolation::TooMany));
    assert_eq!(table.receive(RelayFrame::Reset { id: 7 }), Ok(RelayEvent::Nothing));
    assert!(open(&mut table, 1025).is_ok());
}

#[test]
fn a_question_over_the_limit_is_a_lie() {
    let mut table = outside();
    let asked = |id| RelayFrame::Datagram { id, address: DOOR, bytes: b"?" };
    for id in 1..=256 {
        table.receive(asked(id)).unwrap();
    }
    assert_eq!(table.receive(asked(257)), Err(RelayViolation::TooMany));
}

#[test]
fn a_byte_over_the_credit_ends_it() {
    let mut table = outside();
    open(&mut table, 1).unwrap();
    let bytes = vec![0; MAX_DATA_BYTES];
    for _ in 0..4 {
        let sent = table.receive(RelayFrame::Data { id: 1, bytes: &bytes });
        assert_eq!(sent, Ok(RelayEvent::Data { id: 1, bytes: &bytes }));
    }
    let more = RelayFrame::Data { id: 1, bytes: b"x" };
    assert_eq!(table.receive(more), Err(RelayViolation::Credit));
    // And credit for what was not sent.
    let credit = RelayFrame::Credit { id: 1, bytes: 1 };
    assert_eq!(table.receive(credit), Err(RelayViolation::Credit));
}

#[test]
fn after_the_end_nothing_comes() {
    let mut table = outside();
    open(&mut table, 1).unwrap();
    table.receive(RelayFrame::End { id: 1 }).unwrap();
    for frame in [RelayFrame::End { id: 1 }, RelayFrame::Data { id: 1, bytes: b"x" }] {
        assert_eq!(table.receive(frame), Err(RelayViolation::Order));
    }
}

#[test]
fn nobody_confirms_what_was_not_sent_nor_twice() {
    let done = RelayFrame::Done { id: 1 };
    let mut table = outside();
    open(&mut table, 1).unwrap();
    assert_eq!(table.receive(done), Err(RelayViolation::Order));
    table.send_data(1, b"x");
    table.send_end(1);
    assert_eq!(table.receive(done), Ok(RelayEvent::Nothing));
    let credit = RelayFrame::Credit { id: 1, bytes: 1 };
    for frame in [done, credit] {
        assert_eq!(table.receive(frame), Err(RelayViolation::Order));
    }
}

#[test]
fn an_end_that_is_done_answers_a_reset_and_sends_none() {
    let mut table = outside();
    open(&mut table, 1).unwrap();
    table.send_end(1);
    table.receive(RelayFrame::End { id: 1 }).unwrap();
    assert!(!table.is_live(1) && !table.is_empty());
    let before = table.outgoing().len();
    table.reset(1);
    assert_eq!(table.outgoing().len(), before);
    table.receive(RelayFrame::Reset { id: 1 }).unwrap();
    assert_eq!(table.outgoing().len(), before + HEADER_BYTES);
    assert!(table.is_empty());
}

#[test]
fn frames_about_nothing_end_it_and_those_about_what_we_reset_do_not() {
    let mut table = outside();
    open(&mut table, 1).unwrap();
    open(&mut table, 2).unwrap();
    table.reset(1);
    let about = |id| {
        [
            RelayFrame::Data { id, bytes: b"x" },
            RelayFrame::Credit { id, bytes: WINDOW_BYTES },
            RelayFrame::End { id },
            RelayFrame::Done { id },
            RelayFrame::Data { id, bytes: b"x" },
        ]
    };
    for frame in about(1) {
        assert_eq!(table.receive(frame), Ok(RelayEvent::Nothing));
    }
    assert_eq!(table.receive(RelayFrame::Reset { id: 1 }), Ok(RelayEvent::Nothing));
    // From here on the other end knows, too.
    for frame in about(1).into_iter().chain(about(3)) {
        assert_eq!(table.receive(frame), Err(RelayViolation::Unknown));
    }
    assert_eq!(table.receive(RelayFrame::Reset { id: 1 }), Err(RelayViolation::Unknown));
    assert!(table.is_live(2));
}

#[test]
fn each_end_sends_only_what_is_its_own() {
    let mut inside = RelayTable::new(RelaySide::Inside, MAX_STREAMS);
    assert_eq!(open(&mut inside, 1), Err(RelayViolation::Side));
    let id = inside.ask(DOOR, b"?").unwrap();
    let other = SocketAddrV4::new(*DOOR.ip(), 53);
    let answered = |address| RelayFrame::Datagram { id, address, bytes: b"!" };
    assert_eq!(inside.receive(answered(other)), Err(RelayViolation::Unknown));
    let mut table = outside();
    table.receive(RelayFrame::Datagram { id: 1, address: DOOR, bytes: b"?" }).unwrap();
    // Whoever asks does not take it back.
    assert_eq!(table.receive(RelayFrame::Reset { id: 1 }), Err(RelayViolation::Unknown));
}

#[test]
fn whoever_asks_for_answers_and_never_takes_them_is_cut_off() {
    let mut table = outside();
    let flood = (1..).find_map(|id| {
        let opened = open(&mut table, id).map(drop);
        let reset = table.receive(RelayFrame::Reset { id }).map(drop);
        opened.and(reset).err()
    });
    assert_eq!(flood, Some(RelayViolation::Flood));
    table.assert_bounded();
}
