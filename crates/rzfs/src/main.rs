//! The `rzfs` command.
#![forbid(unsafe_code)]

mod mount;
mod source;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// OpenZFS pools in user space.
#[derive(Debug, Parser)]
#[command(name = "rzfs", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Mount the file systems of a pool below a directory, read-only, until interrupted.
    Mount(mount::Arguments),
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let result = match Arguments::parse().command {
        Command::Mount(arguments) => mount::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
