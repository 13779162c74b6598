//! Which account may be Core's: the rules by which a node installer adopts one (installer.md section 4). Pure.

use std::fmt;

use super::{HOME, UID};

/// Core's account, as far as setup needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) gid: u32,
}

/// What differs in an account of that name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misfit {
    Unreadable,
    Uid,
    Group,
    Home,
    Shell,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable => f.write_str("its entry is not readable"),
            Self::Uid => write!(f, "its UID is not {UID}"),
            Self::Group => f.write_str("its group is root's"),
            Self::Home => write!(f, "its home is not {HOME}"),
            Self::Shell => f.write_str("it has a login shell"),
        }
    }
}

impl Account {
    /// Of a line as `getent passwd` prints it.
    pub(super) fn read(line: &str) -> Result<Self, Misfit> {
        let [_, _, uid, gid, _, home, shell] = line.split(':').collect::<Vec<_>>()[..] else {
            return Err(Misfit::Unreadable);
        };
        let gid = gid.parse().map_err(|_| Misfit::Unreadable)?;
        if uid != UID.to_string() {
            Err(Misfit::Uid)
        } else if gid == 0 {
            Err(Misfit::Group)
        } else if home != HOME {
            Err(Misfit::Home)
        } else if !shell.ends_with("nologin") {
            Err(Misfit::Shell)
        } else {
            Ok(Self { gid })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_fits_by_number_group_home_and_a_shell_that_admits_nobody() {
        let read = |line: &str| Account::read(line);
        let good = "oac-node:x:65532:998::/var/lib/oac-node:/usr/sbin/nologin";
        assert_eq!(read(good), Ok(Account { gid: 998 }));
        for (line, misfit) in [
            (
                "oac-node:x:65533:998::/var/lib/oac-node:/usr/sbin/nologin",
                Misfit::Uid,
            ),
            (
                "oac-node:x:65532:0::/var/lib/oac-node:/usr/sbin/nologin",
                Misfit::Group,
            ),
            (
                "oac-node:x:65532:998::/home/oac-node:/usr/sbin/nologin",
                Misfit::Home,
            ),
            ("oac-node:x:65532:998::/var/lib/oac-node:/bin/sh", Misfit::Shell),
            (
                "oac-node:x:65532:998:/var/lib/oac-node:/usr/sbin/nologin",
                Misfit::Unreadable,
            ),
            ("", Misfit::Unreadable),
        ] {
            assert_eq!(read(line), Err(misfit), "{line}");
        }
    }
}
