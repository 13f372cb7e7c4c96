//! The `strandline` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    strandline_net::cli::main()
}
