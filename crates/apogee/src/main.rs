//! The `apogee` program.

fn main() -> std::process::ExitCode {
    apogee::cli::main()
}
