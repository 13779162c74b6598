// The only program of the test image: it stands in for the runtime, and is the tool that commands run.
use std::io::{Read, Write};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some("echo-exit") => {
            let mut input = Vec::new();
            std::io::stdin().read_to_end(&mut input).unwrap();
            std::io::stdout().write_all(&input).unwrap();
            let mut text = vec![0xff, 0x00, 0xfe];
            text.extend(std::env::current_dir().unwrap().into_os_string().into_encoded_bytes());
            std::io::stderr().write_all(&text).unwrap();
            std::process::exit(args[2].parse().unwrap());
        }
        Some("flood") => {
            let mut left: usize = args[2].parse().unwrap();
            let block = vec![b'x'; 64 * 1024];
            while left > 0 {
                let n = left.min(block.len());
                std::io::stdout().write_all(&block[..n]).unwrap();
                std::io::stderr().write_all(&block[..n]).unwrap();
                left -= n;
            }
            std::process::exit(7);
        }
        // What a sandbox sees of itself, one `key value` per line.
        Some("look") => {
            for path in &args[2..] {
                use std::os::unix::fs::MetadataExt;
                match std::fs::symlink_metadata(path) {
                    Ok(m) => println!("{path} {:o} {}:{}", m.mode() & 0o7777, m.uid(), m.gid()),
                    Err(e) => println!("{path} {:?}", e.kind()),
                }
            }
            for (key, value) in std::env::vars() {
                println!("env {key} {value}");
            }
            for line in std::fs::read_to_string("/proc/self/status").unwrap().lines() {
                println!("status {line}");
            }
        }
        // `connect <address>` exits 0 when a TCP connection is made within two seconds.
        Some("connect") => {
            let address = args[2].parse().unwrap();
            let limit = std::time::Duration::from_secs(2);
            let made = std::net::TcpStream::connect_timeout(&address, limit).is_ok();
            std::process::exit(if made { 0 } else { 1 });
        }
        Some("read") => print!("{}", std::fs::read_to_string(&args[2]).unwrap()),
        Some("write") => std::fs::write(&args[2], &args[3]).unwrap(),
        // As oac-runtime, which also listens, so that others may try to reach it; and for `wait`.
        _ => {
            let listener = std::net::TcpListener::bind("0.0.0.0:7777");
            loop {
                match &listener {
                    Ok(listener) => drop(listener.accept()),
                    Err(_) => std::thread::park(),
                }
            }
        }
    }
}
