//! `limits:`: what no policy can go beyond.

use policies::{Size, Span};

use super::document::AtLeastOne;
use crate::limits::Bounds;

/// Every field is optional; [`Bounds::default`] says what stands in for it.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LimitsSection {
    upload: Option<Size>,
    download: Option<Size>,
    host_upload: Option<Size>,
    body: Option<Size>,
    hosts: Option<AtLeastOne>,
    wildcard_names: Option<Size>,
    urls: Option<Size>,
    requests_per_minute: Option<AtLeastOne>,
    connections: Option<AtLeastOne>,
    header_bytes: Option<HeaderBytes>,
    headers: Option<AtLeastOne>,
    opening: Option<Span>,
    header: Option<Span>,
    idle: Option<Span>,
    total: Option<Span>,
    drain: Option<Span>,
    audit: Option<Size>,
}

impl LimitsSection {
    pub(super) fn resolve(self) -> Bounds {
        let usual = Bounds::default();
        Bounds {
            upload: self.upload.map(Size::bytes),
            download: self.download.map(Size::bytes),
            host_upload: self.host_upload.map(Size::bytes),
            body: self.body.map(Size::bytes),
            hosts: self.hosts.map(|count| count.0),
            wildcard_names: self.wildcard_names.map(Size::bytes),
            urls: self.urls.map(Size::bytes),
            requests_per_minute: self.requests_per_minute.map(|count| count.0),
            connections: self.connections.map_or(usual.connections, |count| count.0),
            header_bytes: self.header_bytes.map_or(usual.header_bytes, |bytes| bytes.0),
            headers: self.headers.map_or(usual.headers, |count| count.0.min(MAX_HEADERS) as usize),
            opening: self.opening.map_or(usual.opening, Span::get),
            header: self.header.map_or(usual.header, Span::get),
            idle: self.idle.map_or(usual.idle, Span::get),
            total: self.total.map(Span::get),
            drain: self.drain.map_or(usual.drain, Span::get),
            audit: self.audit.map_or(usual.audit, Size::bytes),
        }
    }
}

/// What fits into the largest head.
const MAX_HEADERS: u32 = 64 * 1024;

/// A head is held in memory while it is read, so its size has bounds of its own.
#[derive(Clone, Copy, Debug, serde::Deserialize)]
#[serde(try_from = "Size")]
struct HeaderBytes(usize);

impl TryFrom<Size> for HeaderBytes {
    type Error = String;

    fn try_from(size: Size) -> Result<Self, Self::Error> {
        let bytes = usize::try_from(size.bytes()).unwrap_or(usize::MAX);
        if (1024..=1024 * 1024).contains(&bytes) {
            Ok(Self(bytes))
        } else {
            Err(format!("a head of {size} is not reasonable; write between `1KiB` and `1MiB`"))
        }
    }
}
