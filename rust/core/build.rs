//! Compiles `proto/` with protox, so that no protoc is needed.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let proto = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    println!("cargo::rerun-if-changed={}", proto.display());
    let files = [
        "segment_raw",
        "segment_draft",
        "segment_lip243",
        "sds",
        "sds_nim",
        "waku_message",
        "file_transfer",
    ]
    .map(|name| proto.join(format!("{name}.proto")));
    let descriptors = protox::compile(&files, [&proto])?;
    prost_build::Config::new().compile_fds(descriptors)?;
    Ok(())
}
