//! The arguments and the bootstrap file: all the configuration there is.
//!
//! Errors name a member, never a value: the file holds the credential (INV-S12).

use std::{
    ffi::OsString,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use oac_model::OperationId;
use oac_wire::shapes::Link;

use crate::{dial::Target, limits};

/// Arguments that are not exactly `--bootstrap-file <absolute path>`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ArgumentError {
    #[error("this program takes exactly: --bootstrap-file <absolute path>, or: wake --suspend-id <id>")]
    Usage,
    #[error(
        "the command {0} is not in this Runtime: it belongs to microsandbox; use a newer Runtime release"
    )]
    NotBuilt(&'static str),
}

/// What the program is to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Be the runtime of this sandbox, with this bootstrap file.
    Run(PathBuf),
    /// Wake the runtime of this sandbox, which this suspension parked.
    Wake(OperationId),
}

pub(crate) fn arguments(arguments: impl Iterator<Item = OsString>) -> Result<Command, ArgumentError> {
    let arguments: Vec<OsString> = arguments.collect();
    for name in ["init", "quiesce"] {
        if arguments.first().is_some_and(|first| first == name) {
            return Err(ArgumentError::NotBuilt(name));
        }
    }
    match arguments.as_slice() {
        [flag, path] if flag == "--bootstrap-file" && Path::new(path).is_absolute() => {
            Ok(Command::Run(path.into()))
        }
        [wake, flag, id] if wake == "wake" && flag == "--suspend-id" => id
            .to_str()
            .and_then(|id| id.parse().ok())
            .map(Command::Wake)
            .ok_or(ArgumentError::Usage),
        _ => Err(ArgumentError::Usage),
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum BootstrapError {
    #[error("the bootstrap file cannot be read: {0}")]
    Unreadable(String),
    #[error("the bootstrap file is larger than 16 KiB")]
    TooLarge,
    #[error("bootstrap file: {0}")]
    Malformed(#[from] oac_wire::strict::StrictError),
    #[error("bootstrap file: {0}")]
    Member(&'static str),
}

/// What the file says, checked.
pub(crate) struct Bootstrap {
    pub link: Link,
    pub target: Target,
}

pub(crate) fn read(path: &Path) -> Result<Bootstrap, BootstrapError> {
    let unreadable = |error: std::io::Error| BootstrapError::Unreadable(crate::turns::why(&error));
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(limits::BOOTSTRAP_BYTES + 1).read_to_end(&mut bytes))
        .map_err(unreadable)?;
    decode(&bytes)
}

fn decode(bytes: &[u8]) -> Result<Bootstrap, BootstrapError> {
    if bytes.len() as u64 > limits::BOOTSTRAP_BYTES {
        return Err(BootstrapError::TooLarge);
    }
    let link: Link = oac_wire::strict::from_slice(bytes)?;
    if link.version != 1 {
        return Err(BootstrapError::Member("version must be 1"));
    }
    let credential = link.credential.expose();
    if credential.len() != 64 || !credential.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return Err(BootstrapError::Member(
            "credential must be 64 lowercase hex characters",
        ));
    }
    let target = Target::parse(&link.link_url).ok_or(BootstrapError::Member(
        "link_url must be ws or wss, a host, and /api/v1/sandbox-link, without user, query or fragment",
    ))?;
    Ok(Bootstrap { link, target })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "11111111-1111-4111-8111-111111111111";

    fn good() -> String {
        format!(
            r#"{{"version":1,"link_url":"wss://core.example/api/v1/sandbox-link","credential":"{}","resource":{{"tenant_id":"{ID}","environment_id":"{ID}","kind":"allocation","id":"{ID}","generation":1}}}}"#,
            "5ec2e7".repeat(10) + "5ec2"
        )
    }

    fn refused(text: &str) -> String {
        match decode(text.as_bytes()) {
            Ok(_) => panic!("accepted {text}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn exactly_two_argument_forms_are_taken() {
        let parse = |words: &[&str]| arguments(words.iter().map(OsString::from));
        assert_eq!(
            parse(&["--bootstrap-file", "/a/b"]),
            Ok(Command::Run(PathBuf::from("/a/b")))
        );
        assert_eq!(
            parse(&["wake", "--suspend-id", ID]),
            Ok(Command::Wake(ID.parse().unwrap()))
        );
        for bad in [
            &[][..],
            &["--bootstrap-file"],
            &["--bootstrap-file", "relative"],
            &["--bootstrap-file=/a/b"],
            &["--bootstrap-file", "/a/b", "more"],
            &["/a/b"],
            &["wake"],
            &["wake", "--suspend-id"],
            &["wake", "--suspend-id", "x"],
            &["wake", "--suspend-id", ID, "more"],
            &["wake", "--bootstrap-file", "/a/b"],
        ] {
            assert_eq!(parse(bad), Err(ArgumentError::Usage), "{bad:?}");
        }
        for later in ["init", "quiesce"] {
            assert!(matches!(parse(&[later]), Err(ArgumentError::NotBuilt(_))));
        }
    }

    // inv: INV-S12
    #[test]
    fn a_bad_bootstrap_names_a_member_and_no_value() {
        assert!(decode(good().as_bytes()).is_ok());
        let secret = "5ec2e7";
        for (text, member) in [
            (
                good().replace(r#""version":1"#, r#""version":"5ec2e7""#),
                "version",
            ),
            (good().replace(r#""version":1"#, r#""version":2"#), "version"),
            (good().replace("5ec2e75ec2", "5EC2E7"), "credential"),
            (
                good().replace(r#""credential":""#, r#""credential":"5ec2e7"#),
                "credential",
            ),
            (good().replace("wss://", "https://5ec2e7"), "link_url"),
            (good().replace("allocation", "5ec2e7"), "resource.kind"),
            (
                good().replace(r#""generation":1"#, r#""generation":0"#),
                "resource.generation",
            ),
            (
                good().replace(r#""generation":1"#, r#""generation":null"#),
                "resource.generation",
            ),
            (good().replacen(ID, "5ec2e7", 1), "resource.tenant_id"),
            (good().replacen('{', r#"{"extra":"5ec2e7","#, 1), "extra"),
            (good().replacen('{', r#"{"version":1,"#, 1), "version"),
            (good().replace(r#""version":1,"#, ""), "version"),
            (good() + "5ec2e7", "document"),
            ("[".to_owned() + &good(), "document"),
        ] {
            let said = refused(&text);
            assert!(!said.to_lowercase().contains(secret), "{said}");
            assert!(said.contains(member), "{said} should name {member}");
        }
        let long = good().replace("core.example", &"a".repeat(16 * 1024));
        assert!(refused(&long).contains("16 KiB"));
    }

    // inv: INV-S12
    #[test]
    fn a_read_bootstrap_shows_no_credential() {
        let Ok(bootstrap) = decode(good().as_bytes()) else {
            panic!("good is good")
        };
        let shown = format!("{:?} {:?}", bootstrap.link, bootstrap.target);
        assert!(!shown.contains("5ec2e7"), "{shown}");
    }
}
