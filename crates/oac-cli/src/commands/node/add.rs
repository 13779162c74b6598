//! `oac node add`.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    Failure,
    client::{
        Document,
        nodes::{Capacity, Enrollment, Node},
    },
    commands::Run,
    output::{self, Form, status::StatusLine},
};

/// How often the node is looked for.
const LOOK: Duration = Duration::from_secs(2);
/// How long a token lives (core.md section 9). Counted from Core's answer, it is over here only when it is over there.
const LIVES: Duration = Duration::from_secs(3600);
/// A node that is not ready this long after it registered needs attention (console.md section 5).
const GRACE: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
#[command(after_help = "\
The command goes to standard output, everything else to standard error. It registers one node, once, within an hour, and \
holds a token: show it to nobody else. Ended early, this command leaves it valid.

Examples:
  oac node add                                the limits that Core recommends for the host
  oac node add --active 4                     sandboxes at once
  oac node add --active 4 --retained 16       with a backend that suspends: running and suspended ones together
  oac node add --no-wait > command.txt        only the command")]
pub(in super::super) struct Add {
    /// The limits that Core recommends once the host has been measured; so it is without any limits
    #[arg(long, conflicts_with_all = ["active", "retained"])]
    recommended: bool,
    /// Sandboxes at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    active: Option<u64>,
    /// Running and suspended sandboxes together [default: as --active]
    #[arg(long, value_name = "M", requires = "active", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    retained: Option<u64>,
    /// Do not follow the node
    #[arg(long)]
    no_wait: bool,
}

impl Add {
    pub(super) async fn run(self, run: &Run) -> Result<(), Failure> {
        let limits = self.active.map(|max_active| Capacity {
            max_active,
            max_retained: self.retained.unwrap_or(max_active),
        });
        let enrollment = run.client.enrollment_token(limits).await?;
        let begun = Instant::now();
        let Enrollment {
            enrollment_id,
            expires_at,
            command,
        } = enrollment.value;
        let Some(command) = command else {
            run.client.revoke_enrollment_token(enrollment_id).await?;
            return Err(Failure::Unfinished(missing(run).await?));
        };
        match run.form {
            Form::Json => output::json(&json!({
                "type": "command",
                "command": command.expose(),
                "enrollment_id": enrollment_id,
                "expires_at": expires_at,
            })),
            Form::Text => {
                output::note(
                    "Run this command on the host. It registers one node, once, and only if it runs within an hour.",
                );
                output::line(command.expose());
            }
        }
        if self.no_wait {
            return Ok(());
        }
        let status = StatusLine::new(run.form == Form::Text);
        let mut following = Following::new(begun + LIVES);
        loop {
            let now = Instant::now();
            match run.client.enrolled_node(enrollment_id).await {
                Ok(node) => {
                    for news in following.look(node.as_ref().map(|node| &node.value), now) {
                        status.clear();
                        if tell(run, &news, node.as_ref()).await? == Told::Last {
                            return Ok(());
                        }
                    }
                    status.show(following.waits_for());
                }
                Err(failure) if failure.is_passing() => {
                    status.show("waiting: Core does not answer; the node is not affected, trying again");
                }
                Err(failure) => return Err(failure),
            }
            sleep(LOOK).await;
        }
    }
}

/// Which file Core lacks, in the words that the console has for it.
async fn missing(run: &Run) -> Result<String, Failure> {
    if !run.client.serves_installer().await? {
        return Ok("This console serves no node installer: publish a release that holds it.".to_owned());
    }
    let deployment = run.client.deployment().await?.value;
    let provider = deployment.provider.unwrap_or_default();
    Ok(format!(
        "This console has no node files for {provider}: publish a release that holds them."
    ))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Registered,
    Connected,
    Ready,
}

/// What a look at the list brought.
#[derive(Debug, PartialEq, Eq)]
enum News {
    Reached(Stage),
    /// With the node's diagnostic, if it has one.
    Attention(Option<String>),
    Expired,
    /// It was registered, and somebody removed it.
    Removed,
}

/// From a command to a node that is ready. It never goes back: a node that is away again is told as a problem.
struct Following {
    expires: Instant,
    registered: Option<Instant>,
    reached: Option<Stage>,
    /// The problem that was told last.
    told: Option<Option<String>>,
}

impl Following {
    fn new(expires: Instant) -> Self {
        Self {
            expires,
            registered: None,
            reached: None,
            told: None,
        }
    }

    /// What is new in a list whose reading began at `now`.
    fn look(&mut self, node: Option<&Node>, now: Instant) -> Vec<News> {
        let Some(node) = node else {
            return match self.registered {
                Some(_) => vec![News::Removed],
                // Read after the end, so no registration can have slipped in between.
                None if now >= self.expires => vec![News::Expired],
                None => Vec::new(),
            };
        };
        let registered = *self.registered.get_or_insert(now);
        let stage = match (node.online, node.provider_ready) {
            (true, true) => Stage::Ready,
            (true, false) => Stage::Connected,
            (false, _) => Stage::Registered,
        };
        let before = self.reached;
        let mut news: Vec<News> = [Stage::Registered, Stage::Connected, Stage::Ready]
            .into_iter()
            .filter(|one| Some(*one) > before && *one <= stage)
            .map(News::Reached)
            .collect();
        self.reached = before.max(Some(stage));
        if self.reached == Some(Stage::Ready) {
            return news;
        }
        let diagnostic = node
            .diagnostic
            .clone()
            .or_else(|| node.rollout.diagnostic.clone());
        let late = now.duration_since(registered) >= GRACE;
        if (diagnostic.is_some() || late) && self.told.as_ref() != Some(&diagnostic) {
            news.push(News::Attention(diagnostic.clone()));
            self.told = Some(diagnostic);
        }
        news
    }

    fn waits_for(&self) -> &'static str {
        match self.reached {
            None => "waiting: the command has not registered a node yet",
            Some(Stage::Registered) => "waiting: the node has not connected yet",
            Some(Stage::Connected | Stage::Ready) => "waiting: the node is not ready yet",
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Told {
    More,
    Last,
}

async fn tell(run: &Run, news: &News, node: Option<&Document<Node>>) -> Result<Told, Failure> {
    let shown = node.map(|node| node.json.clone()).unwrap_or_default();
    let name = node
        .map(|node| output::cell(&node.value.name))
        .unwrap_or_default();
    match news {
        News::Reached(stage) => {
            let (kind, text) = match stage {
                Stage::Registered => {
                    let id = node.map(|node| node.value.id.to_string()).unwrap_or_default();
                    ("registered", format!("Registered: {name} ({id})"))
                }
                Stage::Connected => ("connected", "Connected".to_owned()),
                Stage::Ready => ("ready", format!("{name} is ready.")),
            };
            match run.form {
                Form::Json => output::json(&json!({ "type": kind, "node": shown })),
                Form::Text => output::note(&text),
            }
            Ok(if *stage == Stage::Ready {
                Told::Last
            } else {
                Told::More
            })
        }
        News::Attention(diagnostic) => {
            let deployment = run.client.deployment().await?.json;
            let id = output::member(&deployment, "installation_id");
            let logs = format!("sudo journalctl -u oac-node-{id}.service");
            match run.form {
                Form::Json => output::json(
                    &json!({ "type": "attention", "diagnostic": diagnostic, "logs": logs, "node": shown }),
                ),
                Form::Text => {
                    output::note(&format!(
                        "The node needs attention: {}",
                        meaning(diagnostic.as_deref())
                    ));
                    output::note(&format!("Logs: {logs}"));
                }
            }
            Ok(Told::More)
        }
        News::Expired => Err(Failure::Unfinished(
            "the command expired and registered no node: run `oac node add` again".to_owned(),
        )),
        News::Removed => Err(Failure::Unfinished("the node was removed meanwhile".to_owned())),
    }
}

/// What a code means and what to do on the host: the table of the guide's nodes page.
fn meaning(diagnostic: Option<&str>) -> String {
    let text = match diagnostic {
        None => "it is not ready yet",
        Some("provider_unavailable") => "sandbox provider unavailable; rerun the command on the host",
        Some("host_unsupported") => "host unsupported; rerun the command on the host",
        Some("capacity_insufficient") => "host too small; use a larger host, or change the sandbox size",
        Some("runtime_image_unavailable") => "Runtime image missing; rerun the command on the host",
        Some("artifacts_unavailable") => "provider files missing; rerun the command on the host",
        Some("runtime_download_failed") => "Runtime download failed; the node tries again",
        Some(other) => return output::cell(other),
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(online: bool, ready: bool, diagnostic: Option<&str>, rollout: Option<&str>) -> Node {
        serde_json::from_value(json!({
            "id": "11111111-1111-4111-8111-111111111111", "name": "rack", "provider": "docker", "online": online,
            "provider_ready": ready, "diagnostic": diagnostic, "rollout": { "diagnostic": rollout }, "active": 0,
            "retained": 0, "max_active": 1, "max_retained": 1, "recommended": null, "labels": {}, "cordoned": false,
            "drain": null, "last_seen_at": null,
        }))
        .unwrap()
    }

    fn following() -> (Following, Instant) {
        let begun = Instant::now();
        (Following::new(begun + LIVES), begun)
    }

    #[test]
    fn a_node_is_followed_from_registered_to_ready_and_never_back() {
        use Stage::{Connected, Ready, Registered};
        let (mut following, now) = following();
        assert_eq!(following.look(None, now), []);
        let registered = node(false, false, None, None);
        assert_eq!(
            following.look(Some(&registered), now),
            [News::Reached(Registered)]
        );
        assert_eq!(following.look(Some(&registered), now), []);
        let connected = node(true, false, None, None);
        assert_eq!(following.look(Some(&connected), now), [News::Reached(Connected)]);
        assert_eq!(following.look(Some(&registered), now), [], "away again");
        let ready = node(true, true, None, Some("provider_unavailable"));
        assert_eq!(following.look(Some(&ready), now), [News::Reached(Ready)]);
        let mut at_once = Following::new(now + LIVES);
        let all = [Registered, Connected, Ready].map(News::Reached);
        assert_eq!(at_once.look(Some(&ready), now), all);
    }

    #[test]
    fn a_diagnostic_is_told_at_once_and_once_and_silence_after_a_minute() {
        let (mut following, begun) = following();
        following.look(Some(&node(false, false, None, None)), begun);
        let almost = begun + GRACE - Duration::from_millis(1);
        assert_eq!(following.look(Some(&node(false, false, None, None)), almost), []);
        let late = begun + GRACE;
        let quiet = node(false, false, None, None);
        assert_eq!(following.look(Some(&quiet), late), [News::Attention(None)]);
        assert_eq!(following.look(Some(&quiet), late), []);
        for (provider, rollout) in [(Some("host_unsupported"), None), (None, Some("host_unsupported"))] {
            let (mut following, begun) = self::following();
            let ill = node(true, false, provider, rollout);
            let told = following.look(Some(&ill), begun);
            assert_eq!(
                told.last(),
                Some(&News::Attention(Some("host_unsupported".into())))
            );
            assert_eq!(following.look(Some(&ill), begun), []);
        }
    }

    #[test]
    fn only_a_list_read_after_the_hour_says_that_a_command_expired_and_only_if_it_made_no_node() {
        let (mut following, begun) = following();
        let before = begun + LIVES - Duration::from_millis(1);
        assert_eq!(following.look(None, before), []);
        assert_eq!(following.look(None, begun + LIVES), [News::Expired]);
        let (mut following, begun) = self::following();
        following.look(Some(&node(true, false, None, None)), before);
        assert_eq!(following.look(None, begun + LIVES), [News::Removed]);
    }
}
