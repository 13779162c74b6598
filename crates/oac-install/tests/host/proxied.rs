//! Core and its releases through a proxy, and past it (installer.md section 8).

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

use crate::{
    engine::docker,
    scratch::Ran,
    world::{TOKEN, World},
};

/// What a proxy was asked: the request's line and its credentials.
pub(crate) type Asked = Vec<(String, Option<String>)>;

pub(crate) struct Proxy {
    pub(crate) port: u16,
    asked: Arc<Mutex<Asked>>,
}

impl Proxy {
    /// Leads to `core`, by whichever name it is asked for; without one it knows no CONNECT.
    pub(crate) fn start(core: Option<SocketAddr>) -> Self {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let proxy = Self {
            port: listener.local_addr().unwrap().port(),
            asked: Arc::default(),
        };
        let asked = proxy.asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let asked = asked.clone();
                std::thread::spawn(move || serve(stream, core, &asked));
            }
        });
        proxy
    }

    /// Since the last time.
    pub(crate) fn asked(&self) -> Asked {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

fn serve(mut client: TcpStream, core: Option<SocketAddr>, asked: &Mutex<Asked>) {
    let mut reader = BufReader::new(client.try_clone().unwrap());
    let mut head = String::new();
    let mut credentials = None;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) <= 2 {
            break;
        }
        match line.split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("proxy-authorization") => {
                credentials = Some(value.trim().to_owned());
            }
            Some(_) => {}
            None => head = line.trim().to_owned(),
        }
    }
    asked.lock().unwrap().push((head, credentials));
    let Some(core) = core else {
        let _ = client.write_all(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n");
        return;
    };
    let mut core = TcpStream::connect(core).unwrap();
    let _ = client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n");
    let (mut answers, mut out) = (core.try_clone().unwrap(), client.try_clone().unwrap());
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut answers, &mut out);
        let _ = out.shutdown(std::net::Shutdown::Both);
    });
    let _ = std::io::copy(&mut reader, &mut core);
    let _ = core.shutdown(std::net::Shutdown::Both);
}

/// Where its Core listens.
fn at(world: &World) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], world.core.port))
}

fn run(world: &World, environment: &[(&str, &str)]) -> Ran {
    world.host.run_with(&world.command(), TOKEN, "", environment)
}

// req: G-088, G-090, G-092
#[test]
fn docker_everything_goes_through_the_proxy_of_its_scheme_with_the_decoded_credentials() {
    for variable in ["http_proxy", "HTTP_PROXY"] {
        let world = World::known_as(|_| "http://core.example:8080".to_owned());
        let proxy = Proxy::start(Some(at(&world)));
        let url = format!("http://us%20er:p%40ss@127.0.0.1:{}", proxy.port);
        let ran = run(&world, &[(variable, &url)]);
        ran.ready();
        let asked = proxy.asked();
        let known = (
            "CONNECT core.example:8080 HTTP/1.1".to_owned(),
            Some("Basic dXMgZXI6cEBzcw==".to_owned()),
        );
        assert!(asked.iter().all(|asked| *asked == known), "{asked:?}");
        // Core was asked, and files came, each over a connection of the proxy's.
        let state = world.core.state.lock().unwrap();
        assert!(!state.asked.is_empty() && state.sent > 0 && asked.len() > state.asked.len());
        for said in [&ran.out, &ran.error] {
            assert!(!said.contains("p%40ss") && !said.contains("p@ss"), "{said}");
        }
    }
    // The other scheme's proxy is none: nobody knows the name.
    let world = World::known_as(|_| "http://core.example:8080".to_owned());
    let proxy = Proxy::start(Some(at(&world)));
    let url = format!("http://127.0.0.1:{}", proxy.port);
    run(&world, &[("https_proxy", &url)])
        .stopped("Core at http://core.example:8080 cannot be reached: check address, network and proxy.");
    assert_eq!(proxy.asked(), []);
}

// req: G-093
#[test]
fn docker_https_goes_by_connect_and_a_proxy_that_knows_none_is_an_error() {
    let world = World::known_as(|_| "https://core.example".to_owned());
    let before = world.host.picture();
    let proxy = Proxy::start(None);
    let url = format!("http://127.0.0.1:{}", proxy.port);
    run(&world, &[("https_proxy", &url)])
        .stopped("Core at https://core.example cannot be reached: check address, network and proxy.");
    let asked = proxy.asked();
    let known = ("CONNECT core.example:443 HTTP/1.1".to_owned(), None);
    assert!(
        !asked.is_empty() && asked.iter().all(|asked| *asked == known),
        "{asked:?}"
    );
    assert_eq!(world.host.picture(), before);
}

// req: G-089, G-101
#[test]
fn docker_excluded_hosts_and_this_host_itself_are_reached_past_the_proxy() {
    let proxy = Proxy::start(None);
    let url = format!("http://127.0.0.1:{}", proxy.port);
    let format = "{{(index .IPAM.Config 0).Gateway}}";
    let gateway = docker(&["network", "inspect", "bridge", "--format", format]);
    let gateway = gateway.trim();
    let world = World::known_as(|port| format!("http://{gateway}:{port}"));
    let unreachable = format!(
        "Core at {} cannot be reached: check address, network and proxy.",
        world.core.origin
    );
    run(&world, &[("http_proxy", &url), ("no_proxy", "other.example")]).stopped(&unreachable);
    assert!(!proxy.asked().is_empty());
    let excluded = format!("other.example,{gateway}");
    run(&world, &[("http_proxy", &url), ("no_proxy", &excluded)]).ready();
    assert_eq!(proxy.asked(), []);
    let here = World::new();
    run(&here, &[("http_proxy", &url)]).ready();
    assert_eq!(proxy.asked(), []);
}
