//! Step 9: what a node root that is already here is, by its marks of registration and by what Core says of its identity.

use oac_dial::Origin;
use oac_model::InstallationId;
use serde::{Deserialize, Serialize};

use crate::hint::Hint;

/// Whose identity a node root keeps. The credential stays where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retained {
    pub installation: InstallationId,
    pub core: Origin,
}

/// What is in a node root, and in root's record of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    pub path: String,
    /// Root's record says `registered`.
    pub recorded: bool,
    /// `registered.json` is there.
    pub has_mark: bool,
    pub identity: Option<Retained>,
}

/// What Core, at the address that the identity was made for, says to its credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    /// 401 with Core's own code.
    Unknown,
    /// 200 with the identity's members; whether the target is the node's own generation still.
    Known { is_target: bool },
    /// Anything else, and nothing.
    Silent,
}

/// What the node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Core knows nothing of it. Whether an identity of an attempt that Core refused is to be deleted.
    Unregistered {
        drops_identity: bool,
    },
    Registered,
}

/// Whether Core has to be asked before [`judge`].
pub fn asks(root: &Root) -> bool {
    root.identity.is_some()
}

/// The table. `word` is there where [`asks`] says so.
pub fn judge(
    root: &Root,
    installation: InstallationId,
    core: &Origin,
    word: Option<Word>,
) -> Result<Standing, Hint> {
    let Some(identity) = &root.identity else {
        let marked = root.recorded || root.has_mark;
        return match marked {
            true => Err(Hint::StateMissing {
                root: root.path.clone(),
            }),
            false => Ok(Standing::Unregistered {
                drops_identity: false,
            }),
        };
    };
    let unreachable = Hint::unreachable(&identity.core);
    let is_own = identity.installation == installation && identity.core == *core;
    match (word.unwrap_or(Word::Silent), is_own) {
        (Word::Silent, _) => Err(unreachable),
        (Word::Known { .. }, false) => Err(Hint::BelongsTo {
            origin: identity.core.to_string(),
        }),
        (Word::Known { is_target: true }, true) => Ok(Standing::Registered),
        (Word::Known { is_target: false }, true) => Err(Hint::ConfigurationChanged),
        // A mark of registration outweighs: what was registered is not thrown away for an answer.
        (Word::Unknown, _) if root.has_mark || root.recorded => Err(Hint::NotAccepted),
        (Word::Unknown, _) => Ok(Standing::Unregistered { drops_identity: true }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::tests::installation;

    fn origin(text: &str) -> Origin {
        Origin::parse(text).unwrap()
    }

    fn root(recorded: bool, has_mark: bool, identity: Option<(char, &str)>) -> Root {
        Root {
            path: "/r".into(),
            recorded,
            has_mark,
            identity: identity.map(|(digit, core)| Retained {
                installation: installation(digit),
                core: origin(core),
            }),
        }
    }

    const WORDS: [Word; 4] = [
        Word::Unknown,
        Word::Known { is_target: true },
        Word::Known { is_target: false },
        Word::Silent,
    ];

    fn told(root: &Root, word: Option<Word>) -> Result<Standing, Hint> {
        judge(root, installation('1'), &origin("http://core"), word)
    }

    #[test]
    fn the_table_of_inspection() {
        let fresh = Ok(Standing::Unregistered {
            drops_identity: false,
        });
        let dropped = Ok(Standing::Unregistered { drops_identity: true });
        assert_eq!(told(&root(false, false, None), None), fresh);
        for (recorded, mark) in [(true, false), (false, true), (true, true)] {
            let missing = Err(Hint::StateMissing { root: "/r".into() });
            assert_eq!(told(&root(recorded, mark, None), None), missing);
        }
        let own = root(false, false, Some(('1', "http://core")));
        let marked = root(false, true, Some(('1', "http://core")));
        let silent = Err(Hint::CoreUnreachable {
            origin: "http://core".into(),
        });
        let changed = Err(Hint::ConfigurationChanged);
        for (root, unknown) in [(&own, dropped.clone()), (&marked, Err(Hint::NotAccepted))] {
            assert_eq!(told(root, Some(WORDS[0])), unknown);
            assert_eq!(told(root, Some(WORDS[1])), Ok(Standing::Registered));
            assert_eq!(told(root, Some(WORDS[2])), changed);
            assert_eq!(told(root, Some(WORDS[3])), silent);
            assert_eq!(told(root, None), silent);
        }
        for other in [('1', "http://old"), ('2', "http://core")] {
            let root = root(false, false, Some(other));
            let belongs = Err(Hint::BelongsTo {
                origin: other.1.into(),
            });
            let silent = Err(Hint::CoreUnreachable {
                origin: other.1.into(),
            });
            assert_eq!(told(&root, Some(WORDS[0])), dropped);
            assert_eq!(told(&root, Some(WORDS[1])), belongs);
            assert_eq!(told(&root, Some(WORDS[2])), belongs);
            assert_eq!(told(&root, Some(WORDS[3])), silent);
        }
    }

    #[test]
    fn an_identity_is_dropped_only_after_a_401_and_without_any_mark() {
        for bits in 0..4 {
            let (recorded, mark) = (bits & 1 == 1, bits & 2 == 2);
            for identity in [None, Some(('1', "http://core")), Some(('1', "http://old"))] {
                for word in WORDS {
                    let judged = told(&root(recorded, mark, identity), identity.map(|_| word));
                    if judged == Ok(Standing::Unregistered { drops_identity: true }) {
                        assert!(!recorded && !mark && identity.is_some() && word == Word::Unknown);
                    }
                }
            }
        }
    }
}
