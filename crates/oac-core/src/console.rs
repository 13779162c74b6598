//! The console's files, as they were built into this program (console.md section 1).
//!
//! In goes a request that no route answers, out comes the page, one of its files, or `None`. The page is one document for
//! every path of the console: its script shows what the path names, so reload and links work. Files below `assets/` carry
//! their digest in their name and never change; the page names them and is asked for anew each time.

use std::sync::OnceLock;

use axum::{
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use oac_model::Digest;

/// One file: its path without the first slash, its bytes, and the same packed with gzip.
#[derive(Debug)]
struct File {
    name: &'static str,
    bytes: &'static [u8],
    packed: Option<&'static [u8]>,
}

include!(concat!(env!("OUT_DIR"), "/console_files.rs"));

const PAGE: &str = "index.html";
/// Everything comes from Core, and nothing is framed, based or submitted elsewhere.
const POLICY: &str = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'";
const FOR_EVER: &str = "public, max-age=31536000, immutable";
/// What a program says that was built without the console.
const NOT_BUILT: &str = "This Core was built without the console: build it with `cargo xtask console --build`, then build Core again. The command line `oac` does all that the console does.\n";

/// Whether the console is built into this program.
pub fn is_built_in() -> bool {
    !FILES.is_empty()
}

/// What a path of the console is answered with; `None` for what is none of its paths.
pub(crate) fn answer(method: &Method, path: &str, headers: &HeaderMap) -> Option<Response> {
    answer_from(FILES, method, path, headers)
}

fn answer_from(files: &'static [File], method: &Method, path: &str, headers: &HeaderMap) -> Option<Response> {
    let find = |name: &str| files.iter().find(|file| file.name == name);
    let named = path.strip_prefix('/').and_then(find);
    let is_page = is_page(path);
    if named.is_none() && !is_page && !wants_page(headers) {
        return None;
    }
    if !matches!(*method, Method::GET | Method::HEAD) {
        // What is no page of the console is not its to refuse.
        return (named.is_some() || is_page).then(|| {
            let allow = [(header::ALLOW, HeaderValue::from_static("GET, HEAD"))];
            (StatusCode::METHOD_NOT_ALLOWED, allow).into_response()
        });
    }
    if let Some(file) = named.filter(|file| file.name != PAGE) {
        return Some(send(file, StatusCode::OK, headers));
    }
    match find(PAGE) {
        Some(page) if is_page || named.is_some() => Some(send(page, StatusCode::OK, headers)),
        Some(page) => Some(send(page, StatusCode::NOT_FOUND, headers)),
        None if is_page => Some((StatusCode::NOT_FOUND, protection(), NOT_BUILT).into_response()),
        None => None,
    }
}

/// The paths of console.md section 1, Navigation.
fn is_page(path: &str) -> bool {
    match path {
        "/" | "/sign-in" | "/nodes" | "/settings/sandbox" | "/settings/service" | "/settings/audit" => true,
        _ => path
            .strip_prefix("/nodes/")
            .is_some_and(|id| !id.is_empty() && !id.contains('/')),
    }
}

/// A person who mistyped an address, not a program that asks for data.
fn wants_page(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|list| list.split(',').any(|kind| kind.trim().starts_with("text/html")))
}

fn send(file: &'static File, status: StatusCode, headers: &HeaderMap) -> Response {
    let tag = tag(file);
    let lists = |name: HeaderName, wanted: &str| {
        headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .any(|list| {
                list.split(',').any(|item| {
                    let item = item.trim();
                    item == wanted || item.strip_prefix("W/") == Some(wanted)
                })
            })
    };
    let keep = if file.name.starts_with("assets/") {
        FOR_EVER
    } else {
        "no-cache"
    };
    let mut response = if status == StatusCode::OK && lists(header::IF_NONE_MATCH, &tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        match file.packed.filter(|_| lists(header::ACCEPT_ENCODING, "gzip")) {
            Some(packed) => (status, [(header::CONTENT_ENCODING, "gzip")], packed).into_response(),
            None => (status, file.bytes).into_response(),
        }
    };
    let own = response.headers_mut();
    for (name, value) in protection() {
        own.insert(name, value);
    }
    own.insert(header::CONTENT_TYPE, HeaderValue::from_static(media(file.name)));
    own.insert(header::CACHE_CONTROL, HeaderValue::from_static(keep));
    own.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if let Ok(tag) = HeaderValue::try_from(tag) {
        own.insert(header::ETAG, tag);
    }
    response
}

fn protection() -> [(HeaderName, HeaderValue); 3] {
    [
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (
            header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        ),
    ]
}

/// Weak, because both encodings have it.
fn tag(file: &'static File) -> String {
    static PAGE_DIGEST: OnceLock<Digest> = OnceLock::new();
    // The other files are asked for once in their lives.
    let digest = match file.name {
        PAGE => *PAGE_DIGEST.get_or_init(|| Digest::of(file.bytes)),
        _ => Digest::of(file.bytes),
    };
    format!("W/\"{digest}\"")
}

fn media(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "woff2" => "font/woff2",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static BUILT: &[File] = &[
        File {
            name: "assets/a-1234.js",
            bytes: b"script",
            packed: Some(b"packed"),
        },
        File {
            name: PAGE,
            bytes: b"page",
            packed: None,
        },
    ];

    fn get(files: &'static [File], path: &str, headers: &[(HeaderName, &'static str)]) -> Option<Response> {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_static(value)))
            .collect();
        answer_from(files, &Method::GET, path, &headers)
    }

    fn header_of(response: &Response, name: HeaderName) -> &str {
        response
            .headers()
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    // inv: INV-W2
    #[test]
    fn every_file_comes_with_the_policy_and_only_hashed_names_are_kept_for_ever() {
        for (path, media, keep) in [
            ("/", "text/html; charset=utf-8", "no-cache"),
            (
                "/nodes/11111111-1111-4111-8111-111111111111",
                "text/html; charset=utf-8",
                "no-cache",
            ),
            ("/assets/a-1234.js", "text/javascript; charset=utf-8", FOR_EVER),
        ] {
            let response = get(BUILT, path, &[]).unwrap();
            assert_eq!(response.status(), StatusCode::OK, "{path}");
            assert_eq!(header_of(&response, header::CONTENT_SECURITY_POLICY), POLICY);
            assert_eq!(header_of(&response, header::REFERRER_POLICY), "no-referrer");
            assert_eq!(header_of(&response, header::X_CONTENT_TYPE_OPTIONS), "nosniff");
            assert_eq!(header_of(&response, header::CONTENT_TYPE), media);
            assert_eq!(header_of(&response, header::CACHE_CONTROL), keep);
        }
    }

    #[test]
    fn a_file_is_packed_for_whoever_unpacks_and_not_sent_twice() {
        let plain = get(BUILT, "/assets/a-1234.js", &[]).unwrap();
        assert_eq!(header_of(&plain, header::CONTENT_ENCODING), "");
        let packed = get(
            BUILT,
            "/assets/a-1234.js",
            &[(header::ACCEPT_ENCODING, "br, gzip")],
        )
        .unwrap();
        assert_eq!(header_of(&packed, header::CONTENT_ENCODING), "gzip");
        let tag: &'static str = header_of(&plain, header::ETAG).to_owned().leak();
        let again = get(BUILT, "/assets/a-1234.js", &[(header::IF_NONE_MATCH, tag)]).unwrap();
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
    }

    #[test]
    fn a_mistyped_address_is_the_consoles_404_for_a_person_and_none_for_a_program() {
        assert!(get(BUILT, "/node", &[]).is_none());
        let page = get(BUILT, "/node", &[(header::ACCEPT, "text/html,*/*")]).unwrap();
        assert_eq!(page.status(), StatusCode::NOT_FOUND);
        assert_eq!(header_of(&page, header::CONTENT_TYPE), "text/html; charset=utf-8");
        let refused = answer_from(BUILT, &Method::POST, "/nodes", &HeaderMap::new()).unwrap();
        assert_eq!(refused.status(), StatusCode::METHOD_NOT_ALLOWED);
    }

    #[test]
    fn a_program_without_the_console_says_so() {
        let said = get(&[], "/", &[(header::ACCEPT, "text/html")]).unwrap();
        assert_eq!(said.status(), StatusCode::NOT_FOUND);
        assert_eq!(
            header_of(&said, header::CONTENT_TYPE),
            "text/plain; charset=utf-8"
        );
        assert!(get(&[], "/other", &[(header::ACCEPT, "text/html")]).is_none());
    }
}
