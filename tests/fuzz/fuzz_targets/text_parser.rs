#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| samewire_fuzz::look("text_parser", data));
