//! Whether an uninstall may delete, and as what (installer.md section 11).

use oac_model::InstallationId;

use super::inspection::Word;
use crate::{
    hint::Hint,
    records::{Node, Read, Removal},
};

/// What of an installation is on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub record: Read<Node>,
    pub has_unit: bool,
    /// A node root that holds more than kept checkpoints.
    pub has_root: bool,
    /// A node root that holds kept checkpoints alone.
    pub has_checkpoints: bool,
    pub has_account_record: bool,
    /// The host has another installation on record, whose the account is.
    pub serves_another: bool,
    /// The account record's path where it does not decode.
    pub damaged_account_record: Option<String>,
    /// [`super::account::check`]'s verdict; an account that is gone is no fault.
    pub account: Result<(), Hint>,
}

/// What follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing is here.
    Nothing,
    /// Of this installation nothing is left: the account's part alone.
    Account,
    /// Deletion, as recorded or as permitted now.
    Go(Removal),
    /// The node root has to be looked at, and perhaps Core asked; then [`confirm`].
    Inspect { registered: bool },
}

pub fn decide(found: &Found, installation: InstallationId, force: bool) -> Result<Verdict, Hint> {
    let no_record = Hint::NoRecord { installation };
    let is_bare = found.record == Read::Absent && !found.has_unit && !found.has_root;
    if is_bare && (found.serves_another || !found.has_account_record && !found.has_checkpoints) {
        return Ok(Verdict::Nothing);
    }
    found.account.clone()?;
    // Whose the account is, is known from there alone; by force it counts as adopted.
    if let Some(file) = found.damaged_account_record.clone().filter(|_| !force) {
        return Err(Hint::RecordDamaged { file });
    }
    if is_bare {
        return Ok(Verdict::Account);
    }
    match (&found.record, force) {
        (Read::Absent | Read::Damaged, false) => Err(no_record),
        (Read::Absent | Read::Damaged, true) => Ok(Verdict::Go(Removal::Forced)),
        (Read::Is(record), force) => match record.removal.0 {
            Some(removal) => Ok(Verdict::Go(removal)),
            None if force && record.registered => Ok(Verdict::Go(Removal::Forced)),
            None => Ok(Verdict::Inspect {
                registered: record.registered,
            }),
        },
    }
}

/// Of a node root that was looked at. `core` is the address of its identity; `word` what Core there says, `None` where
/// it was not asked.
pub fn confirm(
    registered: bool,
    core: Option<&str>,
    word: Option<Word>,
    force: bool,
) -> Result<Removal, Hint> {
    match (core, word) {
        (None, _) if registered && force => Ok(Removal::Forced),
        (None, _) if registered => Err(Hint::IdentityMissing),
        (None, _) => Ok(Removal::Confirmed),
        (Some(_), _) if force => Ok(Removal::Forced),
        (Some(_), Some(Word::Unknown)) => Ok(Removal::Confirmed),
        (Some(_), Some(Word::Known { .. })) => Err(Hint::StillListed),
        (Some(origin), Some(Word::Silent) | None) => Err(Hint::RemovalUnconfirmed {
            origin: origin.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::tests::{installation, node};

    fn nothing() -> Found {
        Found {
            record: Read::Absent,
            has_unit: false,
            has_root: false,
            has_checkpoints: false,
            has_account_record: false,
            serves_another: false,
            damaged_account_record: None,
            account: Ok(()),
        }
    }

    fn recorded(registered: bool, removal: Option<Removal>) -> Read<Node> {
        let mut record = node(installation('1'));
        (record.registered, record.removal) = (registered, removal.into());
        Read::Is(record)
    }

    fn of(found: &Found, force: bool) -> Result<Verdict, Hint> {
        decide(found, installation('1'), force)
    }

    #[test]
    fn the_table_of_removal() {
        let id = installation('1');
        let no_record = Err(Hint::NoRecord { installation: id });
        let forced = Ok(Verdict::Go(Removal::Forced));
        for force in [false, true] {
            assert_eq!(of(&nothing(), force), Ok(Verdict::Nothing));
            let account = Found {
                has_account_record: true,
                ..nothing()
            };
            assert_eq!(of(&account, force), Ok(Verdict::Account));
            let another_s = Found {
                serves_another: true,
                ..account.clone()
            };
            assert_eq!(of(&another_s, force), Ok(Verdict::Nothing));
            let kept = Found {
                has_checkpoints: true,
                ..account.clone()
            };
            assert_eq!(of(&kept, force), Ok(Verdict::Account));
            let differs = Err(Hint::UidTaken { name: "www".into() });
            for record in [Read::Absent, recorded(true, Some(Removal::Confirmed))] {
                let other = Found {
                    record,
                    account: differs.clone().map(|_: Verdict| ()),
                    ..account.clone()
                };
                assert_eq!(of(&other, force), differs);
            }
            for removal in [Removal::Confirmed, Removal::Forced] {
                let begun = Found {
                    record: recorded(true, Some(removal)),
                    ..account.clone()
                };
                assert_eq!(of(&begun, force), Ok(Verdict::Go(removal)));
            }
        }
        for found in [
            Found {
                has_unit: true,
                ..nothing()
            },
            Found {
                has_root: true,
                ..nothing()
            },
            Found {
                record: Read::Damaged,
                ..nothing()
            },
        ] {
            assert_eq!(of(&found, false), no_record);
            assert_eq!(of(&found, true), forced);
        }
        let damaged = Found {
            record: recorded(true, Some(Removal::Confirmed)),
            has_account_record: true,
            damaged_account_record: Some("/account.json".into()),
            ..nothing()
        };
        let file = "/account.json".into();
        assert_eq!(of(&damaged, false), Err(Hint::RecordDamaged { file }));
        assert_eq!(of(&damaged, true), Ok(Verdict::Go(Removal::Confirmed)));
        let registered = Found {
            record: recorded(true, None),
            ..nothing()
        };
        assert_eq!(of(&registered, false), Ok(Verdict::Inspect { registered: true }));
        assert_eq!(of(&registered, true), forced);
        let fresh = Found {
            record: recorded(false, None),
            ..nothing()
        };
        for force in [false, true] {
            assert_eq!(of(&fresh, force), Ok(Verdict::Inspect { registered: false }));
        }
    }

    // req: G-214
    #[test]
    fn only_core_s_own_401_no_registration_or_force_permits_a_deletion() {
        let core = Some("http://core");
        let unconfirmed = Err(Hint::RemovalUnconfirmed {
            origin: "http://core".into(),
        });
        for registered in [false, true] {
            assert_eq!(
                confirm(registered, core, Some(Word::Unknown), false),
                Ok(Removal::Confirmed)
            );
            for is_target in [false, true] {
                let word = Some(Word::Known { is_target });
                assert_eq!(confirm(registered, core, word, false), Err(Hint::StillListed));
            }
            assert_eq!(confirm(registered, core, Some(Word::Silent), false), unconfirmed);
            assert_eq!(confirm(registered, core, None, false), unconfirmed);
            assert_eq!(confirm(registered, core, None, true), Ok(Removal::Forced));
        }
        assert_eq!(confirm(true, None, None, false), Err(Hint::IdentityMissing));
        assert_eq!(confirm(true, None, None, true), Ok(Removal::Forced));
        assert_eq!(confirm(false, None, None, false), Ok(Removal::Confirmed));
        assert_eq!(confirm(false, None, None, true), Ok(Removal::Confirmed));
    }
}
