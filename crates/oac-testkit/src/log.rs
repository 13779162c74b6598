//! What a whole process says, for tests of what may not be said.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tracing_subscriber::EnvFilter;

/// The log of the test's process. It is set before anything else would set one, and for all threads: an event that a
/// thread without one met first would be disabled for all.
#[derive(Debug, Clone)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// From now on, what `filter` lets pass, taken as the programs take theirs.
    ///
    /// # Panics
    /// When another test of this process has set a log: such a test has its process to itself.
    pub fn of_process(filter: &str) -> Self {
        let log = Self(Arc::default());
        let writer = log.clone();
        tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(filter))
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .try_init()
            .unwrap_or_else(|_| panic!("this test needs a process of its own: run it alone"));
        log
    }

    /// What was said since it was taken last.
    pub fn take(&self) -> String {
        let said = std::mem::take(&mut *self.bytes());
        String::from_utf8_lossy(&said).into_owned()
    }

    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
