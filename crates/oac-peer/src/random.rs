use oac_model::RequestId;
use uuid::Builder;

/// Spread from a seed that the shell draws: jitter and ids that must differ, neither of them a secret. The simulation
/// draws its world from one too.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// splitmix64.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is at least 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// True once in `n` draws.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A fresh id.
    pub(crate) fn request_id(&mut self) -> RequestId {
        let high = u128::from(self.number()) << 64;
        let id = Builder::from_random_bytes((high | u128::from(self.number())).to_be_bytes()).into_uuid();
        // Version and variant bits are set, so the id is never nil.
        RequestId::from_uuid(id).unwrap_or_else(|| unreachable!("a version 4 UUID is not nil"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_one_seed_differ_and_another_seed_gives_others() {
        let ids = |seed| {
            let mut random = Random::new(seed);
            std::array::from_fn::<_, 100, _>(|_| random.request_id())
        };
        let all: std::collections::HashSet<_> = ids(1).into_iter().chain(ids(2)).collect();
        assert_eq!(all.len(), 200);
        assert_eq!(ids(1), ids(1), "a seed replays");
    }
}
