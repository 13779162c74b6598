//! What others keep in the engine, some of it under names like ours: untouched through a whole life of a generation.

use oac_model::NodeId;
use oac_wire::frames::Arguments;
use rustix::process::Signal;

use crate::{
    docker::docker,
    managed::{Managed, OTHER_COMMIT, ready, stop},
    managing::{asked, info},
};

const KINDS: [&str; 4] = ["container", "volume", "network", "image"];

/// What another one made. Dropped, it is removed.
struct Foreign {
    socket: String,
    /// Of each kind, in the order of making.
    names: [Vec<String>; 4],
}

impl Foreign {
    fn make(socket: &str, installation: &str) -> Self {
        let mut foreign = Self {
            socket: socket.to_owned(),
            names: Default::default(),
        };
        let unique = NodeId::random().to_string();
        let hash = "0123456789abcdef".repeat(4);
        let other = "io.oac.installation=99999999-9999-4999-8999-999999999999";
        let half = format!("io.oac.installation={installation}");
        for tag in [format!("oac-runtime:{unique}"), format!("other:{unique}")] {
            let comment = format!("LABEL made.by={tag}");
            foreign.run(3, &["import", "--change", &comment, "-", &tag], Some(&tag));
        }
        let image = foreign.names[3][0].clone();
        for (name, label) in [
            (format!("oac-runtime-{hash}-{unique}"), other),
            (format!("oac-runtime-{unique}"), half.as_str()),
            (format!("somebody-{unique}"), "mine=1"),
        ] {
            let arguments = ["create", "--name", &name, "--label", label, &image, "/nothing"];
            foreign.run(0, &arguments, Some(&name));
            for volume in [format!("{name}-home"), format!("{name}-environment")] {
                let arguments = ["volume", "create", "--label", label, &volume];
                foreign.run(1, &arguments, Some(&volume));
            }
            let network = format!("oac-node-{name}");
            foreign.run(
                2,
                &["network", "create", "--label", label, &network],
                Some(&network),
            );
        }
        foreign
    }

    fn run(&mut self, kind: usize, arguments: &[&str], name: Option<&str>) {
        docker(&self.socket, arguments);
        self.names[kind].extend(name.map(str::to_owned));
    }

    /// All that the engine says of each.
    fn seen(&self) -> Vec<String> {
        let kinds = KINDS.iter().zip(&self.names);
        kinds
            .flat_map(|(kind, names)| names.iter().map(move |name| (kind, name)))
            .map(|(kind, name)| docker(&self.socket, &[kind, "inspect", name]))
            .collect()
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        for (kind, names) in KINDS.iter().zip(&self.names) {
            for name in names {
                let _ = std::process::Command::new("docker")
                    .args(["-H", &format!("unix://{}", self.socket), kind, "rm", name])
                    .output();
            }
        }
    }
}

// req: P-165
// inv: INV-N19
#[tokio::test]
async fn docker_what_others_keep_in_the_engine_is_as_it_was_after_a_whole_life_of_a_generation() {
    let (mut node, release) = Managed::with_release().await;
    let installation = node.installation.config.installation_id.to_string();
    let foreign = Foreign::make(&node.made().socket, &installation);
    let before = foreign.seen();
    let own = node.images();

    // Prepared and served: a kill asks the engine for all that is an allocation's.
    let child = node.start();
    let mut link = node.welcome(2, Some(1)).await;
    node.until(&mut link, |statuses| ready(statuses, 1) && ready(statuses, 2))
        .await;
    for (n, lane) in [(1, 1), (2, 2)] {
        assert_eq!(asked(&mut link, n, lane, Arguments::Kill).await, None);
        assert_eq!(info(&mut link, n, lane).await, None, "it knows that it is gone");
    }
    assert_eq!(foreign.seen(), before);

    // Repaired: its image is loaded once more.
    release.remove_image();
    node.serve(&mut link, |_| release.is_loaded()).await;
    node.until(&mut link, |statuses| ready(statuses, 2)).await;

    // Both are collected, one after the other: nobody needs them.
    link.deployment = Some(node.deployment(3, Some(2)));
    node.dropped.lock().insert(1);
    node.until_there(&mut link, "1.dropped").await;
    node.until(&mut link, |statuses| ready(statuses, 3)).await;
    link.deployment = Some(node.deployment(3, Some(3)));
    node.dropped.lock().insert(2);
    node.until_there(&mut link, "2.dropped").await;
    assert_eq!(stop(child, Signal::TERM).await.code(), Some(0));
    assert_eq!(foreign.seen(), before);
    assert_eq!(node.images(), own, "its own images too");
    assert!(release.is_loaded());
    let place = node.installation.root.join("releases").join(OTHER_COMMIT);
    assert!(place.exists(), "the third uses it");
}
