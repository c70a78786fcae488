//! Writes a log to try things on: `write_log FOLDER EVENTS`.

#[path = "../benches/written/mod.rs"]
mod written;

use std::path::Path;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, events] = arguments.as_slice() else { panic!("write_log FOLDER EVENTS") };
    written::log(Path::new(folder), events.parse().expect("EVENTS is a number"));
}
