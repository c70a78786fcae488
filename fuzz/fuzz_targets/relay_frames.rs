#![no_main]
libfuzzer_sys::fuzz_target!(|input: &[u8]| inside::fuzzing::relay_frames(input));
