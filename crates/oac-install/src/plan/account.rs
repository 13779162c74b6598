//! Steps 8, 15 and 16: the service account, its group and its home (installer.md section 4).
//!
//! [`next`] names one change at a time, from what is there now: whoever carries it out looks again and asks again until
//! nothing is left. So a run that was ended between two changes is continued by the same code that made them, and what
//! the record says was written before the change that it is about.

pub use oac_model::account::Entry;
use oac_model::account::{self, Misfit};
use oac_wire::Nullable;

use super::UID;
use crate::{
    hint::Hint,
    records::{Account, Pending},
};

/// What is at the account's home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Home {
    Absent,
    Directory {
        uid: u32,
        gid: u32,
        mode: u32,
        is_empty: bool,
    },
    /// A link, a file, or what cannot be looked at.
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Under the account's name.
    pub entry: Option<Entry>,
    /// Who has the UID.
    pub uid_owner: Option<String>,
    /// A group of the account's name exists.
    pub has_group: bool,
    /// The names of the account's groups beside its primary one.
    pub member_of: Vec<String>,
    /// Where the home must be.
    pub home_path: String,
    pub home: Home,
    pub record: Option<Account>,
}

/// One change of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Record(Account),
    Create,
    /// A directory of the account, 0700.
    MakeHome,
    /// Owner and mode of a directory that is there.
    OwnHome,
    Join(String),
}

const PRIVATE: u32 = 0o700;

/// Step 8. An account that is there is ours or can be adopted.
pub fn check(facts: &Facts) -> Result<(), Hint> {
    let owner = facts.uid_owner.as_deref();
    account::check(facts.entry.as_ref(), owner, facts.has_group, &facts.home_path).map_err(misfit)?;
    let fits = match facts.home {
        Home::Absent => true,
        Home::Directory { uid, is_empty, .. } => uid == UID || (uid == 0 && is_empty),
        Home::Other => false,
    };
    let home = facts.home_path.clone();
    if fits {
        Ok(())
    } else {
        Err(Hint::HomeForeign { home })
    }
}

pub fn misfit(misfit: Misfit) -> Hint {
    match misfit {
        Misfit::UidTaken(name) => Hint::UidTaken { name },
        Misfit::GroupLeft => Hint::GroupLeft,
        Misfit::Differs(what) => Hint::AccountDiffers { what },
    }
}

/// Whether the account that is there, if any is, is the one that the installer made. One with another group was made by
/// somebody since, and counts as adopted.
pub fn is_made(record: &Account, entry: Option<&Entry>) -> bool {
    let is_known = record.pending.0 != Some(Pending::Account);
    record.created && entry.is_none_or(|entry| !is_known || entry.gid == record.gid)
}

fn mode(home: &Home) -> u32 {
    match home {
        Home::Directory { mode, .. } => *mode,
        _ => PRIVATE,
    }
}

/// Steps 15 and 16: the next change towards an account with a private home and the device's group `group`; `None` when
/// all is so. The facts have passed [`check`].
pub fn next(facts: &Facts, group: &str) -> Option<Change> {
    let Some(entry) = &facts.entry else {
        let intent = Account {
            format: 1,
            created: true,
            uid: UID,
            gid: 0,
            groups_added: Vec::new(),
            home_mode: Nullable(None),
            pending: Some(Pending::Account).into(),
        };
        // A recorded account that is gone is none: what is made now is the installer's.
        return Some(match &facts.record {
            Some(record) if *record == intent => Change::Create,
            _ => Change::Record(intent),
        });
    };
    let Some(record) = &facts.record else {
        return Some(Change::Record(Account {
            format: 1,
            created: false,
            uid: UID,
            gid: entry.gid,
            groups_added: Vec::new(),
            home_mode: Some(mode(&facts.home)).into(),
            pending: Nullable(None),
        }));
    };
    if record.pending.0 == Some(Pending::Account) || record.gid != entry.gid {
        let created = is_made(record, Some(entry));
        // Made again by hand, it is in the groups that it was put in by hand.
        let (home_mode, groups_added) = match created == record.created {
            true => (record.home_mode.0, record.groups_added.clone()),
            false => (Some(mode(&facts.home)), Vec::new()),
        };
        return Some(Change::Record(Account {
            created,
            gid: entry.gid,
            groups_added,
            home_mode: home_mode.into(),
            pending: Nullable(None),
            ..record.clone()
        }));
    }
    match facts.home {
        Home::Absent => return Some(Change::MakeHome),
        Home::Directory { uid, gid, mode, .. } if (uid, gid, mode) != (UID, entry.gid, PRIVATE) => {
            return Some(Change::OwnHome);
        }
        _ => {}
    }
    let is_member = facts.member_of.iter().any(|name| name == group);
    let pending = record.pending.0 == Some(Pending::Group);
    match (is_member, pending) {
        (true, false) => None,
        (true, true) => Some(Change::Record(Account {
            pending: Nullable(None),
            ..record.clone()
        })),
        (false, true) if record.groups_added.iter().any(|name| name == group) => {
            Some(Change::Join(group.to_owned()))
        }
        (false, _) => {
            let mut groups_added = record.groups_added.clone();
            if !groups_added.iter().any(|name| name == group) {
                groups_added.push(group.to_owned());
            }
            Some(Change::Record(Account {
                groups_added,
                pending: Some(Pending::Group).into(),
                ..record.clone()
            }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: &str = "/var/lib/oac-node";

    fn nothing() -> Facts {
        Facts {
            entry: None,
            uid_owner: None,
            has_group: false,
            member_of: Vec::new(),
            home_path: HOME.into(),
            home: Home::Absent,
            record: None,
        }
    }

    fn present() -> Facts {
        Facts {
            entry: Some(Entry {
                name: account::NAME.into(),
                uid: UID,
                gid: 998,
                home: HOME.into(),
                shell: "/usr/sbin/nologin".into(),
            }),
            uid_owner: Some(account::NAME.into()),
            has_group: true,
            ..nothing()
        }
    }

    fn directory(uid: u32, mode: u32, is_empty: bool) -> Home {
        Home::Directory {
            uid,
            gid: 998,
            mode,
            is_empty,
        }
    }

    /// What a host does with a change.
    fn apply(facts: &mut Facts, change: &Change) {
        match change {
            Change::Record(record) => facts.record = Some(record.clone()),
            Change::Create => {
                let made = present();
                (facts.entry, facts.uid_owner, facts.has_group) = (made.entry, made.uid_owner, true);
            }
            Change::MakeHome | Change::OwnHome => facts.home = directory(UID, PRIVATE, true),
            Change::Join(group) => facts.member_of.push(group.clone()),
        }
    }

    fn run(facts: &mut Facts) -> Vec<Change> {
        let mut changes = Vec::new();
        while let Some(change) = next(facts, "docker") {
            apply(facts, &change);
            changes.push(change);
            assert!(changes.len() < 20, "{changes:?}");
        }
        changes
    }

    #[test]
    fn a_host_s_account_and_home_are_ours_or_can_be() {
        assert_eq!(check(&nothing()), Ok(()));
        assert_eq!(check(&present()), Ok(()));
        let mut facts = nothing();
        facts.uid_owner = Some("www".into());
        assert_eq!(check(&facts), Err(Hint::UidTaken { name: "www".into() }));
        let mut facts = nothing();
        facts.has_group = true;
        assert_eq!(check(&facts), Err(Hint::GroupLeft));
        let mut facts = present();
        facts.entry.as_mut().unwrap().gid = 0;
        assert!(matches!(check(&facts), Err(Hint::AccountDiffers { .. })));
        for (home, fits) in [
            (directory(UID, 0o755, false), true),
            (directory(0, 0o755, true), true),
            (directory(0, 0o755, false), false),
            (directory(1000, 0o700, true), false),
            (Home::Other, false),
        ] {
            let mut facts = nothing();
            facts.home = home;
            let expected = if fits {
                Ok(())
            } else {
                Err(Hint::HomeForeign { home: HOME.into() })
            };
            assert_eq!(check(&facts), expected);
        }
    }

    #[test]
    fn a_fresh_host_gets_account_home_and_group_each_after_its_record() {
        let mut facts = nothing();
        let changes = run(&mut facts);
        let place = |change: &dyn Fn(&Change) -> bool| changes.iter().position(change).unwrap();
        let pending = |wanted| move |change: &Change| matches!(change, Change::Record(r) if r.pending.0 == Some(wanted));
        assert!(place(&pending(Pending::Account)) < place(&|c| *c == Change::Create));
        assert!(place(&pending(Pending::Group)) < place(&|c| matches!(c, Change::Join(_))));
        let record = facts.record.as_ref().unwrap();
        assert!(record.created && record.pending.0.is_none());
        assert_eq!(
            (record.gid, &record.groups_added),
            (998, &vec!["docker".to_owned()])
        );
        // A rerun has nothing to do.
        assert_eq!(run(&mut facts), []);
    }

    #[test]
    fn wherever_a_run_is_ended_the_next_one_comes_to_the_same_end() {
        for start in [nothing(), present()] {
            let mut whole = start.clone();
            let count = run(&mut whole).len();
            for ended in 0..count {
                let mut facts = start.clone();
                for _ in 0..ended {
                    let change = next(&facts, "docker").unwrap();
                    apply(&mut facts, &change);
                }
                assert_eq!(check(&facts), Ok(()), "after {ended}");
                run(&mut facts);
                assert_eq!(facts, whole, "after {ended}");
                assert_eq!(facts.entry.as_ref().unwrap().uid, UID);
            }
        }
    }

    #[test]
    fn an_adopted_account_keeps_what_it_had_on_record() {
        let mut facts = present();
        facts.home = directory(UID, 0o750, false);
        facts.member_of = vec!["docker".into(), "video".into()];
        let changes = run(&mut facts);
        assert!(
            changes
                .iter()
                .all(|c| !matches!(c, Change::Create | Change::Join(_)))
        );
        let record = facts.record.unwrap();
        assert_eq!((record.created, record.home_mode.0), (false, Some(0o750)));
        // It was a member before: nothing to take back.
        assert!(record.groups_added.is_empty());
    }

    #[test]
    fn an_account_that_was_made_anew_by_hand_is_adopted_as_it_is_then() {
        let mut facts = nothing();
        run(&mut facts);
        facts.entry.as_mut().unwrap().gid = 1234;
        facts.home = Home::Directory {
            uid: UID,
            gid: 1234,
            mode: 0o750,
            is_empty: false,
        };
        assert!(!is_made(facts.record.as_ref().unwrap(), facts.entry.as_ref()));
        let Some(Change::Record(record)) = next(&facts, "docker") else {
            panic!("no record");
        };
        assert_eq!(
            (
                record.created,
                record.gid,
                record.home_mode.0,
                record.groups_added.as_slice()
            ),
            (false, 1234, Some(0o750), [].as_slice())
        );
        assert!(Account::decode(&record.encode()).is_some());
        // One whose group was not known yet when the run was ended is the installer's.
        let pending = Account {
            pending: Some(Pending::Account).into(),
            gid: 0,
            created: true,
            home_mode: Nullable(None),
            ..record
        };
        assert!(is_made(&pending, facts.entry.as_ref()));
    }

    #[test]
    fn an_account_that_was_removed_by_hand_is_made_again() {
        let mut facts = nothing();
        run(&mut facts);
        (facts.entry, facts.uid_owner, facts.has_group) = (None, None, false);
        facts.member_of.clear();
        assert!(run(&mut facts).contains(&Change::Create));
        assert!(facts.record.unwrap().created);
    }
}
