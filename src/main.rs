//! The `samewire` binary: arguments in, library called, exit code out.

fn main() {}
