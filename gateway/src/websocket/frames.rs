//! Checks a stream of frames (RFC 6455, section 5) without keeping it.
//!
//! A [`FrameChecker`] is fed what one side sends, in whatever pieces it comes,
//! and holds a few words of state. Of payloads it looks at those of close frames
//! alone, which are short.
//!
//! **Law:** how a stream is cut into pieces changes nothing about the verdict.

use super::AgreedExtensions;

/// Who sends the frames that are checked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FrameSender {
    Client,
    Server,
}

/// What is wrong with a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum WebSocketFault {
    #[error("something follows its close frame")]
    AfterClose,
    #[error("its close frame has the code {0}, which may not be sent")]
    CloseCode(u16),
    #[error("its close frame has half a code")]
    CloseLength,
    #[error("the reason in its close frame is not UTF-8")]
    CloseReason,
    #[error("a continuation frame continues no message")]
    Continuation,
    #[error("a control frame is fragmented")]
    ControlFragmented,
    #[error("a control frame is longer than 125 bytes")]
    ControlLength,
    #[error("a message begins before the one before it has ended")]
    Interrupted,
    #[error("the length of a frame is not written in the fewest bytes")]
    Length,
    #[error("a frame is longer than 63 bits can say")]
    LengthTooLarge,
    #[error("a frame is masked, which a server's never is")]
    Masked,
    #[error("a frame has the opcode {0}, which means nothing")]
    Opcode(u8),
    #[error("a frame has reserved bits set that nobody agreed on")]
    Reserved,
    /// On HTTP/2, where a stream could have them.
    #[error("trailers follow, which no WebSocket has")]
    Trailers,
    #[error("a frame is not masked, which a client's always is")]
    Unmasked,
}

/// Checks what one side of a WebSocket sends.
#[derive(Clone, Debug)]
pub(crate) struct FrameChecker {
    sender: FrameSender,
    compressed: bool,
    /// How many bytes of the current frame's head were read.
    head_read: u8,
    opcode: u8,
    /// The 7 bits that say the length, or where it stands.
    short_length: u8,
    length: u64,
    mask: [u8; 4],
    payload_left: u64,
    /// The payload of a close frame, so far.
    close: Vec<u8>,
    in_message: bool,
    closed: bool,
    failed: Option<FoundFault>,
}

/// What a checker says once it has found a fault.
#[derive(Clone, Copy, Debug)]
struct FoundFault {
    fault: WebSocketFault,
    /// Whether a close frame could have followed what was accepted before.
    could_close: bool,
}

impl FrameChecker {
    pub(crate) fn new(sender: FrameSender, agreed: AgreedExtensions) -> Self {
        Self {
            sender,
            compressed: agreed.deflate,
            head_read: 0,
            opcode: 0,
            short_length: 0,
            length: 0,
            mask: [0; 4],
            payload_left: 0,
            close: Vec::new(),
            in_message: false,
            closed: false,
            failed: None,
        }
    }

    /// Checks the next piece. A piece with a fault is not to be relayed, none of
    /// it, and no piece after it is accepted.
    pub(crate) fn feed(&mut self, piece: &[u8]) -> Result<(), WebSocketFault> {
        if let Some(FoundFault { fault, .. }) = self.failed {
            return Err(fault);
        }
        let could_close = self.can_close();
        self.read(piece).inspect_err(|fault| {
            self.failed = Some(FoundFault { fault: *fault, could_close });
        })
    }

    /// The fault that was found, if one was.
    pub(crate) fn fault(&self) -> Option<WebSocketFault> {
        self.failed.map(|failed| failed.fault)
    }

    /// Whether a close frame may follow what was accepted: not inside a frame,
    /// and not after another one.
    pub(crate) fn can_close(&self) -> bool {
        match self.failed {
            Some(failed) => failed.could_close,
            None => self.head_read == 0 && self.payload_left == 0 && !self.closed,
        }
    }

    fn read(&mut self, mut piece: &[u8]) -> Result<(), WebSocketFault> {
        while let Some((first, rest)) = piece.split_first() {
            if self.payload_left == 0 {
                self.read_head(*first)?;
                piece = rest;
                continue;
            }
            let here =
                usize::try_from(self.payload_left).map_or(piece.len(), |n| n.min(piece.len()));
            let (payload, next) = piece.split_at(here);
            self.read_payload(payload);
            piece = next;
            if self.payload_left == 0 {
                self.end_frame()?;
            }
        }
        Ok(())
    }

    /// One byte of a head.
    fn read_head(&mut self, byte: u8) -> Result<(), WebSocketFault> {
        let length_ends = 2 + length_bytes(self.short_length);
        match self.head_read {
            0 => self.read_first(byte)?,
            1 => self.read_second(byte)?,
            at if at < length_ends => self.length = self.length << 8 | u64::from(byte),
            _ => {
                let [_, rest @ ..] = self.mask;
                let [one, two, three] = rest;
                self.mask = [one, two, three, byte];
            }
        }
        self.head_read += 1;
        let length_ends = 2 + length_bytes(self.short_length);
        if self.head_read == length_ends {
            self.check_length()?;
        }
        let mask_bytes = if self.sender == FrameSender::Client { 4 } else { 0 };
        if self.head_read >= 2 && self.head_read == length_ends + mask_bytes {
            self.head_read = 0;
            self.payload_left = self.length;
            if self.length == 0 {
                self.end_frame()?;
            }
        }
        Ok(())
    }

    /// The byte with the opcode. It says what may come next, too.
    fn read_first(&mut self, byte: u8) -> Result<(), WebSocketFault> {
        if self.closed {
            return Err(WebSocketFault::AfterClose);
        }
        let (last, reserved, opcode) = (byte & 0x80 != 0, byte & 0x70, byte & 0x0f);
        let may_be_compressed = self.compressed && matches!(opcode, TEXT | BINARY);
        if reserved & !(if may_be_compressed { COMPRESSED } else { 0 }) != 0 {
            return Err(WebSocketFault::Reserved);
        }
        match opcode {
            CONTINUATION if !self.in_message => return Err(WebSocketFault::Continuation),
            TEXT | BINARY if self.in_message => return Err(WebSocketFault::Interrupted),
            CONTINUATION | TEXT | BINARY => self.in_message = !last,
            CLOSE | PING | PONG if !last => return Err(WebSocketFault::ControlFragmented),
            CLOSE | PING | PONG => {}
            other => return Err(WebSocketFault::Opcode(other)),
        }
        self.opcode = opcode;
        // Until the next byte says otherwise.
        self.short_length = 0;
        Ok(())
    }

    /// The byte with the mask bit and the short length.
    fn read_second(&mut self, byte: u8) -> Result<(), WebSocketFault> {
        match (self.sender, byte & 0x80 != 0) {
            (FrameSender::Client, false) => return Err(WebSocketFault::Unmasked),
            (FrameSender::Server, true) => return Err(WebSocketFault::Masked),
            (FrameSender::Client, true) | (FrameSender::Server, false) => {}
        }
        self.short_length = byte & 0x7f;
        if self.opcode >= CLOSE && self.short_length > MAX_CONTROL_PAYLOAD {
            return Err(WebSocketFault::ControlLength);
        }
        let is_whole = length_bytes(self.short_length) == 0;
        self.length = if is_whole { u64::from(self.short_length) } else { 0 };
        Ok(())
    }

    fn check_length(&self) -> Result<(), WebSocketFault> {
        let shortest = match length_bytes(self.short_length) {
            0 => 0,
            2 => 126,
            _ => 1 << 16,
        };
        match self.length {
            length if length >> 63 != 0 => Err(WebSocketFault::LengthTooLarge),
            length if length < shortest => Err(WebSocketFault::Length),
            _ => Ok(()),
        }
    }

    fn read_payload(&mut self, payload: &[u8]) {
        self.payload_left -= payload.len() as u64;
        if self.opcode == CLOSE {
            for byte in payload {
                self.close.push(byte ^ self.mask[0]);
                self.mask.rotate_left(1);
            }
        }
    }

    fn end_frame(&mut self) -> Result<(), WebSocketFault> {
        if self.opcode != CLOSE {
            return Ok(());
        }
        self.closed = true;
        match self.close.as_slice() {
            [] => Ok(()),
            [_] => Err(WebSocketFault::CloseLength),
            [high, low, reason @ ..] => {
                let code = u16::from_be_bytes([*high, *low]);
                if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
                    return Err(WebSocketFault::CloseCode(code));
                }
                std::str::from_utf8(reason).map(drop).map_err(|_| WebSocketFault::CloseReason)
            }
        }
    }
}

/// How many bytes follow the short length to say the whole.
fn length_bytes(short_length: u8) -> u8 {
    match short_length {
        126 => 2,
        127 => 8,
        _ => 0,
    }
}

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// The reserved bit that says "compressed" where permessage-deflate was agreed on
/// (RFC 7692).
const COMPRESSED: u8 = 0x40;
const MAX_CONTROL_PAYLOAD: u8 = 125;

#[cfg(test)]
mod tests;
