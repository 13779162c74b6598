//! `oac-core`: the control plane of oac.

#[tokio::main]
async fn main() -> std::process::ExitCode {
    oac_core::command::main().await
}
