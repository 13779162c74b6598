//! The Runtime image and its archive: one tar that holds both an OCI layout and the older image index, layers
//! uncompressed, compressed once without name or time (releases.md section 3).

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use flate2::{Compression, GzBuilder};
use oac_model::{ImageDigest, SourceCommit};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{Variant, base, layer};

const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar";
const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

/// What is built, which the image's tag says: a publisher takes `oac-runtime:<commit>` and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The commit. The minimal image, which no release ships, has `-minimal` in its tag.
    Commit,
    /// A working tree on the commit: `-dirty`, and `-minimal` likewise. It can never be published.
    WorkingTree,
    /// Files for a test's own Core, whatever the image holds. The tag is a release's, and what stands for the commit must
    /// be no commit: nobody can take it for a release of one.
    Trial,
}

/// What an image is built from. Every member shapes its bytes, but `compression` and `out`, which do not reach its
/// digests.
#[derive(Debug)]
pub struct BuildImage<'a> {
    /// Root file system of packages; `None` builds an image that holds the runtime alone.
    pub base: Option<&'a Path>,
    /// The static `oac-runtime`.
    pub runtime: &'a Path,
    /// What the base holds.
    pub variant: Variant,
    pub commit: SourceCommit,
    pub standing: Standing,
    /// Time of the commit, in seconds since 1970.
    pub created: u64,
    /// 0 to 9.
    pub compression: u32,
    /// Folder for the archive and `packages.lock`.
    pub out: &'a Path,
}

/// A built image: what it is called and where its archive is.
#[derive(Debug, Clone)]
pub struct BuiltImage {
    /// `oac-runtime:<commit>`, and what [`Standing`] adds.
    pub tag: String,
    pub config_digest: ImageDigest,
    pub manifest_digest: ImageDigest,
    pub archive: PathBuf,
    /// Of the archive, compressed.
    pub size_bytes: u64,
    pub sha256: String,
    pub unpacked_size_bytes: u64,
    pub unpacked_sha256: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("cannot read or write {path}", path = path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{seconds} is no time an image can carry")]
    Created { seconds: u64 },
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> ImageError {
    let path = path.to_owned();
    move |source| ImageError::File { path, source }
}

/// Counts and hashes what passes through.
struct Measured<T> {
    inner: T,
    hash: Sha256,
    size: u64,
}

impl<T> Measured<T> {
    fn new(inner: T) -> Self {
        Self {
            inner,
            hash: Sha256::new(),
            size: 0,
        }
    }

    fn finish(self) -> (T, u64, String) {
        (self.inner, self.size, hex::encode(self.hash.finalize()))
    }
}

impl<T: Write> Write for Measured<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Read> Read for Measured<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hash.update(&buffer[..read]);
        self.size += read as u64;
        Ok(read)
    }
}

struct Layer {
    path: PathBuf,
    size: u64,
    digest: String,
}

fn measure(path: &Path) -> Result<Layer, ImageError> {
    let mut file = Measured::new(BufReader::with_capacity(
        1 << 20,
        File::open(path).map_err(at(path))?,
    ));
    io::copy(&mut file, &mut io::sink()).map_err(at(path))?;
    let (_, size, digest) = file.finish();
    Ok(Layer {
        path: path.to_owned(),
        size,
        digest,
    })
}

const ARCHIVE_SUFFIX: &str = "-linux-amd64-runtime.tar.gz";

/// The archive of an image of `commit`.
fn archive_name(commit: &str) -> String {
    format!("oac-{commit}{ARCHIVE_SUFFIX}")
}

/// Removes the archives of other commits, each of which may be half a gigabyte.
fn forget_former_archives(out: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(out)? {
        let entry = entry?;
        let name = entry.file_name();
        let commit = name
            .to_str()
            .and_then(|n| n.strip_prefix("oac-")?.strip_suffix(ARCHIVE_SUFFIX));
        if commit.is_some_and(|c| c.parse::<SourceCommit>().is_ok()) && entry.file_type()?.is_file() {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Builds the image; replaces what a former build left in `out`.
pub fn build_image(build: &BuildImage<'_>) -> Result<BuiltImage, ImageError> {
    std::fs::create_dir_all(build.out).map_err(at(build.out))?;
    forget_former_archives(build.out).map_err(at(build.out))?;
    let top = build.out.join("layer.tar");
    let file = File::create(&top).map_err(at(&top))?;
    layer::write_layer(BufWriter::new(file), build.base, build.runtime, build.created).map_err(at(&top))?;

    let mut layers = Vec::new();
    if let Some(base) = build.base {
        layers.push(measure(base)?);
        let lock = build.out.join("packages.lock");
        let packages = base::packages_in(base).map_err(at(base))?;
        std::fs::write(&lock, packages.join("\n") + "\n").map_err(at(&lock))?;
    }
    layers.push(measure(&top)?);

    let config = serde_json::to_vec(&config(build, &layers)?).unwrap_or_default();
    let config_digest = ImageDigest::of(&config);
    let manifest = serde_json::to_vec(&manifest(&layers, &config, config_digest)).unwrap_or_default();
    let manifest_digest = ImageDigest::of(&manifest);
    let marks = match (build.standing, build.variant) {
        (Standing::Commit, Variant::Full) | (Standing::Trial, _) => "",
        (Standing::Commit, Variant::Minimal) => "-minimal",
        (Standing::WorkingTree, Variant::Full) => "-dirty",
        (Standing::WorkingTree, Variant::Minimal) => "-minimal-dirty",
    };
    let tag = format!("oac-runtime:{}{marks}", build.commit);

    let archive = build.out.join(archive_name(&build.commit.to_string()));
    let partial = build.out.join(".runtime.tar.gz.partial");
    let file = BufWriter::with_capacity(1 << 20, File::create(&partial).map_err(at(&partial))?);
    let gzip = GzBuilder::new().write(Measured::new(file), Compression::new(build.compression.min(9)));
    let mut tar = tar::Builder::new(Measured::new(gzip));
    write_archive(
        &mut tar,
        build.created,
        &tag,
        &layers,
        (&config, config_digest),
        (&manifest, manifest_digest),
    )
    .map_err(at(&partial))?;
    let (gzip, unpacked_size_bytes, unpacked_sha256) = tar.into_inner().map_err(at(&partial))?.finish();
    let (mut file, size_bytes, sha256) = gzip.finish().map_err(at(&partial))?.finish();
    file.flush().map_err(at(&partial))?;
    std::fs::rename(&partial, &archive).map_err(at(&archive))?;
    std::fs::remove_file(&top).map_err(at(&top))?;
    Ok(BuiltImage {
        tag,
        config_digest,
        manifest_digest,
        archive,
        size_bytes,
        sha256,
        unpacked_size_bytes,
        unpacked_sha256,
    })
}

fn config(build: &BuildImage<'_>, layers: &[Layer]) -> Result<Value, ImageError> {
    let created = i64::try_from(build.created)
        .ok()
        .and_then(|s| oac_model::Time::from_millis(s.checked_mul(1000)?))
        .ok_or(ImageError::Created {
            seconds: build.created,
        })?;
    let history: Vec<Value> = layers
        .iter()
        .map(|_| json!({ "created": created, "created_by": "oac" }))
        .collect();
    Ok(json!({
        "architecture": "amd64",
        "config": {
            "Entrypoint": ["/usr/local/bin/oac-runtime"],
            "Labels": { "io.oac.layout": "1" },
            "User": "1000:1000",
            "WorkingDir": "/environment/workspace",
        },
        "created": created,
        "history": history,
        "os": "linux",
        "rootfs": {
            "diff_ids": layers.iter().map(|l| format!("sha256:{}", l.digest)).collect::<Vec<_>>(),
            "type": "layers",
        },
    }))
}

fn manifest(layers: &[Layer], config: &[u8], config_digest: ImageDigest) -> Value {
    json!({
        "config": { "digest": config_digest, "mediaType": CONFIG_TYPE, "size": config.len() },
        "layers": layers.iter().map(|l| json!({
            "digest": format!("sha256:{}", l.digest), "mediaType": LAYER_TYPE, "size": l.size,
        })).collect::<Vec<_>>(),
        "mediaType": MANIFEST_TYPE,
        "schemaVersion": 2,
    })
}

enum Blob<'a> {
    Bytes(&'a [u8]),
    Layer(&'a Layer),
}

fn write_archive<W: Write>(
    tar: &mut tar::Builder<W>,
    created: u64,
    tag: &str,
    layers: &[Layer],
    config: (&[u8], ImageDigest),
    manifest: (&[u8], ImageDigest),
) -> io::Result<()> {
    let hex_of = |digest: ImageDigest| hex::encode(digest.as_bytes());
    let blob = |digest: &str| format!("blobs/sha256/{digest}");
    let index = json!({
        "manifests": [{
            "annotations": {
                "io.containerd.image.name": format!("docker.io/library/{tag}"),
                "org.opencontainers.image.ref.name": tag.split_once(':').map_or(tag, |(_, t)| t),
            },
            "digest": manifest.1,
            "mediaType": MANIFEST_TYPE,
            "platform": { "architecture": "amd64", "os": "linux" },
            "size": manifest.0.len(),
        }],
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "schemaVersion": 2,
    });
    let older = json!([{
        "Config": blob(&hex_of(config.1)),
        "Layers": layers.iter().map(|l| blob(&l.digest)).collect::<Vec<_>>(),
        "RepoTags": [tag],
    }]);
    let small = |tar: &mut tar::Builder<W>, name: &str, bytes: &[u8]| {
        append(tar, created, name, bytes.len() as u64, bytes)
    };
    folder(tar, created, "blobs/")?;
    folder(tar, created, "blobs/sha256/")?;
    let mut blobs: Vec<(String, Blob<'_>)> = vec![
        (hex_of(config.1), Blob::Bytes(config.0)),
        (hex_of(manifest.1), Blob::Bytes(manifest.0)),
    ];
    blobs.extend(layers.iter().map(|l| (l.digest.clone(), Blob::Layer(l))));
    blobs.sort_by(|a, b| a.0.cmp(&b.0));
    for (digest, content) in blobs {
        match content {
            Blob::Bytes(bytes) => small(tar, &blob(&digest), bytes)?,
            Blob::Layer(layer) => append(tar, created, &blob(&digest), layer.size, File::open(&layer.path)?)?,
        }
    }
    small(tar, "index.json", index.to_string().as_bytes())?;
    small(tar, "manifest.json", older.to_string().as_bytes())?;
    small(tar, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)
}

fn header(created: u64, kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.set_mtime(created);
    header.set_uid(0);
    header.set_gid(0);
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header
}

fn folder<W: Write>(tar: &mut tar::Builder<W>, created: u64, name: &str) -> io::Result<()> {
    tar.append_data(
        &mut header(created, tar::EntryType::Directory, 0o755, 0),
        name,
        io::empty(),
    )
}

fn append<W: Write>(
    tar: &mut tar::Builder<W>,
    created: u64,
    name: &str,
    size: u64,
    bytes: impl Read,
) -> io::Result<()> {
    tar.append_data(
        &mut header(created, tar::EntryType::Regular, 0o644, size),
        name,
        bytes,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(out: &Path, runtime: &Path, compression: u32) -> BuiltImage {
        build_image(&BuildImage {
            base: None,
            runtime,
            variant: Variant::Full,
            commit: "a".repeat(40).parse().unwrap(),
            standing: Standing::WorkingTree,
            created: 1_767_225_600,
            compression,
            out,
        })
        .unwrap()
    }

    #[test]
    fn two_builds_of_the_same_input_give_the_same_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = folder.path().join("oac-runtime");
        std::fs::write(&runtime, b"a program").unwrap();
        let first = build(&folder.path().join("one"), &runtime, 6);
        let second = build(&folder.path().join("two"), &runtime, 6);
        assert_eq!(
            std::fs::read(&first.archive).unwrap(),
            std::fs::read(&second.archive).unwrap()
        );
        assert_eq!(
            (first.config_digest, first.manifest_digest),
            (second.config_digest, second.manifest_digest)
        );
        std::fs::write(&runtime, b"another").unwrap();
        let third = build(&folder.path().join("three"), &runtime, 6);
        assert_ne!(first.config_digest, third.config_digest);
    }

    #[test]
    fn a_tag_says_what_was_built_and_only_a_release_and_a_trial_are_called_by_the_commit_alone() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = folder.path().join("oac-runtime");
        std::fs::write(&runtime, b"a program").unwrap();
        let tag = |standing, variant| {
            let built = build_image(&BuildImage {
                base: None,
                runtime: &runtime,
                variant,
                commit: "a".repeat(40).parse().unwrap(),
                standing,
                created: 0,
                compression: 0,
                out: folder.path(),
            });
            let tag = built.unwrap().tag;
            tag.strip_prefix(&format!("oac-runtime:{}", "a".repeat(40)))
                .unwrap()
                .to_owned()
        };
        let both = |standing| [Variant::Full, Variant::Minimal].map(|variant| tag(standing, variant));
        assert_eq!(both(Standing::Commit), ["", "-minimal"]);
        assert_eq!(both(Standing::WorkingTree), ["-dirty", "-minimal-dirty"]);
        assert_eq!(both(Standing::Trial), ["", ""]);
    }

    #[test]
    fn a_build_replaces_the_archive_of_another_commit_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = folder.path().join("oac-runtime");
        std::fs::write(&runtime, b"a program").unwrap();
        let out = folder.path().join("out");
        std::fs::create_dir(&out).unwrap();
        let former = out.join(archive_name(&"b".repeat(40)));
        let others = [
            out.join("oac-mine-linux-amd64-runtime.tar.gz"),
            out.join("image.json"),
        ];
        for path in others.iter().chain([&former]) {
            std::fs::write(path, b"").unwrap();
        }
        let built = build(&out, &runtime, 1);
        assert!(!former.exists() && built.archive.exists());
        assert!(others.iter().all(|path| path.exists()));
    }

    #[test]
    fn the_digests_name_what_the_archive_holds_whatever_the_compression() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = folder.path().join("oac-runtime");
        std::fs::write(&runtime, b"a program").unwrap();
        let (fast, small) = (
            build(&folder.path().join("f"), &runtime, 1),
            build(&folder.path().join("s"), &runtime, 9),
        );
        assert_eq!(fast.unpacked_sha256, small.unpacked_sha256);
        let mut names = Vec::new();
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(File::open(&fast.archive).unwrap()));
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().to_string_lossy().into_owned();
            assert_eq!(
                (entry.header().uid().unwrap(), entry.header().mtime().unwrap()),
                (0, 1_767_225_600),
                "{name}"
            );
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            if let Some(digest) = name.strip_prefix("blobs/sha256/").filter(|d| !d.is_empty()) {
                assert_eq!(hex::encode(Sha256::digest(&bytes)), digest);
            }
            names.push(name);
        }
        for digest in [fast.config_digest, fast.manifest_digest] {
            assert!(names.contains(&format!("blobs/sha256/{}", hex::encode(digest.as_bytes()))));
        }
        assert!(names.contains(&"manifest.json".to_owned()) && names.contains(&"oci-layout".to_owned()));
    }
}
