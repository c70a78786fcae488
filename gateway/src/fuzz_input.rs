//! What the bodies of fuzz targets make of their input.

/// Splits the first byte off: it says in pieces of which size the rest arrives.
pub(crate) fn piece_size(input: &[u8]) -> (usize, &[u8]) {
    match input.split_first() {
        Some((size, rest)) => (usize::from(*size).max(1), rest),
        None => (1, input),
    }
}
