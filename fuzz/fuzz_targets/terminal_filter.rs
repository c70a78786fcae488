#![no_main]
libfuzzer_sys::fuzz_target!(|input: &[u8]| runner::fuzzing::terminal_filter(input));
