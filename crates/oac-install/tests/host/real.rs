//! The installer on real hosts: their account data base, their systemd, their engine. Core and the node program are the
//! ones of [`crate::world`].

use oac_release::made::commit;
use oac_testkit::host::{Host, Noise, Ran};
use serde_json::Value;

use crate::world::{Offer, TOKEN};

const RIG: &str = "/usr/local/bin/oac-install-rig";
/// What a host keeps by design when it is given back.
pub(crate) const KEPT: &[Noise] = &[
    Noise {
        begins: "image ",
        why: "images are the host's",
    },
    Noise {
        begins: "file /var/tmp/systemd-private-",
        why: "systemd's own, made anew with its services",
    },
    Noise {
        begins: "file /run/oac-node.lock",
        why: "the empty lock",
    },
];

/// A host with the installer on it, and what Core keeps.
pub(crate) struct Place {
    pub(crate) host: Host,
    folder: tempfile::TempDir,
}

impl Place {
    pub(crate) async fn boot(name: &str) -> Self {
        let host = Host::boot(name).await.unwrap();
        let rig = std::path::Path::new(env!("CARGO_BIN_EXE_oac-install-rig"));
        host.put(rig, RIG, "0755").await.unwrap();
        Self {
            host,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// A Core that the host reaches.
    fn offer(&self, name: &str) -> Offer {
        let folder = self.folder.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        let outside = self.host.outside();
        Offer::made(
            &folder,
            |port| format!("http://{outside}:{port}"),
            Offer::program_elsewhere,
        )
    }

    /// One run of the installer, ended at a point if one is named.
    pub(crate) async fn run(&self, arguments: &[String], before: &str, end_at: &str, token: &str) -> Ran {
        let words: Vec<String> = arguments.iter().map(|word| format!("'{word}'")).collect();
        let (commit, words) = (commit('a'), words.join(" "));
        let script = format!(
            "export HOME=/root; {before} echo '{token}' | {RIG} / /var/run/docker.sock {commit} '{end_at}' -- {words}"
        );
        self.host.run(&script).await.unwrap()
    }

    async fn install(&self, offer: &Offer) -> Ran {
        self.run(&offer.command(), "", "", TOKEN).await
    }

    async fn uninstall(&self, offer: &Offer, more: &[&str]) -> Ran {
        self.run(&offer.uninstall_command(more), "", "", "").await
    }

    /// What it ended with, exit status 1 and this hint alone.
    #[track_caller]
    fn stopped(ran: &Ran, hint: &str) {
        assert_eq!((ran.status, ran.err.trim_end()), (Some(1), hint), "{}", ran.out);
    }

    pub(crate) async fn says(&self, script: &str) -> String {
        self.host.output(script).await.unwrap().trim_end().to_owned()
    }

    /// Makes what microsandbox would have: a store of this installation. Its path.
    async fn store(&self, offer: &Offer) -> &'static str {
        let store = "/var/lib/oac-node/.oac/m/one";
        let owner = format!(r#"{{"installation_id":"{}"}}"#, offer.id);
        let script = format!(
            "sudo -u oac-node sh -c 'umask 077; mkdir -p {store}/images; echo x >{store}/images/one'; \
             echo '{owner}' | install -m 600 -o oac-node -g oac-node /dev/stdin {store}/oac-installation.json"
        );
        self.says(&script).await;
        store
    }

    /// The accounts and what the installer writes outside of the home.
    async fn surface(&self) -> String {
        self.says(
            "cat /etc/passwd /etc/group; ls -la --time-style=full-iso /etc/oac-node /etc/systemd/system 2>&1; ls /var/lib; docker network ls --format '{{.Name}}' | sort",
        )
        .await
    }
}

fn unit(offer: &Offer) -> String {
    format!("oac-node-{}.service", offer.id)
}

// req: G-106, G-107, G-108, G-126, G-225, G-226
// inv: INV-I9, INV-I21
#[tokio::test]
async fn host_an_account_that_fits_is_adopted_and_ends_as_it_was_and_any_other_is_refused() {
    let place = Place::boot("adopted").await;
    let offer = place.offer("core");
    let home = "/var/lib/oac-node";
    let nologin = "/usr/sbin/nologin";
    let made = |uid: u32, home: &str, shell: &str, name: &str| {
        format!(
            "useradd --system --no-create-home --uid {uid} --home-dir {home} --shell {shell} --user-group {name}"
        )
    };
    for (create, name, hint) in [
        (
            made(65532, home, nologin, "other"),
            "other",
            "UID 65532 belongs to other: nodes need it.",
        ),
        (
            made(1234, home, nologin, "oac-node"),
            "oac-node",
            "Account oac-node differs (its UID is 1234): rename or remove it.",
        ),
        (
            made(65532, "/srv/node", nologin, "oac-node"),
            "oac-node",
            "Account oac-node differs (its home is /srv/node): rename or remove it.",
        ),
        (
            made(65532, home, "/bin/bash", "oac-node"),
            "oac-node",
            "Account oac-node differs (its shell is /bin/bash): rename or remove it.",
        ),
    ] {
        place.says(&create).await;
        let before = place.surface().await;
        Place::stopped(&place.install(&offer).await, hint);
        assert_eq!(place.surface().await, before);
        place.says(&format!("userdel {name}")).await;
    }

    // An engine that somebody stopped stays so.
    let before = place.surface().await;
    place.says("systemctl stop docker.socket docker.service").await;
    Place::stopped(
        &place.install(&offer).await,
        "Docker is not running: start it, then retry.",
    );
    let states = "systemctl is-active docker.service docker.socket || true";
    assert_eq!(place.says(states).await, "inactive\ninactive");
    place.says("systemctl start docker.socket docker.service").await;
    place
        .host
        .until("the engine is back", "docker version")
        .await
        .unwrap();
    assert_eq!(place.surface().await, before);

    place.says(&made(65532, home, nologin, "oac-node")).await;
    place
        .says("usermod --append --groups video oac-node; install -d -m 750 -o oac-node -g oac-node /var/lib/oac-node")
        .await;
    let is = "getent passwd oac-node; id -Gn oac-node; stat -c '%a %U:%G' /var/lib/oac-node";
    let before = place.says(is).await;
    let picture = place.host.picture().await.unwrap();
    place.install(&offer).await.ok();
    assert_eq!(place.says("id -Gn oac-node").await, "oac-node video docker");
    assert_eq!(place.says("stat -c %a /var/lib/oac-node").await, "700");
    offer.core.forgets();
    let ran = place.uninstall(&offer, &[]).await.ok();
    assert_eq!(place.says(is).await, before);
    let kept = "the account oac-node, which was here before, with its home /var/lib/oac-node";
    assert!(ran.out.contains(kept), "{ran:#?}");
    let is_home = |what: &str| what.starts_with("file /var/lib/oac-node/");
    let changes = picture.changes(&place.host.picture().await.unwrap(), KEPT);
    assert!(changes.iter().all(|change| is_home(&change.what)), "{changes:#?}");
    assert_eq!(place.says("ls /var/lib/oac-node/.oac/nodes").await, "");
    place.host.end().await.unwrap();
}

// req: G-133, G-135, G-212
// inv: INV-I22
#[tokio::test]
async fn host_a_second_cores_command_is_refused_until_the_first_node_is_given_back() {
    let place = Place::boot("second").await;
    let (first, second) = (place.offer("first"), place.offer("second"));
    let picture = place.host.picture().await.unwrap();
    place.install(&first).await.ok();
    let unit = unit(&first);
    let main = place.host.main_process(&unit).await.unwrap();
    let before = place.host.picture().await.unwrap();
    let hint = format!(
        "This host serves another installation ({}): remove that node and uninstall it first.",
        first.id
    );
    Place::stopped(&place.install(&second).await, &hint);
    // It has nothing here to take back either.
    let nothing = place.uninstall(&second, &["--force"]).await.ok();
    assert!(
        nothing
            .out
            .contains(&format!("Nothing of installation {} is on this host.", second.id)),
        "{nothing:#?}"
    );
    let changes = before.changes(&place.host.picture().await.unwrap(), KEPT);
    assert!(changes.is_empty(), "{changes:#?}");
    assert_eq!(place.host.main_process(&unit).await.unwrap(), main);
    assert_eq!(second.core.asked(), [] as [String; 0]);

    first.core.forgets();
    place.uninstall(&first, &[]).await.ok();
    place.install(&second).await.ok();
    second.core.forgets();
    place.uninstall(&second, &[]).await.ok();

    // A host that prepared everything and never registered, given back without a word of Core's.
    let third = place.offer("third");
    third.core.set(|state| state.token = "another".to_owned());
    let ran = place.run(&third.command(), "", "", "another").await;
    Place::stopped(
        &ran,
        "The enrollment command expired or was already used: generate a new command and run it within an hour.",
    );
    place
        .says(&format!(
            "test -x /var/lib/oac-node/.oac/nodes/{}/bin/oac-node",
            third.id
        ))
        .await;
    third.core.set(|state| state.instead = Some((500, String::new())));
    place.uninstall(&third, &[]).await.ok();
    let changes = picture.changes(&place.host.picture().await.unwrap(), KEPT);
    assert!(changes.is_empty(), "{changes:#?}");
    place.host.end().await.unwrap();
}

// req: G-158, G-230, G-235
// inv: INV-I10
#[tokio::test]
async fn host_runs_that_are_killed_one_after_the_other_are_continued_to_the_end_both_ways() {
    let place = Place::boot("killed").await;
    let offer = place.offer("core");
    let picture = place.host.picture().await.unwrap();
    for point in [
        "15 pending",
        "15 created",
        "16 pending",
        "17",
        "20",
        "21",
        "23 imported",
        "24",
        "25 confirmed",
        "26 recorded",
        "26 unit",
        "26",
    ] {
        // Once Core knows the node the token is used.
        let token = if offer.core.is_enrolled() { "used" } else { TOKEN };
        let ran = place.run(&offer.command(), "", point, token).await;
        assert_eq!(ran.status, Some(137), "{point}: {ran:#?}");
    }
    let ran = place.run(&offer.command(), "", "", "used").await.ok();
    assert!(
        ran.out.contains("This host is a node, connected and ready."),
        "{ran:#?}"
    );
    let (unit, is) = (unit(&offer), "id -Gn oac-node");
    assert_eq!(place.says(is).await, "oac-node docker");
    let state = format!("systemctl is-active {unit}; systemctl is-enabled {unit}");
    assert_eq!(place.says(&state).await, "active\nenabled");
    let record = place.says("cat /etc/oac-node/account.json").await;
    let record: Value = serde_json::from_str(&record).unwrap();
    assert!(
        record["created"] == true && record["pending"].is_null(),
        "{record}"
    );

    // A confirmed removal deletes the store too.
    place.store(&offer).await;
    offer.core.forgets();
    for point in ["u0", "u1 unit", "u1", "u2", "u3", "u4", "u5", "u6 userdel"] {
        let ran = place.run(&offer.uninstall_command(&[]), "", point, "").await;
        assert_eq!(ran.status, Some(137), "{point}: {ran:#?}");
        // The permission that was had once is on record.
        offer.core.set(|state| state.instead = Some((500, String::new())));
    }
    place.uninstall(&offer, &[]).await.ok();
    let changes = picture.changes(&place.host.picture().await.unwrap(), KEPT);
    assert!(changes.is_empty(), "{changes:#?}");
    let gone = format!("systemctl status {unit} 2>&1 | head -n 1");
    assert_eq!(
        place.says(&gone).await,
        format!("Unit {unit} could not be found.")
    );
    place.host.end().await.unwrap();
}

// req: G-095, G-100, G-102, G-103, G-274
// inv: INV-I23
#[tokio::test]
async fn host_the_service_has_the_proxies_of_the_latest_run_from_a_file_of_root_s() {
    let place = Place::boot("settings").await;
    let offer = place.offer("core");
    let (unit, file) = (unit(&offer), format!("/etc/oac-node/{}.env", offer.id));
    let outside = place.host.outside();
    let run = async |proxy: &str| {
        let before = match proxy {
            "" => String::new(),
            proxy => format!("export http_proxy='{proxy}' NO_PROXY='{outside}';"),
        };
        place.run(&offer.command(), &before, "", TOKEN).await.ok();
        place.host.main_process(&unit).await.unwrap()
    };
    let variables = async || {
        let main = place.host.main_process(&unit).await.unwrap();
        let script = format!("tr '\\0' '\\n' </proc/{main}/environ | grep -i _proxy | sort");
        place.says(&format!("{script} || true")).await
    };
    let has = |proxy: &str| {
        format!("HTTP_PROXY={proxy}\nNO_PROXY={outside}\nhttp_proxy={proxy}\nno_proxy={outside}")
    };
    let (one, other) = ("http://us:s%40crt@192.0.2.1:3128", "http://192.0.2.2:3128");
    let first = run(one).await;
    assert_eq!(variables().await, has(one));
    assert_eq!(
        place.says(&format!("stat -c '%a %U:%G' {file}")).await,
        "600 root:root"
    );
    let shown = place
        .says(&format!("systemctl cat {unit}; systemctl show {unit}"))
        .await;
    assert!(
        !shown.contains("192.0.2.1") && !shown.contains("s%40crt"),
        "{shown}"
    );
    let journal = place.says("journalctl --no-pager").await;
    assert!(!journal.contains("s%40crt"));
    assert_eq!(run(one).await, first, "nothing changed, nothing restarts");
    let second = run(other).await;
    assert_ne!(second, first);
    assert_eq!(variables().await, has(other));
    let third = run("").await;
    assert_ne!(third, second);
    assert_eq!(variables().await, "");
    place.says(&format!("! test -e {file}")).await;
    assert_eq!(run("").await, third);

    // Likewise the groups: a process has those that the account had when it was started.
    let video = place.says("getent group video | cut -d: -f3").await;
    let has_video = async || {
        let main = place.host.main_process(&unit).await.unwrap();
        let groups = place.says(&format!("grep ^Groups: /proc/{main}/status")).await;
        groups.split_whitespace().any(|group| group == video)
    };
    place.says("usermod --append --groups video oac-node").await;
    assert!(!has_video().await);
    place.says(&format!("sudo systemctl restart {unit}")).await;
    assert!(has_video().await);
    place.host.end().await.unwrap();
}

// req: G-231, G-232, G-233
// inv: INV-I18
#[tokio::test]
async fn host_without_core_force_gives_the_host_back_but_its_store_which_a_rerun_finishes() {
    let place = Place::boot("forced").await;
    let offer = place.offer("core");
    let picture = place.host.picture().await.unwrap();
    place.install(&offer).await.ok();
    let store = place.store(&offer).await;
    // Core is gone: something else answers there.
    offer.core.set(|state| state.instead = Some((404, String::new())));
    let hint = format!(
        "Core at {} did not confirm the removal. If that address is gone, remove the node on the Nodes page and add --force.",
        offer.core.origin
    );
    Place::stopped(&place.uninstall(&offer, &[]).await, &hint);
    let ran = place.uninstall(&offer, &["--force"]).await.ok();
    let command = format!("sudo -u oac-node rm -rf {store}");
    for said in [
        "microVMs may still use it: check pgrep -u oac-node first, then rerun uninstall",
        &command,
    ] {
        assert!(ran.out.contains(said), "{ran:#?}");
    }
    let left = place
        .says("cat /var/lib/oac-node/.oac/m/one/images/one; id -u oac-node; ls /etc/oac-node")
        .await;
    assert_eq!(left, "x\n65532\naccount.json");
    let gone = format!("systemctl is-active {} || true", unit(&offer));
    assert_eq!(place.says(&gone).await, "inactive");
    // What it said is what there is to do.
    place.says(&command).await;
    place.uninstall(&offer, &[]).await.ok();
    let changes = picture.changes(&place.host.picture().await.unwrap(), KEPT);
    assert!(changes.is_empty(), "{changes:#?}");
    place.host.end().await.unwrap();
}
