//! Values of frames, and frames that are nearly right.

use oac_model::{OwnerEpoch, Reference};
use oac_wire::{
    frames::{Arguments, Deployment},
    shapes::Info,
};

use super::{fixtures, random::Random};

pub(crate) use fixtures::{
    command_result, connection, digest, generation, health, identity, request_id, wall,
};

/// The number an id was made from.
pub(crate) fn number_of(id: impl std::fmt::Display) -> u64 {
    let text = id.to_string();
    u64::from_str_radix(text.rsplit('-').next().unwrap_or_default(), 16).unwrap_or_default()
}

/// An allocation, and in the environment the number of the request that names it.
pub(crate) fn reference(allocation: u64, request: u64) -> Reference {
    Reference {
        environment_id: fixtures::reference(request).environment_id,
        ..fixtures::reference(allocation)
    }
}

/// Before the first there is none.
pub(crate) fn epoch(n: i64) -> OwnerEpoch {
    fixtures::epoch(n.max(1))
}

pub(crate) fn deployment(random: &mut Random) -> Deployment {
    let target = 1 + random.below(3) as i64;
    let most = if random.one_in(20) { 3 } else { target as usize };
    let specification_digest = digest(if random.one_in(30) { 9 } else { target });
    let serving = random.one_in(2).then(|| 1 + random.below(most) as i64);
    Deployment {
        specification_digest,
        ..fixtures::deployment(target, serving)
    }
}

pub(crate) fn arguments(random: &mut Random, reference: Reference) -> Arguments {
    match random.below(5) {
        0 => fixtures::create_arguments(reference),
        1 => Arguments::Info,
        2 => Arguments::Kill,
        3 => Arguments::Initial,
        _ => fixtures::command_arguments(),
    }
}

pub(crate) fn info(random: &mut Random, reference: Reference) -> Info {
    let absent = random.one_in(2);
    let create_settled = !random.one_in(4);
    let (info, bootstrap_complete) = match absent {
        true => (fixtures::settled_absent(reference), false),
        false => (fixtures::running(reference), create_settled),
    };
    Info {
        bootstrap_complete,
        create_settled,
        compute_lost: absent && create_settled && random.one_in(3),
        ..info
    }
}

/// The same text with a few bytes changed.
pub(crate) fn spoiled(random: &mut Random, text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..1 + random.below(3) {
        let at = random.below(bytes.len());
        match random.below(4) {
            0 => bytes.truncate(at),
            1 if at < bytes.len() => bytes[at] = *random.pick(b"\"{}[],:0129-aA \0\xff"),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            _ => bytes.insert(at, *random.pick(b"\"{}[],:0129-aA \0\xff")),
        }
    }
    bytes
}
