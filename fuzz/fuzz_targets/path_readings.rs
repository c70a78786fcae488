#![no_main]
libfuzzer_sys::fuzz_target!(|input: &[u8]| policies::fuzzing::path_readings(input));
