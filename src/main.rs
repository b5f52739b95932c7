//! The `hookstash` program.

use std::process::ExitCode;

// A delivery makes and drops many small things; the system's allocator takes a tenth of its time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    hookstash::cli::main()
}
