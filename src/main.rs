//! The `samewire` program: calls `samewire::cli::main` and returns its exit code. The rest of the code is in the
//! library.

use tikv_jemallocator::Jemalloc;

/// Allocator of the process. jemalloc returns freed memory to the system within about a second
/// (`.cargo/config.toml`), for idle threads too, because a background thread of its own does the work. glibc's
/// allocator keeps the gaps between allocations that are still in use.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> std::process::ExitCode {
    samewire::cli::main()
}
