//! The dispatcher of Turns and the follower of their output.

use std::sync::Arc;

use crate::Core;

/// Starts this part's workers.
pub fn start(_core: &Arc<Core>) {}
