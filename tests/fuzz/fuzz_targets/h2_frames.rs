#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| samewire_fuzz::look("h2_frames", data));
