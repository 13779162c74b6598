//! The system account that Core's service and every node run as: its name and number, which entry of a host's account
//! data base may be it, and how it is made (installer.md section 4).

use std::fmt;

pub const NAME: &str = "oac-node";
pub const UID: u32 = 65532;
pub const HOME: &str = "/var/lib/oac-node";

/// An entry of the account data base.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub home: String,
    pub shell: String,
}

impl Entry {
    /// Of a line as `getent passwd` prints it.
    pub fn read(line: &str) -> Result<Self, Misfit> {
        let unreadable = || Misfit::Differs("its entry is not readable".to_owned());
        let [name, _, uid, gid, _, home, shell] = line.split(':').collect::<Vec<_>>()[..] else {
            return Err(unreadable());
        };
        Ok(Self {
            name: name.to_owned(),
            uid: uid.parse().map_err(|_| unreadable())?,
            gid: gid.parse().map_err(|_| unreadable())?,
            home: home.to_owned(),
            shell: shell.to_owned(),
        })
    }
}

/// Why the account cannot be had on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Misfit {
    /// By the account of this name.
    UidTaken(String),
    /// The account's group is there without it.
    GroupLeft,
    /// The account is there, and differs in this.
    Differs(String),
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UidTaken(name) => write!(f, "UID {UID} belongs to {name}"),
            Self::GroupLeft => write!(f, "Group {NAME} exists without the account"),
            Self::Differs(what) => write!(f, "Account {NAME} differs ({what})"),
        }
    }
}

/// An account that is there is ours or can be adopted, and one that is not can be made. `entry` is the one under the
/// account's name, `uid_owner` the name of whoever has its UID; `home` is [`HOME`] but for tests.
pub fn check(
    entry: Option<&Entry>,
    uid_owner: Option<&str>,
    has_group: bool,
    home: &str,
) -> Result<(), Misfit> {
    if let Some(name) = uid_owner.filter(|name| *name != NAME) {
        return Err(Misfit::UidTaken(name.to_owned()));
    }
    let Some(entry) = entry else {
        return if has_group { Err(Misfit::GroupLeft) } else { Ok(()) };
    };
    let same = [
        (entry.uid == UID, format!("its UID is {}", entry.uid)),
        (entry.home == home, format!("its home is {}", entry.home)),
        (
            entry.shell.ends_with("nologin"),
            format!("its shell is {}", entry.shell),
        ),
        (entry.gid != 0, "its group is root".to_owned()),
    ];
    match same.into_iter().find(|(holds, _)| !holds) {
        Some((_, what)) => Err(Misfit::Differs(what)),
        None => Ok(()),
    }
}

/// The arguments of `useradd` that make it, with this program as its shell.
pub fn useradd(home: &str, nologin: &str) -> Vec<String> {
    let uid = UID.to_string();
    let words = [
        "--system",
        "--uid",
        &uid,
        "--user-group",
        "--no-create-home",
        "--home-dir",
        home,
        "--shell",
        nologin,
        NAME,
    ];
    words.map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "oac-node:x:65532:998::/var/lib/oac-node:/usr/sbin/nologin";

    #[test]
    fn an_account_is_adopted_only_with_the_uid_home_shell_and_a_group_of_its_own() {
        let of = |line: &str| {
            let entry = Entry::read(line)?;
            check(Some(&entry), Some(NAME), true, HOME)
        };
        assert_eq!(of(GOOD), Ok(()));
        for (from, to, word) in [
            ("65532", "1000", "its UID is 1000"),
            (HOME, "/home/oac-node", "its home is /home/oac-node"),
            ("/usr/sbin/nologin", "/bin/bash", "its shell is /bin/bash"),
            ("/usr/sbin/nologin", "", "its shell is "),
            (":998:", ":0:", "its group is root"),
            (":998:", ":x:", "its entry is not readable"),
            ("65532:", "65532", "its entry is not readable"),
        ] {
            let line = GOOD.replacen(from, to, 1);
            assert_eq!(of(&line), Err(Misfit::Differs(word.to_owned())), "{line}");
        }
    }

    #[test]
    fn a_taken_uid_and_a_left_group_are_refused_and_nothing_at_all_is_fine() {
        assert_eq!(check(None, None, false, HOME), Ok(()));
        let taken = Err(Misfit::UidTaken("www".to_owned()));
        assert_eq!(check(None, Some("www"), false, HOME), taken);
        // A second account of the number, beside a right one.
        let entry = Entry::read(GOOD).unwrap();
        assert_eq!(check(Some(&entry), Some("www"), true, HOME), taken);
        assert_eq!(check(None, None, true, HOME), Err(Misfit::GroupLeft));
    }
}
