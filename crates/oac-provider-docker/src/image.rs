//! The Runtime image of a generation in the host's engine: found by either of its digests, and loaded from its release's
//! archive. Nothing here, and nothing in this crate, removes one (INV-N19): the engine is the host's, not the node's.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited, StreamBody};
use hyper::body::Frame;
use oac_model::ImageDigest;
use serde::Deserialize;
use tokio::{fs::File, io::AsyncReadExt};

use crate::{
    engine::{Engine, EngineError},
    options::Image,
    provider::DockerSetup,
};

/// Read from the archive at once.
const CHUNK_BYTES: usize = 256 * 1024;
/// The engine's account of a load: a line for each layer and each step of its progress.
const ACCOUNT_BYTES: usize = 8 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("the Docker host must be unix:// and a path")]
    Host,
    #[error("the Docker Engine did not answer")]
    Engine(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the Docker Engine resolves {asked} to {found}, which the release does not name")]
    Other { asked: ImageDigest, found: String },
    #[error("the archive {path} cannot be read")]
    Archive {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the Docker Engine did not load the archive: {0}")]
    Refused(String),
}

impl From<EngineError> for ImageError {
    fn from(error: EngineError) -> Self {
        Self::Engine(Box::new(error))
    }
}

fn engine(host: &str) -> Result<std::sync::Arc<Engine>, ImageError> {
    let path = host.strip_prefix("unix://").ok_or(ImageError::Host)?;
    Ok(Engine::new(path.as_ref(), DockerSetup::system_clock()))
}

/// The id under which the engine behind `host` (`unix://…`) knows the image that `digests` name: the config digest in its
/// classic store, the manifest digest in its containerd store. `None` where it answers that it has neither.
pub async fn find_image(host: &str, digests: &[ImageDigest]) -> Result<Option<ImageDigest>, ImageError> {
    let mut session = engine(host)?.session().await?;
    for asked in digests {
        let Some(image) = session.get::<Image>(&format!("/images/{asked}/json")).await? else {
            continue;
        };
        let found = image.id.parse().ok().filter(|id| digests.contains(id));
        return found.map(Some).ok_or(ImageError::Other {
            asked: *asked,
            found: image.id,
        });
    }
    Ok(None)
}

/// Has the engine behind `host` load an archive, gzip or plain. Whether the image is there is then asked of the engine:
/// success is no proof. Without a limit of its own; dropped, the engine may still complete it.
pub async fn load_image(host: &str, archive: &Path) -> Result<(), ImageError> {
    let failed = |source| ImageError::Archive {
        path: archive.to_owned(),
        source,
    };
    let file = File::open(archive).await.map_err(failed)?;
    let size = file.metadata().await.map_err(failed)?.len();
    let (sender, receiver) = tokio::sync::mpsc::channel(2);
    let body = StreamBody::new(Pieces(receiver));
    let mut request = Request::new(body);
    *request.method_mut() = Method::POST;
    let headers = request.headers_mut();
    headers.insert(header::HOST, HeaderValue::from_static("docker"));
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/x-tar"),
    );
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(size));

    let engine = engine(host)?;
    let session = engine.session().await?;
    *request.uri_mut() = session
        .path("/images/load?quiet=true")
        .parse()
        .unwrap_or_else(|_| unreachable!("the path is fixed"));
    let call = session.stream_call(request, async |response| {
        let status = response.status();
        let account = Limited::new(response.into_body(), ACCOUNT_BYTES);
        let account = account.collect().await.map_err(ImageError::Engine)?.to_bytes();
        judge(status, &account)
    });
    let ((), result) = tokio::join!(feed(file, sender), call);
    result?
}

/// Feeds the archive for as long as the engine takes it. A file that ends early, or fails, ends a body of known length
/// early, which the engine refuses.
async fn feed(mut file: File, sender: tokio::sync::mpsc::Sender<Bytes>) {
    loop {
        let mut piece = bytes::BytesMut::with_capacity(CHUNK_BYTES);
        match file.read_buf(&mut piece).await {
            Ok(0) | Err(_) => return,
            Ok(_) if sender.send(piece.freeze()).await.is_err() => return,
            Ok(_) => {}
        }
    }
}

struct Pieces(tokio::sync::mpsc::Receiver<Bytes>);

impl futures_util::Stream for Pieces {
    type Item = Result<Frame<Bytes>, std::convert::Infallible>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0
            .poll_recv(context)
            .map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

/// The engine answers 200 before it reads, and says later, in its account, what went wrong.
fn judge(status: StatusCode, account: &[u8]) -> Result<(), ImageError> {
    #[derive(Deserialize)]
    struct Line {
        error: Option<String>,
        message: Option<String>,
    }
    let lines = account.split(|byte| *byte == b'\n');
    let lines = lines.filter_map(|line| serde_json::from_slice::<Line>(line).ok());
    for line in lines {
        if let Some(error) = line.error {
            return Err(ImageError::Refused(error));
        }
        if let (false, Some(message)) = (status.is_success(), line.message) {
            return Err(ImageError::Refused(message));
        }
    }
    if status.is_success() {
        Ok(())
    } else {
        Err(ImageError::Refused(format!("HTTP {status}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_that_fails_after_its_200_is_a_failure() {
        assert!(judge(StatusCode::OK, b"").is_ok());
        assert!(judge(StatusCode::OK, b"{\"stream\":\"Loaded image: x\"}\r\n").is_ok());
        let late =
            b"{\"stream\":\"a\"}\r\n{\"errorDetail\":{\"message\":\"m\"},\"error\":\"no space left\"}\r\n";
        assert!(
            matches!(judge(StatusCode::OK, late), Err(ImageError::Refused(text)) if text == "no space left")
        );
        let refused = judge(StatusCode::INTERNAL_SERVER_ERROR, b"{\"message\":\"bad tar\"}\n");
        assert!(matches!(refused, Err(ImageError::Refused(text)) if text == "bad tar"));
        assert!(judge(StatusCode::BAD_GATEWAY, b"").is_err());
    }
}
