//! The steps of the tables, numbered along with those of the disk: so a test that stops at every step also stops after
//! every answer from outside, before anything is made of it.

use std::fmt;

use rustix::io::Errno;

/// `step` is about to be performed; where the feature `steps` is off, nothing.
pub(crate) fn numbered(step: &impl fmt::Debug) -> Result<(), Errno> {
    #[cfg(feature = "steps")]
    oac_records::steps::announce(oac_records::steps::Step::Outside {
        what: format!("{step:?}"),
    })?;
    let _ = step;
    Ok(())
}
