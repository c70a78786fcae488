//! `Sec-WebSocket-Extensions` (RFC 6455, 9.1), of which we know
//! permessage-deflate (RFC 7692).
//!
//! A client may offer what it likes. Agreed on can be only what we know, because
//! an extension may change what a frame is.

use crate::http1_codec::fields::is_token;

/// What is wrong with a list of extensions.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum ExtensionFault {
    #[error("`{0}` is agreed on, and only permessage-deflate can be passed on")]
    Unknown(String),
    #[error("permessage-deflate is agreed on, and nobody offered it")]
    NotOffered,
    #[error("`{0}` has no place in what is agreed on")]
    Parameter(String),
    #[error("`{0}` is not how an extension is written")]
    Syntax(String),
    #[error("permessage-deflate is agreed on twice")]
    Twice,
}

/// permessage-deflate, as a client offered it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct DeflateOffer {
    /// The server may say how large a window the client is to use.
    client_window: bool,
}

/// Whether permessage-deflate is among what is offered.
pub(super) fn offered(lines: &[Vec<u8>]) -> Result<Option<DeflateOffer>, ExtensionFault> {
    let mut deflate = None::<DeflateOffer>;
    for extension in lines.iter().flat_map(|line| members(line, b',')) {
        let Extension { name, parameters } = Extension::read(extension)?;
        if name == DEFLATE {
            let window = parameters.iter().any(|(name, _)| *name == "client_max_window_bits");
            let before = deflate.is_some_and(|before| before.client_window);
            deflate = Some(DeflateOffer { client_window: window || before });
        }
    }
    Ok(deflate)
}

/// Whether permessage-deflate is agreed on.
pub(super) fn agreed(
    lines: &[Vec<u8>],
    offer: Option<DeflateOffer>,
) -> Result<bool, ExtensionFault> {
    let mut deflate = false;
    for extension in lines.iter().flat_map(|line| members(line, b',')) {
        let Extension { name, parameters } = Extension::read(extension)?;
        if name != DEFLATE {
            return Err(ExtensionFault::Unknown(name.to_owned()));
        }
        if deflate {
            return Err(ExtensionFault::Twice);
        }
        let offer = offer.ok_or(ExtensionFault::NotOffered)?;
        for (index, (name, value)) in parameters.iter().enumerate() {
            let repeated = parameters.iter().take(index).any(|(before, _)| before == name);
            if repeated || !fits(name, *value, offer) {
                return Err(ExtensionFault::Parameter((*name).to_owned()));
            }
        }
        deflate = true;
    }
    Ok(deflate)
}

fn fits(name: &str, value: Option<&str>, offer: DeflateOffer) -> bool {
    let is_window = || matches!(value, Some("8" | "9" | "10" | "11" | "12" | "13" | "14" | "15"));
    match name {
        "client_no_context_takeover" | "server_no_context_takeover" => value.is_none(),
        "client_max_window_bits" => offer.client_window && is_window(),
        "server_max_window_bits" => is_window(),
        _ => false,
    }
}

struct Extension<'a> {
    name: &'a str,
    parameters: Vec<(&'a str, Option<&'a str>)>,
}

impl<'a> Extension<'a> {
    fn read(written: &'a [u8]) -> Result<Self, ExtensionFault> {
        let fault = || ExtensionFault::Syntax(String::from_utf8_lossy(written).into_owned());
        let mut parts = written.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let name = parts.next().and_then(token).ok_or_else(fault)?;
        let parameters = parts.map(parameter).collect::<Option<Vec<_>>>().ok_or_else(fault)?;
        Ok(Self { name, parameters })
    }
}

fn parameter(written: &[u8]) -> Option<(&str, Option<&str>)> {
    let Some(equals) = memchr::memchr(b'=', written) else { return Some((token(written)?, None)) };
    let (name, value) = written.split_at_checked(equals)?;
    let value = value.get(1..)?.trim_ascii();
    // A value may stand in quotes, and must be a token inside them.
    let bare = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    Some((token(name.trim_ascii())?, Some(token(bare.unwrap_or(value))?)))
}

fn token(written: &[u8]) -> Option<&str> {
    let is_one = !written.is_empty() && written.iter().all(|byte| is_token(*byte));
    std::str::from_utf8(written).ok().filter(|_| is_one)
}

/// The members of a list; empty ones say nothing.
fn members(line: &[u8], between: u8) -> impl Iterator<Item = &[u8]> {
    line.split(move |byte| *byte == between)
        .map(<[u8]>::trim_ascii)
        .filter(|member| !member.is_empty())
}

const DEFLATE: &str = "permessage-deflate";
