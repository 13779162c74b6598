//! Numbered, immutable specifications, and which of them are kept (core.md section 6).

use oac_model::{Digest, Generation, ProviderKind, Specification, Time};

use crate::{
    StoreError, Tx, limits,
    row::{params, stored},
    tx::Read,
};

stored! {
    GenerationRow in "deployment_generations" {
        generation: Generation,
        provider: ProviderKind,
        specification: Specification,
        /// The text whose SHA-256 is `digest`.
        canonical: String,
        digest: Digest,
        created_at: Time,
    }
}

/// True of a generation row `deployment_generations` that is kept, by core.md section 6; and while a kill is owed for an
/// allocation of it, so that no node that comes back has removed what the kill runs with.
const KEPT: &str = "(EXISTS (SELECT 1 FROM deployment d WHERE d.generation = deployment_generations.generation) \
     OR EXISTS (SELECT 1 FROM placements p WHERE p.released_at IS NULL \
        AND p.generation = deployment_generations.generation) \
     OR EXISTS (SELECT 1 FROM allocations a WHERE a.released_at IS NULL \
        AND a.deployment_generation = deployment_generations.generation) \
     OR EXISTS (SELECT 1 FROM computes c JOIN allocations a ON a.id = c.allocation_id WHERE c.kill_owed \
        AND a.deployment_generation = deployment_generations.generation) \
     OR EXISTS (SELECT 1 FROM nodes n WHERE n.retired_at IS NULL \
        AND n.serving_generation = deployment_generations.generation) \
     OR EXISTS (SELECT 1 FROM nodes n WHERE n.retired_at IS NULL AND n.generation_management IS NOT TRUE \
        AND n.enrolled_generation = deployment_generations.generation))";

impl Read {
    /// The row, kept or not.
    pub async fn generation(&self, generation: Generation) -> Result<Option<GenerationRow>, StoreError> {
        self.one("WHERE generation = $1", params![generation]).await
    }

    /// The row of a kept generation, judged in one statement over target, pins, placements and allocations.
    pub async fn kept_generation(&self, generation: Generation) -> Result<Option<GenerationRow>, StoreError> {
        let rest = format!("WHERE generation = $1 AND {KEPT}");
        self.one(&rest, params![generation]).await
    }

    /// Every kept generation, oldest first.
    pub async fn kept_generations(&self) -> Result<Vec<GenerationRow>, StoreError> {
        let rest = format!("WHERE {KEPT} ORDER BY generation");
        self.many(&rest, params![]).await
    }

    /// For each of `generations`, in their order, the digest of the kept one and `None` for one that is not. One
    /// statement judges all of them over target, pins, placements and allocations, so that nothing that commits in
    /// between falls through.
    pub async fn kept_digests(&self, generations: &[Generation]) -> Result<Vec<Option<Digest>>, StoreError> {
        if generations.is_empty() {
            return Ok(Vec::new());
        }
        let sql = format!(
            "SELECT generation, digest FROM deployment_generations WHERE generation IN ({}) AND {KEPT}",
            self.dialect.places(generations.len())
        );
        let values = generations.iter().flat_map(|generation| params![*generation]);
        let rows = self.rows(&sql, values.collect()).await?;
        let mut kept = std::collections::HashMap::new();
        for row in &rows {
            kept.insert(row.get::<Generation>("generation")?, row.get::<Digest>("digest")?);
        }
        Ok(generations.iter().map(|g| kept.get(g).copied()).collect())
    }
}

impl Tx {
    /// Deletes at most 32 generations that are not kept, and names them. Needs the exclusive deployment lock.
    pub async fn collect_generations(&self) -> Result<Vec<Generation>, StoreError> {
        let sql = format!(
            "DELETE FROM deployment_generations WHERE generation IN (SELECT generation FROM deployment_generations \
             WHERE NOT {KEPT} ORDER BY generation LIMIT {}) RETURNING generation",
            limits::COLLECTED_GENERATIONS
        );
        let rows = self.rows(&sql, vec![]).await?;
        rows.iter().map(|row| row.get("generation")).collect()
    }
}
