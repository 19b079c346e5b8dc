//! The program: arguments in, exit code out. Everything else is the library.

fn main() -> std::process::ExitCode {
    samewire::cli::main()
}
