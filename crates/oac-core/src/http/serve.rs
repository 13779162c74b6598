//! Listening and serving connections.
