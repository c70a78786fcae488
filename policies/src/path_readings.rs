//! Every way in which servers read one path.
//!
//! `/admin%2Fusers` is one segment to one server and `/admin/users` to the
//! next; `/admin;x`, `/admin%20` and `/ａdmin` are `/admin` somewhere. We cannot know
//! which server is asked, so rules are compared with all readings of a path: see
//! [`crate::decide`].
//!
//! A server does some of a few things to a path, in an order of its own. The
//! readings are what comes out of doing any of them, in any order, any number
//! of times. There are few, because each is done to the whole path at once; a
//! path with more than [`MAX_READINGS`] is refused, and so is one with a
//! reading that would itself be refused: a dot segment that only shows once
//! `;x` is gone is still a dot segment.
//!
//! Letter case and a slash at the end make no further readings: an allow compares
//! them exactly, and a deny ignores them ([`crate::case_fold`]).

use icu_normalizer::ComposingNormalizerBorrowed;

use crate::path_spelling::{
    MAX_PATH_BYTES, MAX_READINGS, PathFault, check_double_escapes, check_segments, escape,
    push_escape, stands_for_itself,
};

/// What a server may do to a path, besides nothing. Each gives what comes of
/// it, if it changes anything.
type Rewrite = fn(&str) -> Option<String>;

const REWRITES: [Rewrite; 9] = [
    decode,
    decode_all_but_slashes,
    drop_parameters,
    cut_at_parameter,
    cut_at_query,
    plus_as_space,
    trim_spaces,
    trim_as_windows_does,
    fold_lookalikes,
];

/// Those after which a text still names all that it named: nothing is dropped.
const RESPELLINGS: [Rewrite; 3] = [decode, decode_all_but_slashes, fold_lookalikes];

/// The readings of a canonical path besides itself; most paths have none.
pub(crate) fn others(canonical: &str) -> Result<Box<[Box<str>]>, PathFault> {
    if !may_have_others(canonical) {
        return Ok(Box::default());
    }
    closure(canonical, &REWRITES)
}

/// The spellings of a canonical path or pattern that drop nothing of it.
pub(crate) fn respellings(canonical: &str) -> Box<[Box<str>]> {
    // They are among the readings, which were checked when it was read.
    closure(canonical, &RESPELLINGS).unwrap_or_default()
}

fn closure(canonical: &str, rewrites: &[Rewrite]) -> Result<Box<[Box<str>]>, PathFault> {
    let mut found = vec![Box::from(canonical)];
    let mut looked_at = 0;
    while let Some(text) = found.get(looked_at).cloned() {
        looked_at += 1;
        for reading in rewrites.iter().filter_map(|rewrite| rewrite(&text)) {
            if found.iter().any(|known| **known == *reading) {
                continue;
            }
            if found.len() == MAX_READINGS {
                return Err(PathFault::Readings);
            }
            check(&reading)?;
            found.push(reading.into());
        }
    }
    found.remove(0);
    Ok(found.into())
}

/// Whether some step could change the text. Costs ordinary paths one look at
/// each byte.
fn may_have_others(canonical: &str) -> bool {
    let bytes = canonical.as_bytes();
    bytes.iter().enumerate().any(|(at, byte)| {
        let after = bytes.get(at + 1..).unwrap_or_default();
        match byte {
            b';' | b'+' => true,
            b':' => after.first() == Some(&b'$'),
            b'.' => matches!(after.first(), None | Some(b'/')),
            b'%' => match after.get(..2) {
                Some(b"20" | b"23" | b"2B" | b"2F" | b"3B" | b"3F") => true,
                digits => digits.is_some_and(|digits| digits.first() >= Some(&b'8')),
            },
            _ => false,
        }
    })
}

fn check(reading: &str) -> Result<(), PathFault> {
    if reading.len() > MAX_PATH_BYTES {
        return Err(PathFault::Length);
    }
    if reading.contains("%5C") {
        return Err(PathFault::Backslash);
    }
    check_double_escapes(reading)?;
    check_segments(reading).map_err(|_| PathFault::HiddenSegment)
}

/// WSGI, Go, nginx and PHP take a path with all its escapes decoded. Only the
/// escapes of `/`, `;` and `+` have another canonical spelling.
fn decode(text: &str) -> Option<String> {
    text.contains("%2F").then(|| text.replace("%2F", "/").replace("%3B", ";").replace("%2B", "+"))
}

/// Others keep `%2F`, because it would divide.
fn decode_all_but_slashes(text: &str) -> Option<String> {
    (text.contains("%3B") || text.contains("%2B"))
        .then(|| text.replace("%3B", ";").replace("%2B", "+"))
}

/// Servlet containers take `;` and what follows it out of each segment.
fn drop_parameters(text: &str) -> Option<String> {
    fn plain(segment: &str) -> &str {
        segment.split(';').next().unwrap_or_default()
    }
    by_segment(text, plain)
}

/// Older ones end the path at the first `;`.
fn cut_at_parameter(text: &str) -> Option<String> {
    text.split_once(';').map(|(before, _)| before.to_owned())
}

/// A proxy that hands on the decoded path lets the server behind it find a
/// query, or a fragment to be ignored, where none was sent.
fn cut_at_query(text: &str) -> Option<String> {
    let at = text.find("%3F").into_iter().chain(text.find("%23")).min()?;
    text.get(..at).map(str::to_owned)
}

/// Object stores, and whoever decodes a path as though it were a form.
fn plus_as_space(text: &str) -> Option<String> {
    text.contains('+').then(|| text.replace('+', "%20"))
}

/// Handed over with a request line of its own, or trimmed as names are.
fn trim_spaces(text: &str) -> Option<String> {
    fn trim(mut segment: &str) -> &str {
        while let Some(inner) = segment.strip_prefix("%20").or(segment.strip_suffix("%20")) {
            segment = inner;
        }
        segment
    }
    by_segment(text, trim)
}

/// Windows ignores dots and spaces at the end of a name, and `name::$DATA` is
/// the file `name`.
fn trim_as_windows_does(text: &str) -> Option<String> {
    fn trim(mut segment: &str) -> &str {
        if segment.contains(":$") {
            segment = segment.split(':').next().unwrap_or_default();
        }
        while let Some(inner) = segment.strip_suffix('.').or(segment.strip_suffix("%20")) {
            segment = inner;
        }
        segment
    }
    by_segment(text, trim)
}

fn by_segment(text: &str, change: fn(&str) -> &str) -> Option<String> {
    let mut changed = String::with_capacity(text.len());
    for (number, segment) in text.split('/').enumerate() {
        if number > 0 {
            changed.push('/');
        }
        changed.push_str(change(segment));
    }
    (changed != text).then_some(changed)
}

/// Text that is normalised (NFKC), or forced into a smaller character set, turns
/// full-width letters, ligatures and look-alikes into what they look like, and
/// loses what is not seen at all.
fn fold_lookalikes(text: &str) -> Option<String> {
    const NFKC: ComposingNormalizerBorrowed<'static> = ComposingNormalizerBorrowed::new_nfkc();
    let fold = |plain: &str| -> String {
        let seen: String = plain.chars().filter(|c| !is_default_ignorable(*c)).collect();
        let normal = NFKC.normalize(&seen);
        normal.chars().filter(|c| !is_default_ignorable(*c)).map(plainest).collect()
    };
    Some(respell_text(text, fold)).filter(|folded| folded != text)
}

/// Changes the text that a canonical path spells between its escapes of ASCII,
/// which stay as they are, and gives what comes of it its canonical spelling.
pub(crate) fn respell_text(canonical: &str, change: impl Fn(&str) -> String) -> String {
    let mut respelt = String::with_capacity(canonical.len());
    let flush = |plain: &mut Vec<u8>, respelt: &mut String| {
        for c in change(&String::from_utf8_lossy(&std::mem::take(plain))).chars() {
            match u8::try_from(c) {
                Ok(byte) if stands_for_itself(byte, false) => respelt.push(c),
                _ => c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| push_escape(respelt, byte)),
            }
        }
    };
    let mut plain = Vec::new();
    let mut rest = canonical.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = match escape(after).filter(|_| byte == b'%') {
            None => {
                plain.push(byte);
                after
            }
            Some((byte @ 0x80.., after)) => {
                plain.push(byte);
                after
            }
            Some((byte, after)) => {
                flush(&mut plain, &mut respelt);
                push_escape(&mut respelt, byte);
                after
            }
        };
    }
    flush(&mut plain, &mut respelt);
    respelt
}

/// Look-alikes that normalising leaves as they are, but that code pages and
/// font-minded programs take for the ASCII character.
fn plainest(c: char) -> char {
    match c {
        '\u{2044}' | '\u{2215}' | '\u{2571}' | '\u{27CB}' | '\u{29F8}' => '/',
        '\u{2216}' | '\u{2572}' | '\u{27CD}' | '\u{29F5}' | '\u{29F9}' => '\\',
        '\u{3002}' => '.',
        c => c,
    }
}

/// Unicode's default ignorable characters, which some file systems ignore.
fn is_default_ignorable(c: char) -> bool {
    matches!(c,
        '\u{AD}' | '\u{34F}' | '\u{61C}' | '\u{115F}'..='\u{1160}' | '\u{17B4}'..='\u{17B5}'
        | '\u{180B}'..='\u{180F}' | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}'
        | '\u{2060}'..='\u{206F}' | '\u{3164}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}'
        | '\u{FFA0}' | '\u{FFF0}'..='\u{FFF8}' | '\u{1BCA0}'..='\u{1BCA3}'
        | '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{E0FFF}')
}

#[cfg(test)]
mod servers;
#[cfg(test)]
mod tests;
