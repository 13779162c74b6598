//! Which nodes are online.

use std::sync::Arc;

use crate::Core;

/// Starts this part's workers.
pub fn start(_core: &Arc<Core>) {}
