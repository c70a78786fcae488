#![no_main]
libfuzzer_sys::fuzz_target!(|input: &[u8]| audit::fuzzing::evidence_folder(input));
