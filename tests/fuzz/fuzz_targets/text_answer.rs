#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| samewire_fuzz::run_within_limit("text_answer", data));
