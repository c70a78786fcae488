#![no_main]
libfuzzer_sys::fuzz_target!(|input: &[u8]| cli::fuzzing::terminal_filter(input));
