//! Runtime images of this checkout: the minimal one, from which Docker tests, the demo and the benchmarks start
//! sandboxes, and the full one, which a test of its own tries out.
//!
//! Three steps: the static `oac-runtime` of this checkout; the image around it, built without a container engine by
//! the program `oac-release-build` of the crate that knows releases; loading it. The base of Debian packages is the
//! slow part (about one minute for the minimal image, five for the full one) and is kept in the cache.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::checkout::Checkout;
use super::docker::Engine;
use crate::process;
use crate::workspace::{self, Metadata};

const PACKAGE: &str = "oac-release";
const BUILDER: &str = "oac-release-build";

/// An image that the engine holds. One that this run loaded is removed when this is dropped, unless it is kept.
pub(crate) struct RuntimeImage {
    record: PathBuf,
    loaded: Option<Loaded>,
}

struct Loaded {
    tag: String,
    engine: String,
}

/// How much an image holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Variant {
    /// Shell, version control, compilers, interpreters and common tools
    Full,
    /// Shell and core tools, for trying things out
    Minimal,
}

impl Variant {
    fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Minimal => "minimal",
        }
    }

    /// Below the target directory.
    fn folder(self) -> &'static str {
        match self {
            Self::Full => "xtask/runtime-image-full",
            Self::Minimal => "xtask/runtime-image",
        }
    }
}

/// What the builder prints, and with `loaded` what `OAC_TEST_RUNTIME_IMAGE` names.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    tag: String,
    source_commit: String,
    /// The config digest, by which the classic image store knows the image.
    image_id: String,
    /// The manifest digest, by which the containerd store knows it.
    image_manifest_digest: String,
    archive: PathBuf,
    manifest: PathBuf,
    /// Whether this run loaded it into the engine, which did not hold it before.
    #[serde(default)]
    loaded: bool,
}

impl RuntimeImage {
    /// The JSON file that `OAC_TEST_RUNTIME_IMAGE` names.
    pub(crate) fn record(&self) -> &Path {
        &self.record
    }

    /// Leaves the image in the engine.
    pub(crate) fn keep(mut self) {
        self.loaded = None;
    }
}

impl Drop for RuntimeImage {
    fn drop(&mut self) {
        let Some(loaded) = self.loaded.take() else { return };
        // Not through `process`: this must also run after an interruption. It may be gone already.
        let mut remove = Command::new("docker");
        remove.args(["-H", &loaded.engine, "image", "rm", &loaded.tag]);
        let _ = remove
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status();
    }
}

/// Builds the image with the builder among `programs` and loads it into `engine`. `None` while this workspace has no
/// builder; what needs an image then fails and says so.
pub(crate) fn ensure_runtime_image(
    metadata: &Metadata,
    programs: &Path,
    engine: &Engine,
    variant: Variant,
) -> Result<Option<RuntimeImage>> {
    if !metadata.has_program(PACKAGE, BUILDER) {
        return Ok(None);
    }
    let out = metadata.target_directory.join(variant.folder());
    let mut record = build(
        &Builder::among(programs, variant, Standing::WorkingTree)?,
        metadata,
        &out,
    )?;
    record.loaded = load(engine, &record)?;
    let path = out.join("image.json");
    std::fs::write(&path, serde_json::to_string_pretty(&record)?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    let loaded = record.loaded.then(|| Loaded {
        tag: record.tag,
        engine: engine.address(),
    });
    Ok(Some(RuntimeImage { record: path, loaded }))
}

/// `cargo xtask image`: the files of an image in `out`, no engine involved.
pub(crate) fn run(variant: Variant, out: Option<&Path>) -> Result<()> {
    let _lock = super::lock::take()?;
    super::packages::ensure_packages(&[super::packages::IMAGE])?;
    let metadata = workspace::metadata()?;
    let out = out.map_or_else(
        || metadata.target_directory.join(variant.folder()),
        Path::to_owned,
    );
    let record = build(
        &Builder::of(&metadata, variant, Standing::WorkingTree)?,
        &metadata,
        &out,
    )?;
    println!("image:    {}", record.tag);
    println!("archive:  {}", record.archive.display());
    println!("manifest: {}", record.manifest.display());
    Ok(())
}

fn build(builder: &Builder, metadata: &Metadata, out: &Path) -> Result<Record> {
    let checkout = Checkout::own(metadata)?;
    let runtime = checkout.build_static("oac-runtime", "oac-runtime")?;
    let mut command = builder.command("image", &checkout, &runtime, out)?;
    let text = process::output_of(&mut command).context("the Runtime image cannot be built")?;
    serde_json::from_str(&text).context("the image builder's answer is not readable")
}

/// What is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// A commit's release.
    Commit,
    /// A working tree: tagged so, and never published.
    WorkingTree,
    /// What this run's own Cores publish, of files that no commit stands for.
    Trial,
}

impl Standing {
    fn argument(self) -> Option<&'static str> {
        match self {
            Self::Commit => None,
            Self::WorkingTree => Some("--dirty"),
            Self::Trial => Some("--trial"),
        }
    }
}

/// The program that builds images and releases, and what it builds.
pub(crate) struct Builder {
    program: PathBuf,
    pub(crate) variant: Variant,
    pub(crate) standing: Standing,
    /// Where bases of packages are kept.
    pub(crate) cache: PathBuf,
}

impl Builder {
    /// With one that is built first.
    pub(crate) fn of(metadata: &Metadata, variant: Variant, standing: Standing) -> Result<Self> {
        process::run(process::cargo_build().args(["-p", PACKAGE, "--features", "image", "--bin", BUILDER]))?;
        Self::among(&metadata.target_directory.join("debug"), variant, standing)
    }

    /// With the one among built `programs`.
    pub(crate) fn among(programs: &Path, variant: Variant, standing: Standing) -> Result<Self> {
        Ok(Self {
            program: programs.join(BUILDER),
            variant,
            standing,
            cache: super::cache()?.join("runtime-base"),
        })
    }

    /// The program's command `what`, with the arguments that the image of `checkout` needs; its files go to `out`.
    pub(crate) fn command(
        &self,
        what: &str,
        checkout: &Checkout,
        runtime: &Path,
        out: &Path,
    ) -> Result<Command> {
        for folder in [out, &self.cache] {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let mut command = Command::new(&self.program);
        command.args([what, "--variant", self.variant.name()]);
        command.args(self.standing.argument());
        command.args(["--commit", &checkout.commit, "--created", &checkout.created]);
        command.arg("--runtime").arg(runtime);
        command.arg("--cache").arg(&self.cache).arg("--out").arg(out);
        Ok(command)
    }
}

/// Whether it had to be loaded: an engine knows an image by one of its two digests.
fn load(engine: &Engine, record: &Record) -> Result<bool> {
    let address = engine.address();
    let holds = |digest: &str| {
        process::succeeds(Command::new("docker").args(["-H", &address, "image", "inspect", digest]))
    };
    if holds(&record.image_id) || holds(&record.image_manifest_digest) {
        return Ok(false);
    }
    process::capture(
        Command::new("docker")
            .args(["-H", &address, "load", "--quiet", "--input"])
            .arg(&record.archive),
    )
    .context("the Docker Engine does not load the Runtime image")?;
    Ok(true)
}
