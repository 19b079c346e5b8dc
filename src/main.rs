//! The `samewire` program: calls `samewire::cli::main` and returns its exit code. The rest of the code is in the
//! library.

/// Allocator of the process. jemalloc returns freed memory to the system within about a second
/// (`.cargo/config.toml`), for idle threads too, because its own background thread does the work. glibc's
/// allocator keeps the gaps between allocations that are still in use.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    samewire::cli::main()
}
