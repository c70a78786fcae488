//! WebSocket frames by hand (RFC 6455), both sides.

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// One frame.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Frame {
    pub last: bool,
    pub opcode: u8,
    pub payload: Vec<u8>,
}

pub const CONTINUATION: u8 = 0;
pub const TEXT: u8 = 1;
pub const BINARY: u8 = 2;
pub const CLOSE: u8 = 8;

impl Frame {
    pub fn text(text: &str) -> Self {
        Self { last: true, opcode: TEXT, payload: text.into() }
    }

    /// The bytes of the frame; what a client sends is masked.
    pub fn bytes(&self, masked: bool) -> Vec<u8> {
        let mut bytes = vec![u8::from(self.last) << 7 | self.opcode];
        let mask = if masked { 0x80 } else { 0 };
        match self.payload.len() {
            length @ 0..126 => bytes.push(mask | length as u8),
            length @ 126..65536 => {
                bytes.push(mask | 126);
                bytes.extend((length as u16).to_be_bytes());
            }
            length => {
                bytes.push(mask | 127);
                bytes.extend((length as u64).to_be_bytes());
            }
        }
        if masked {
            bytes.extend(KEY);
            bytes.extend(self.payload.iter().zip(KEY.iter().cycle()).map(|(byte, key)| byte ^ key));
        } else {
            bytes.extend(&self.payload);
        }
        bytes
    }

    /// Reads one frame, or nothing at the end.
    pub async fn read(from: &mut (impl AsyncRead + Unpin + ?Sized)) -> Option<Self> {
        let first = from.read_u8().await.ok()?;
        let second = from.read_u8().await.ok()?;
        let length = match second & 0x7f {
            126 => u64::from(from.read_u16().await.ok()?),
            127 => from.read_u64().await.ok()?,
            short => u64::from(short),
        };
        let mut key = [0; 4];
        if second & 0x80 != 0 {
            from.read_exact(&mut key).await.ok()?;
        }
        let mut payload = vec![0; usize::try_from(length).ok()?];
        from.read_exact(&mut payload).await.ok()?;
        for (byte, key) in payload.iter_mut().zip(key.iter().cycle()) {
            *byte ^= key;
        }
        Some(Self { last: first & 0x80 != 0, opcode: first & 0x0f, payload })
    }
}

/// How a server agrees to become a WebSocket.
pub fn switching(key: &str) -> String {
    let accept = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, accept.as_bytes());
    let accept = STANDARD.encode(digest);
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    )
}

const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
