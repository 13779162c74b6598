//! `oac completions` and `oac man`.

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Cli;
use crate::{Failure, output};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oac completions bash > ~/.local/share/bash-completion/completions/oac
  oac completions zsh > ~/.zfunc/_oac
  oac completions fish > ~/.config/fish/completions/oac.fish")]
pub(super) struct Completions {
    /// The shell to complete in
    shell: Shell,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oac man | man -l -
  oac man --dir ~/.local/share/man/man1")]
pub(super) struct Man {
    /// Write a page for every command into this folder
    #[arg(long, value_name = "D")]
    dir: Option<PathBuf>,
}

impl Completions {
    pub(super) fn run(self) {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "oac", &mut script);
        output::line(String::from_utf8_lossy(&script).trim_end());
    }
}

impl Man {
    pub(super) fn run(self) -> Result<(), Failure> {
        let failed = |path: PathBuf| move |source| Failure::File { path, source };
        match self.dir {
            Some(dir) => {
                std::fs::create_dir_all(&dir).map_err(failed(dir.clone()))?;
                clap_mangen::generate_to(Cli::command(), &dir).map_err(failed(dir))
            }
            None => {
                let mut page = Vec::new();
                clap_mangen::Man::new(Cli::command())
                    .render(&mut page)
                    .map_err(failed("the page".into()))?;
                output::line(String::from_utf8_lossy(&page).trim_end());
                Ok(())
            }
        }
    }
}
