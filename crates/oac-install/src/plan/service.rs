//! Step 26: the unit, its proxy settings, and what of both makes a restart (installer.md section 5).

use std::collections::BTreeMap;

use oac_model::{InstallationId, ProviderKind};

/// The three settings as a run has them, in lower case; empty ones are left out.
pub type Proxies = BTreeMap<&'static str, String>;

/// What stays of the invoker's environment.
pub const PROXY_NAMES: [&str; 6] = [
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
];

/// The settings that count: of two spellings the lower-case one, even when it is empty.
pub fn proxies(get: impl Fn(&str) -> Option<String>) -> Proxies {
    let counted = ["http_proxy", "https_proxy", "no_proxy"].map(|name| {
        let value = get(name).or_else(|| get(&name.to_ascii_uppercase()));
        (name, value.filter(|value| !value.is_empty()))
    });
    let set = counted
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)));
    set.collect()
}

/// Both spellings of each, for a child and for the service.
pub fn both_spellings(proxies: &Proxies) -> Vec<(String, String)> {
    let both = |(name, value): (&&'static str, &String)| {
        [
            ((*name).to_owned(), value.clone()),
            (name.to_ascii_uppercase(), value.clone()),
        ]
    };
    proxies.iter().flat_map(both).collect()
}

/// `<id>.env`; `None` without a proxy.
pub fn environment(proxies: &Proxies) -> Option<Vec<u8>> {
    let has_proxy = proxies.keys().any(|name| *name != "no_proxy");
    has_proxy.then(|| {
        let lines = both_spellings(proxies).into_iter();
        let text: String = lines
            .map(|(name, value)| format!("{name}=\"{}\"\n", escaped(&value)))
            .collect();
        text.into_bytes()
    })
}

/// The settings of a file that [`environment`] wrote; other lines are passed over.
pub fn read_environment(bytes: &[u8]) -> Proxies {
    let text = String::from_utf8_lossy(bytes);
    let values: BTreeMap<&str, String> = text
        .lines()
        .filter_map(|line| {
            let (name, value) = line.split_once('=')?;
            let value = value.strip_prefix('"')?.strip_suffix('"')?;
            let mut plain = String::new();
            let mut characters = value.chars();
            while let Some(c) = characters.next() {
                plain.push(if c == '\\' { characters.next()? } else { c });
            }
            Some((name, plain))
        })
        .collect();
    proxies(|name| values.get(name).cloned())
}

/// Between double quotes of an environment file.
fn escaped(value: &str) -> String {
    let mut text = String::new();
    for c in value.chars() {
        if matches!(c, '"' | '\\' | '`' | '$') {
            text.push('\\');
        }
        text.push(c);
    }
    text
}

/// What a unit is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    pub installation: InstallationId,
    pub provider: ProviderKind,
    pub node_root: String,
    /// `<id>.env`.
    pub environment: String,
}

/// The unit's name.
pub fn unit_name(installation: InstallationId) -> String {
    format!("oac-node-{installation}.service")
}

/// The installation of a unit's name.
pub fn installation_of(unit: &str) -> Option<InstallationId> {
    unit.strip_prefix("oac-node-")?
        .strip_suffix(".service")?
        .parse()
        .ok()
}

impl Unit {
    pub fn render(&self) -> Vec<u8> {
        let Self { installation, .. } = self;
        let root = specified(&self.node_root);
        let quoted = |path: &str| format!("\"{}{}\"", specified(&self.node_root).replace('"', "\\\""), path);
        let after = match self.provider {
            ProviderKind::Docker => "network-online.target docker.service",
            _ => "network-online.target",
        };
        let environment = specified(&self.environment);
        let (program, config, state) = (
            quoted("/bin/oac-node"),
            quoted("/provider.json"),
            quoted("/state/node"),
        );
        format!(
            "[Unit]\n\
             Description=OAC node {installation}\n\
             Wants=network-online.target\n\
             After={after}\n\
             StartLimitIntervalSec=0\n\
             \n\
             [Service]\n\
             Type=exec\n\
             User=oac-node\n\
             WorkingDirectory={root}\n\
             EnvironmentFile=-{environment}\n\
             ExecStart=:{program} run --config {config} --state-dir {state}\n\
             Restart=always\n\
             RestartSec=5s\n\
             RestartPreventExitStatus=78\n\
             KillMode=process\n\
             OOMPolicy=continue\n\
             TasksMax=infinity\n\
             LimitNOFILE=1048576\n\
             NoNewPrivileges=yes\n\
             UMask=0077\n\
             \n\
             [Install]\n\
             WantedBy=multi-user.target\n"
        )
        .into_bytes()
    }
}

/// Specifiers and escapes taken from a path.
fn specified(path: &str) -> String {
    path.replace('\\', "\\\\").replace('%', "%%")
}

/// What is there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Present {
    pub unit: Option<Vec<u8>>,
    pub environment: Option<Vec<u8>>,
    pub is_enabled: bool,
    pub is_active: bool,
}

/// What becomes of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum File {
    Stays,
    Write(Vec<u8>),
    Remove,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    Nothing,
    /// `enable --now`.
    Enable,
    Restart,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub environment: File,
    pub unit: File,
    pub start: Start,
}

/// The way from what is there to what is wanted. What is equal is not touched.
pub fn plan(present: &Present, unit: Vec<u8>, environment: Option<Vec<u8>>) -> Plan {
    let file = |present: &Option<Vec<u8>>, wanted: Option<Vec<u8>>| match (present, wanted) {
        (present, wanted) if *present == wanted => File::Stays,
        (_, Some(bytes)) => File::Write(bytes),
        (_, None) => File::Remove,
    };
    let environment = file(&present.environment, environment);
    let unit = file(&present.unit, Some(unit));
    let changed = environment != File::Stays || unit != File::Stays;
    let start = match (present.is_enabled && present.is_active, changed) {
        (false, _) if present.is_active && changed => Start::Restart,
        (false, _) => Start::Enable,
        (true, true) => Start::Restart,
        (true, false) => Start::Nothing,
    };
    Plan {
        environment,
        unit,
        start,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::tests::installation;

    fn unit(root: &str) -> String {
        let unit = Unit {
            installation: installation('1'),
            provider: ProviderKind::Docker,
            node_root: root.into(),
            environment: "/etc/oac-node/1.env".into(),
        };
        String::from_utf8(unit.render()).unwrap()
    }

    fn set(variables: &[(&str, &str)]) -> Proxies {
        proxies(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_unit_runs_the_node_as_its_account_and_restarts_it_unless_core_refused_it() {
        let text = unit("/r");
        for line in [
            "User=oac-node",
            "After=network-online.target docker.service",
            "EnvironmentFile=-/etc/oac-node/1.env",
            r#"ExecStart=:"/r/bin/oac-node" run --config "/r/provider.json" --state-dir "/r/state/node""#,
            "Restart=always",
            "RestartSec=5s",
            "RestartPreventExitStatus=78",
            "KillMode=process",
            "NoNewPrivileges=yes",
            "WantedBy=multi-user.target",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        let odd = unit("/r%i\\\"x");
        assert!(odd.contains(r#"ExecStart=:"/r%%i\\\"x/bin/oac-node""#), "{odd}");
        let id = installation('1');
        assert_eq!(installation_of(&unit_name(id)), Some(id));
        assert_eq!(installation_of("oac-node-x.service"), None);
    }

    // req: G-091
    #[test]
    fn the_lower_case_setting_counts_even_when_it_is_empty() {
        let upper = set(&[("HTTPS_PROXY", "http://u"), ("NO_PROXY", "a")]);
        assert_eq!(
            upper,
            Proxies::from([("https_proxy", "http://u".into()), ("no_proxy", "a".into())])
        );
        let lower = set(&[("https_proxy", "http://l"), ("HTTPS_PROXY", "http://u")]);
        assert_eq!(lower, Proxies::from([("https_proxy", "http://l".into())]));
        assert_eq!(
            set(&[("https_proxy", ""), ("HTTPS_PROXY", "http://u")]),
            Proxies::new()
        );
        assert_eq!(
            set(&[("all_proxy", "http://a"), ("ALL_PROXY", "http://a")]),
            Proxies::new()
        );
    }

    #[test]
    fn the_proxy_file_holds_both_spellings_and_reads_back() {
        let proxies = set(&[("http_proxy", r#"http://a:p"$`\@h"#), ("no_proxy", "x")]);
        let bytes = environment(&proxies).unwrap();
        let text = String::from_utf8(bytes.clone()).unwrap();
        for name in ["http_proxy=", "HTTP_PROXY=", "no_proxy=", "NO_PROXY="] {
            assert_eq!(
                text.lines().filter(|line| line.starts_with(name)).count(),
                1,
                "{text}"
            );
        }
        assert_eq!(read_environment(&bytes), proxies);
        // Exclusions alone are no proxy.
        assert_eq!(environment(&set(&[("no_proxy", "x")])), None);
        assert_eq!(environment(&Proxies::new()), None);
    }

    #[test]
    fn no_proxy_value_is_in_the_unit() {
        // The unit is a function of nothing that holds one; its one mention is the optional file.
        assert!(!unit("/r").contains("proxy"));
    }

    #[test]
    fn only_a_change_restarts_and_only_what_does_not_run_is_started() {
        let whole = Present {
            unit: Some(b"u".to_vec()),
            environment: Some(b"e".to_vec()),
            is_enabled: true,
            is_active: true,
        };
        let of = |present: &Present, environment: Option<&str>| {
            plan(
                present,
                b"u".to_vec(),
                environment.map(|text| text.as_bytes().to_vec()),
            )
        };
        let stays = of(&whole, Some("e"));
        assert_eq!(
            (stays.unit, stays.environment, stays.start),
            (File::Stays, File::Stays, Start::Nothing)
        );
        assert_eq!(of(&whole, None).environment, File::Remove);
        assert_eq!(of(&whole, None).start, Start::Restart);
        assert_eq!(of(&whole, Some("f")).environment, File::Write(b"f".to_vec()));
        let other = Present {
            unit: Some(b"v".to_vec()),
            ..whole.clone()
        };
        assert_eq!(of(&other, Some("e")).start, Start::Restart);
        let fresh = of(&Present::default(), None);
        assert_eq!((fresh.environment, fresh.start), (File::Stays, Start::Enable));
        let stopped = Present {
            is_active: false,
            ..whole.clone()
        };
        assert_eq!(of(&stopped, Some("f")).start, Start::Enable);
        let disabled = Present {
            is_enabled: false,
            ..whole
        };
        assert_eq!(of(&disabled, Some("e")).start, Start::Enable);
    }
}
