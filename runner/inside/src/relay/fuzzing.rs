//! Any bytes as the frames of a relay's channel.

use protocol::relay::{MAX_STREAMS, NotARelayFrame, RelayFrame};

use super::table::{RelayEvent, RelaySide, RelayTable};

/// The frames are the same whole or in pieces and are written as they were read; and
/// each end takes them without ever keeping more than it may. The first byte is the
/// piece's size; of the second, one bit says which end it is, the others how much
/// its sockets and its channel take after each frame.
pub fn relay_frames(input: &[u8]) {
    let Some((&[piece, how], bytes)) = input.split_first_chunk::<2>() else { return };
    let (frames, is_refused) = frames(bytes);
    assert_eq!(in_pieces(bytes, usize::from(piece).max(1)), (frames.clone(), is_refused));
    let mut written = Vec::new();
    frames.iter().for_each(|frame| frame.write_to(&mut written));
    assert_eq!(bytes.get(..written.len()), Some(&*written));

    let side = if how & 1 == 0 { RelaySide::Outside } else { RelaySide::Inside };
    let mut table = RelayTable::new(side, MAX_STREAMS);
    if side == RelaySide::Inside {
        // Something that the frames can be about.
        let door = std::net::SocketAddrV4::new([127, 18, 0, 1].into(), 443);
        while table.open(door).is_some_and(|id| id < 16) {}
        while table.ask(door, b"?").is_some_and(|id| id < 32) {}
    }
    for frame in frames {
        let Ok(event) = table.receive(frame) else { return };
        match event {
            RelayEvent::Asked { id, .. } if how & 2 == 0 && table.has_room() => {
                table.answer(id, Some(b"!"));
            }
            RelayEvent::Data { id, bytes } if how & 4 == 0 => table.pass_on(id, bytes.len()),
            RelayEvent::Data { id, bytes } if how & 8 == 0 && table.room_for(id) > 0 => {
                table.send_data(id, bytes.get(..table.room_for(id)).unwrap_or(bytes));
            }
            RelayEvent::Ended { id } if how & 16 == 0 => table.send_end(id),
            RelayEvent::Opened { id, address } if address.port() == 1 => table.reset(id),
            _ => {}
        }
        if how & 32 == 0 {
            table.sent(usize::from(piece));
        }
        table.assert_bounded();
    }
}

/// All frames that there are, and whether what follows is none.
fn frames(mut bytes: &[u8]) -> (Vec<RelayFrame<'_>>, bool) {
    let mut frames = Vec::new();
    loop {
        match RelayFrame::parse(bytes) {
            Ok(Some((frame, length))) => {
                frames.push(frame);
                bytes = bytes.get(length..).unwrap_or_default();
            }
            Ok(None) => return (frames, false),
            Err(NotARelayFrame) => return (frames, true),
        }
    }
}

/// The same, of somebody who sees the bytes in pieces.
fn in_pieces(bytes: &[u8], piece: usize) -> (Vec<RelayFrame<'_>>, bool) {
    let (mut all, mut begin, mut end) = (Vec::new(), 0, 0);
    while end < bytes.len() {
        end = bytes.len().min(end + piece);
        let (frames, is_refused) = frames(bytes.get(begin..end).unwrap_or_default());
        let mut written = Vec::new();
        frames.iter().for_each(|frame| frame.write_to(&mut written));
        begin += written.len();
        all.extend(frames);
        if is_refused {
            return (all, true);
        }
    }
    (all, false)
}
