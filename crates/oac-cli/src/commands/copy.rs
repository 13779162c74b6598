//! `oac session cp`.

use clap::Args;

use super::Run;
use crate::{
    Failure,
    copy::{self, Place},
    interrupt,
};

#[derive(Debug, Args)]
#[command(after_help = "\
SESSION:PATH is a path in a sandbox, absolute or from /workspace; `-` is standard input or output. A folder is \
copied with everything in it: into DST if DST is a folder, else as DST. `folder/.` stands for what is in the \
folder. Files keep their permission bits. Symbolic links and special files are skipped and named; so are empty \
folders on the way in.

Examples:
  oac session cp notes.txt $S:              a file into /workspace
  oac session cp ./app $S:/workspace        a folder: /workspace/app
  oac session cp $S:out/report.pdf .        a file out of it
  oac session cp $S:out ./results           a folder: ./results, or ./results/out if ./results exists
  pg_dump db | oac session cp - $S:db.sql   standard input as a file
  oac session cp $S:log.txt - | tail        a file on standard output")]
pub(super) struct Copy {
    /// What to copy: PATH, SESSION:PATH or -
    #[arg(value_name = "SRC")]
    from: Place,
    /// Where to: SESSION:PATH, PATH or -
    #[arg(value_name = "DST")]
    to: Place,
}

impl Copy {
    pub(super) async fn run(self, run: &Run) -> Result<(), Failure> {
        tokio::select! {
            done = copy::copy(&run.client, self.from, self.to, run.form) => done,
            // Dropped, a download removes what it has of a file.
            asked = interrupt::asked_to_end() => asked.and(Err(Failure::Stopped)),
        }
    }
}
