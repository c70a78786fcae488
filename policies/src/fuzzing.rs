//! Promises that hold for any policy and any path: the bodies of fuzz targets.
//!
//! Each function takes arbitrary bytes and panics if a promise is broken. The
//! targets in `fuzz/` call them with generated input (`./test --full`), and the
//! test below calls them with the kept corpus, so that a target that no longer
//! compiles or holds is noticed by an ordinary `cargo test`.

mod path_readings;
mod policy_text;

pub use path_readings::path_readings;
pub use policy_text::policy_text;

/// A fuzz target's body.
pub type Target = fn(&[u8]);

/// Every target of this crate, by the name it has in `fuzz/`.
pub const TARGETS: [(&str, Target); 2] =
    [("path_readings", path_readings), ("policy_text", policy_text)];

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
