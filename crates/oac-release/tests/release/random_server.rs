//! Servers drawn from seeds: each answers each request for a file in its own way. Whatever they do, what has a file's
//! name is the file.
//!
//! `OAC_SEED=N` plays one again.

use std::sync::{Arc, Mutex};

use oac_release::layout::Role;

use oac_release::made::commit;

use crate::{
    reader::{Node, SIZE, honest, hurried, ranged, sized, whole},
    server::{Asked, Server, Stream, head, say},
};

const SEEDS: u64 = 60;

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

fn play(random: &mut Random, bytes: &[u8], asked: &Asked, out: &mut dyn Stream) -> std::io::Result<()> {
    let from = asked.from().unwrap_or(0).min(bytes.len() as u64) as usize;
    let mut body = bytes.to_vec();
    match random.below(10) {
        0 => return ranged(bytes, asked, out),
        1 => return say(out, "200 OK", &[], bytes),
        2 => {
            let statuses = [
                "206 Partial Content",
                "404 Not Found",
                "416 X",
                "429 X",
                "500 X",
                "503 X",
                "304 X",
            ];
            return say(out, statuses[random.below(7) as usize], &[], b"");
        }
        3 => {
            let at = random.below(body.len() as u64) as usize;
            body[at] ^= 1 << random.below(8);
        }
        4 => body.truncate(random.below(body.len() as u64) as usize),
        5 => body.extend(vec![0; 1 + random.below(100_000) as usize]),
        _ => {}
    }
    let (start, status) = match random.below(3) {
        0 => (0, "200 OK"),
        _ => (
            from.min(body.len()),
            if from > 0 { "206 Partial Content" } else { "200 OK" },
        ),
    };
    let skew = |random: &mut Random, value: usize| match random.below(8) {
        0 => value + 1,
        1 => value.saturating_sub(1),
        _ => value,
    };
    let range = format!(
        "bytes {}-{}/{}",
        skew(random, start),
        skew(random, SIZE - 1),
        skew(random, SIZE)
    );
    let sent = &body[start..];
    let length = match random.below(4) {
        0 => None,
        _ => Some(skew(random, sent.len()) as u64),
    };
    let encoding = if random.below(12) == 0 { "gzip" } else { "identity" };
    head(
        out,
        status,
        &[("Content-Range", &range), ("Content-Encoding", encoding)],
        length,
    )?;
    let cut = match random.below(3) {
        0 => random.below(sent.len() as u64 + 1) as usize,
        _ => sent.len(),
    };
    for piece in sent[..cut].chunks(1 + random.below(90_000) as usize) {
        out.write_all(piece)?;
        out.flush()?;
    }
    Ok(())
}

// inv: INV-R12
#[test]
fn no_server_brings_a_node_to_give_other_bytes_a_files_name() {
    let chosen = std::env::var("OAC_SEED").ok().map(|seed| seed.parse().unwrap());
    let seeds = chosen.map_or(0..SEEDS, |seed: u64| seed..seed + 1);
    let made = Arc::new(sized(commit('a')));
    let (mut whole_ones, mut refused) = (0, 0);
    for seed in seeds {
        let random = Mutex::new(Random(seed));
        let served = made.clone();
        let server = Server::plain(move |asked, out| {
            let artifacts = served.metadata.manifest().artifacts();
            let program = artifacts.iter().position(|a| a.role == Role::Node).unwrap();
            if !asked.path.ends_with(&artifacts[program].filename) {
                return honest(&served, asked, out);
            }
            play(&mut random.lock().unwrap(), &served.files[program], asked, out)
        });
        let node = Node::new();
        let mut remote = hurried(&server.url());
        for run in 0..3 {
            let answer = node.get(&mut remote, &made.metadata);
            let files = node.files();
            match &answer {
                Ok(()) => assert_eq!(files, whole(&made), "seed {seed}, run {run}"),
                Err(_) => assert!(
                    files
                        .iter()
                        .all(|file| whole(&made).contains(file) && file.0 != "bin/oac-node"),
                    "seed {seed}, run {run}"
                ),
            }
            if answer.is_ok() {
                whole_ones += 1;
                break;
            }
            refused += 1;
        }
    }
    if chosen.is_none() {
        assert!(
            whole_ones > 5 && refused > 5,
            "{whole_ones} whole, {refused} refused"
        );
    }
}
