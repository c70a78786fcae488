//! Promises that hold for any bytes a peer can send: the bodies of fuzz targets.
//!
//! Each function takes arbitrary bytes and panics if a promise is broken. The
//! targets in `fuzz/` call them with generated input (`./test --full`), and the
//! test below calls them with the kept corpus, so that a target that no longer
//! compiles or holds is noticed by an ordinary `cargo test`.

pub use crate::dns::fuzzing::dns_question;
pub use crate::frames::fuzzing::http2_frames;
pub use crate::http1::fuzzing::{http1_chunked_body, http1_request_head, http1_response_head};
pub use crate::opening::fuzzing::{client_hello, socks5_opening};
pub use crate::websocket::fuzzing::websocket_frames;

/// A fuzz target's body.
pub type Target = fn(&[u8]);

/// Every target of this crate, by the name it has in `fuzz/`.
pub const TARGETS: [(&str, Target); 8] = [
    ("client_hello", client_hello),
    ("dns_question", dns_question),
    ("http1_chunked_body", http1_chunked_body),
    ("http1_request_head", http1_request_head),
    ("http1_response_head", http1_response_head),
    ("http2_frames", http2_frames),
    ("socks5_opening", socks5_opening),
    ("websocket_frames", websocket_frames),
];

/// Splits the first byte off: it says in pieces of which size the rest arrives.
pub(crate) fn piece_size(input: &[u8]) -> (usize, &[u8]) {
    match input.split_first() {
        Some((size, rest)) => (usize::from(*size).max(1), rest),
        None => (1, input),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn the_kept_corpus_of_each_fuzz_target_holds() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
        for (name, target) in TARGETS {
            let mut inputs = 0;
            for item in fs::read_dir(corpus.join(name)).expect(name) {
                let path = item.expect(name).path();
                eprintln!("{}", path.display());
                target(&fs::read(path).expect(name));
                inputs += 1;
            }
            assert!(inputs > 0, "fuzz/corpus/{name} is empty");
        }
    }
}
