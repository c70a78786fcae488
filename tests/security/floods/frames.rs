//! HTTP/2 frames as bytes, good and bad.

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// One kind of thing that can be sent again and again.
pub(super) struct Flood {
    pub(super) name: &'static str,
    /// Some of it, for the stream; `round` counts up.
    pub(super) some: fn(stream: u32, round: u32) -> Vec<u8>,
    /// Whether an upstream says a head first.
    pub(super) after_head: bool,
    /// Whether it carries content, which the budgets alone end.
    pub(super) is_content: bool,
}

const fn control(name: &'static str, some: fn(u32, u32) -> Vec<u8>) -> Flood {
    Flood { name, some, after_head: true, is_content: false }
}

pub(super) const FLOODS: &[Flood] = &[
    Flood {
        after_head: false,
        ..control("interim", |id, _| many(&head(id, END_HEADERS, INTERIM)))
    },
    Flood {
        after_head: false,
        ..control("interim-long", |id, _| many(&head(id, END_HEADERS, &long_interim())))
    },
    Flood { after_head: false, ..control("interim-indexed", indexed) },
    control("data-empty", |id, _| many(&frame(DATA, 0, id, &[]))),
    control("data-padding", |id, _| {
        many(&frame(DATA, PADDED, id, &[&[255][..], &[0; 255]].concat()))
    }),
    Flood { is_content: true, ..control("data-one-byte", |id, _| many(&frame(DATA, 0, id, b"x"))) },
    control("data-after-end", after_end),
    control("trailers", |id, _| many(&head(id, END_HEADERS | END_STREAM, TRAILER))),
    control("trailers-open", |id, _| many(&head(id, END_HEADERS, TRAILER))),
    control("continuation", continuation),
    control("ping", |_, _| many(&frame(PING, 0, 0, &[7; 8]))),
    control("ping-ack", |_, _| many(&frame(PING, ACK, 0, &[7; 8]))),
    control("settings", |_, _| many(&frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]))),
    control("settings-empty", |_, _| many(&frame(SETTINGS, 0, 0, &[]))),
    control("settings-ack", |_, _| many(&frame(SETTINGS, ACK, 0, &[]))),
    control("priority", |id, _| many(&frame(PRIORITY, 0, id, &[0, 0, 0, 0, 16]))),
    control("priority-idle", |_, round| {
        many(&frame(PRIORITY, 0, 2 * round + 9, &[0, 0, 0, 0, 16]))
    }),
    control("window-update", |_, _| many(&frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]))),
    control("window-update-stream", |id, _| many(&frame(WINDOW_UPDATE, 0, id, &[0, 0, 0, 1]))),
    control("rst-stream", |id, _| many(&frame(RST_STREAM, 0, id, &[0, 0, 0, 8]))),
    control("goaway", |id, _| many(&frame(GOAWAY, 0, 0, &goodbye(id)))),
    control("unknown", |_, _| many(&frame(0xfa, 0, 0, &[7; 1024]))),
    control("unknown-empty", |id, _| many(&frame(0xfa, 0xff, id, &[]))),
    control("push-promise", |id, _| many(&frame(5, END_HEADERS, id, &[0, 0, 0, 2, 0x82]))),
    control("origin-altsvc", |_, _| many(&frame(0x0a, 0, 0, b"\0\x0bhttps://a.bh3=\":443\""))),
];

/// A request that the upstream answers, its body still open.
pub(super) fn request(id: u32, host: &str) -> Vec<u8> {
    // :method POST needs a rule that says so; GET with an open body is as good.
    let length = u8::try_from(host.len()).unwrap();
    let block = [&[0x82, 0x87, 0x84, 0x41, length][..], host.as_bytes()].concat();
    frame(HEADERS, END_HEADERS, id, &block)
}

pub(super) fn response_head(id: u32) -> Vec<u8> {
    head(id, END_HEADERS, &[0x88])
}

pub(super) fn settings() -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[])
}

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn head(id: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    frame(HEADERS, flags, id, block)
}

/// About what is worth one write.
fn many(one: &[u8]) -> Vec<u8> {
    one.repeat((16 * 1024 / one.len()).max(1))
}

/// `:status: 103`, and the least that goes with it.
const INTERIM: &[u8] = &[0x08, 3, b'1', b'0', b'3'];
/// A field that is not indexed: `a: b`.
const TRAILER: &[u8] = &[0x00, 1, b'a', 1, b'b'];

fn long_interim() -> Vec<u8> {
    // A literal of 8000 bytes, not indexed: 127 + 0x41 + (0x3d << 7).
    [INTERIM, &[0x00, 1, b'a', 0x7f, 0xc1, 0x3d], &[b'x'; 8000]].concat()
}

/// Heads of one byte a field: the first round puts a field into the table, and
/// all others ask for it a thousand times.
fn indexed(id: u32, round: u32) -> Vec<u8> {
    if round == 0 {
        let literal = [INTERIM, &[0x40, 1, b'a', 1, b'b']].concat();
        return head(id, END_HEADERS, &literal);
    }
    many(&head(id, END_HEADERS, &[INTERIM, &[0xbe; 1000]].concat()))
}

/// The stream ends, and its data goes on.
fn after_end(id: u32, round: u32) -> Vec<u8> {
    if round == 0 {
        return frame(DATA, END_STREAM, id, b"x");
    }
    many(&frame(DATA, 0, id, &[b'x'; 1000]))
}

fn continuation(id: u32, round: u32) -> Vec<u8> {
    if round == 0 {
        return head(id + 2, 0, &[]);
    }
    many(&frame(CONTINUATION, 0, id + 2, &[]))
}

fn goodbye(last: u32) -> Vec<u8> {
    [&last.to_be_bytes()[..], &[0; 4], &[b'x'; 1000]].concat()
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
