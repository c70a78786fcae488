//! Feeds each target of a crate with its kept corpus, as an ordinary test of that
//! crate: a target that no longer compiles or holds is noticed at once.

use std::fs;
use std::path::Path;

use super::TARGETS;

#[test]
fn the_kept_corpus_of_each_fuzz_target_holds() {
    let mut above =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|at| at.join("fuzz/corpus"));
    let corpus = above.find(|corpus| corpus.is_dir()).expect("fuzz/corpus");
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
