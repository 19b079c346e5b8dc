//! The program: arguments in, exit code out. Everything else is the library.

use tikv_jemallocator::Jemalloc;

/// The allocator. What requests have freed goes back to the system within about a second (`.cargo/config.toml`), also from threads
/// that have nothing to do: a thread of the allocator's own sees to that. glibc's keeps the holes between what is still used.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> std::process::ExitCode {
    samewire::cli::main()
}
