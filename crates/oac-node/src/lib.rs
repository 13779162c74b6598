//! The node program: makes a Linux host's sandbox backend serve one Core installation (node.md).

pub mod limits;
pub mod measure;
pub mod records;
