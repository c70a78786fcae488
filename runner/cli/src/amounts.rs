//! Times and sizes, short, for people.

/// `0.4s`, `12s`, `3m20s`, `5h02m`.
pub(crate) fn took(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0..10 => format!("{seconds:.1}s"),
        10..60 => format!("{whole}s"),
        60..3600 => format!("{}m{:02}s", whole / 60, whole % 60),
        _ => format!("{}h{:02}m", whole / 3600, whole / 60 % 60),
    }
}

/// Three digits or so, for people.
pub(crate) fn short_size(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, shift)| bytes >> shift > 0) {
        Some((unit, shift)) => {
            let tenths = (bytes >> (shift - 10)) * 10 / 1024;
            format!("{}.{}{unit}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        for (bytes, shown) in [
            (0, "0B"),
            (1023, "1023B"),
            (1536, "1.5KiB"),
            (2 << 30, "2.0GiB"),
            (u64::MAX, "17179869183.9GiB"),
        ] {
            assert_eq!(short_size(bytes), shown);
        }
    }
}
