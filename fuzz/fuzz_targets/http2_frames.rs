#![no_main]
libfuzzer_sys::fuzz_target!(|input: &[u8]| gateway::fuzzing::http2_frames(input));
