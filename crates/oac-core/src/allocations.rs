//! The worker that converges allocations.

use std::sync::Arc;

use crate::Core;

/// Starts this part's workers.
pub fn start(_core: &Arc<Core>) {}
