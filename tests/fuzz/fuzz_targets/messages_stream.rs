#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| samewire_fuzz::run_within_limit("messages_stream", data));
