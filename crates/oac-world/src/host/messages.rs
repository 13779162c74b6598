//! The shell around the node's machine: events in, actions done in their order (`oac-node`'s `agent.rs`).

use std::collections::VecDeque;

use oac_peer::node::{Action, Event, Reason, Violation};
use oac_wire::shapes::Operation;

use crate::{
    defect::Defect,
    fault::Tamper,
    invariant::Invariant,
    network::{self, Asked, Dial, DialAnswer, DialId, End, LinkId, Note},
    world::{Happening, World},
};

impl World {
    /// One event, and whatever its actions cause at once.
    pub(crate) fn node_takes(&mut self, host: usize, event: Event<'_>) {
        self.node_acts(host, event);
        self.set_node_tick(host);
    }

    /// Whether the event made the node close, and why.
    fn node_acts(&mut self, host: usize, event: Event<'_>) -> Option<Reason> {
        let now = self.moment();
        let process = self.hosts[host].process.as_mut()?;
        let mut actions = VecDeque::from(process.machine.apply(event, now));
        let mut closed = None;
        while let Some(action) = actions.pop_front() {
            if self.hosts[host].process.is_none() {
                break;
            }
            match action {
                Action::Dial => self.dial(host),
                Action::Measure(attempt) => self.measure(host, attempt),
                Action::Send(text) => {
                    if !self.node_sends(host, text)
                        && let Some(process) = self.hosts[host].process.as_mut()
                    {
                        actions.extend(process.machine.apply(Event::Lost, now));
                    }
                }
                Action::StoreEpoch(epoch) => {
                    let run = self.hosts[host].run;
                    let full = self.hosts[host].disk_is_full(self.now);
                    if let Some(process) = self.hosts[host].process.as_mut() {
                        process.storing = Some(epoch.get());
                    }
                    self.after(1, 30, Happening::EpochStored(host, run, !full));
                }
                Action::Accepted(connection, epoch) => {
                    let stored = self.hosts[host].stored_epoch;
                    self.say(|| format!("host {host}: connected, epoch {epoch}"));
                    self.demand(stored == epoch.get(), Invariant::P6, || {
                        format!("epoch {epoch} is used and {stored} is stored")
                    });
                    let link = self.hosts[host].process.as_ref().and_then(|process| process.link);
                    let named = link.and_then(|link| self.network.links.get(&link));
                    let same = named.is_some_and(|link| link.connection == connection);
                    self.demand(same, Invariant::P5, || {
                        "a welcome of another connection".to_owned()
                    });
                }
                Action::Close(reason) => {
                    self.node_closes(host, &reason);
                    closed = Some(reason);
                }
                Action::Deployment(deployment) => self.deployed(host, deployment),
                Action::Granted(connection, references) => self.granted(host, connection, &references),
                Action::Refresh => {
                    let run = self.hosts[host].run;
                    let process = self.hosts[host].process.as_mut();
                    let proxy = process.is_some_and(|process| std::mem::take(&mut process.doubted));
                    if proxy && self.has(Defect::ExitOnAny401) {
                        let refused = crate::world::Identity::Unauthorized;
                        self.after(1, 60, Happening::IdentityAnswered(host, run, refused));
                    } else {
                        self.ask_identity(host, run);
                    }
                }
                Action::Run(job) => self.run_job(host, job),
                Action::Exit(exit) => self.node_exits(host, exit),
            }
        }
        closed
    }

    fn node_closes(&mut self, host: usize, reason: &Reason) {
        self.say(|| format!("host {host}: closes: {reason}"));
        let violation = matches!(reason, Reason::Violation(_));
        let Some(process) = self.hosts[host].process.as_mut() else {
            return;
        };
        process.dial = None;
        process.storing = None;
        process.inbox.clear();
        process.granted.clear();
        let Some(link) = process.link.take() else {
            return;
        };
        if self.has(Defect::RunAfterDisconnect) {
            let waits = self.network.links[&link]
                .delivered
                .iter()
                .find(|d| !d.started)
                .copied();
            if let Some(waits) = waits {
                self.run_waiting(host, &waits);
            }
        }
        if let Some(link) = self.network.links.get_mut(&link) {
            link.violated |= violation;
            let honest = !link.dishonest;
            let faultless = !matches!(
                reason,
                Reason::Violation(_)
                    | Reason::InvalidFrame(_)
                    | Reason::Unreadable
                    | Reason::UnexpectedFrame
                    | Reason::SuperfluousDeployment
                    | Reason::MissingDeployment
                    | Reason::OwnFrame(_)
            );
            self.demand(faultless || !honest, Invariant::Honest, || {
                format!("the node closes: {reason}")
            });
        }
        self.close_end(link, End::Node, false);
    }

    fn dial(&mut self, host: usize) {
        let core = self.random.below(self.cores.len() as u64) as usize;
        let run = self.hosts[host].run;
        let mut dial = Dial {
            host,
            run,
            core,
            duplicate: false,
        };
        let id = self.network.dial(dial);
        if let Some(process) = self.hosts[host].process.as_mut() {
            process.dial = Some(id);
        }
        let here = &mut self.hosts[host];
        if here.proxy_401 > 0 {
            here.proxy_401 -= 1;
            return self.after(1, 60, Happening::DialAnswered(id, DialAnswer::Unauthorized));
        }
        if here.refused_until > self.now {
            return self.after(1, 500, Happening::DialAnswered(id, DialAnswer::Failed));
        }
        let slow = here.path_slow_until > self.now;
        let twice = std::mem::take(&mut here.duplicates) > 0;
        let most = if slow { 8_000 } else { 60 };
        self.after(1, most, Happening::DialArrives(id));
        if twice {
            dial.duplicate = true;
            let twin = self.network.dial(dial);
            self.after(1, most, Happening::DialArrives(twin));
        }
    }

    pub(crate) fn dial_answered(&mut self, id: DialId, answer: DialAnswer) {
        let Some(dial) = self.network.dials.remove(&id) else {
            return;
        };
        let (host, run) = (dial.host, dial.run);
        let awaited = !dial.duplicate && self.hosts[host].process(run).is_some_and(|p| p.dial == Some(id));
        if !awaited {
            if let DialAnswer::Upgraded(link) = answer {
                self.close_end(link, End::Node, false);
            }
            return;
        }
        let event = match answer {
            DialAnswer::Upgraded(link) => {
                if let Some(process) = self.hosts[host].process(run) {
                    process.dial = None;
                    process.link = Some(link);
                }
                Event::Upgraded
            }
            DialAnswer::Unauthorized => {
                if let Some(process) = self.hosts[host].process(run) {
                    (process.dial, process.doubted) = (None, true);
                }
                Event::Refused
            }
            DialAnswer::Failed => {
                if let Some(process) = self.hosts[host].process(run) {
                    process.dial = None;
                }
                Event::DialFailed
            }
        };
        self.node_takes(host, event);
    }

    pub(crate) fn epoch_stored(&mut self, host: usize, run: u64, done: bool) {
        let Some(process) = self.hosts[host].process(run) else {
            return;
        };
        let Some(epoch) = process.storing.take() else {
            return;
        };
        let before = self.hosts[host].stored_epoch;
        self.demand(epoch > before, Invariant::P6, || {
            format!("epoch {epoch} is stored over {before}")
        });
        if done && !self.has(Defect::EpochNotPersisted) {
            self.hosts[host].stored_epoch = epoch;
        }
        self.node_takes(host, Event::EpochStored(done));
        loop {
            let Some(process) = self.hosts[host].process(run) else {
                return;
            };
            if process.storing.is_some() {
                return;
            }
            let Some((link, text, note)) = process.inbox.pop_front() else {
                return;
            };
            if self.hosts[host].is_linked(run, link) {
                self.node_reads(host, link, text, &note);
            }
        }
    }

    pub(crate) fn frame_at_node(&mut self, id: LinkId, text: String, note: Note) {
        let Some(link) = self.network.links.get(&id) else {
            return;
        };
        let (host, Some(run)) = (link.host, link.run) else {
            return;
        };
        if !self.hosts[host].is_linked(run, id) {
            return;
        }
        if let Some(process) = self.hosts[host].process(run)
            && process.storing.is_some()
        {
            process.inbox.push_back((id, text, note));
            return;
        }
        self.node_reads(host, id, text, &note);
    }

    fn node_reads(&mut self, host: usize, id: LinkId, text: String, note: &Note) {
        match note {
            Note::Plain => self.node_takes(host, Event::Message(text.as_bytes())),
            Note::Request(asked) => {
                self.request_arrives(id, *asked);
                self.node_takes(host, Event::Message(text.as_bytes()));
            }
            Note::Tampered(with, asked) => self.node_reads_tampered(host, id, &text, *with, *asked),
        }
    }

    /// What a changed frame must lead to.
    fn node_reads_tampered(
        &mut self,
        host: usize,
        id: LinkId,
        text: &str,
        with: Tamper,
        asked: Option<Asked>,
    ) {
        let violation = |v: Violation| move |reason: &Reason| *reason == Reason::Violation(v);
        match with {
            Tamper::SkippedSequence => {
                let Some(mut asked) = asked else { return };
                asked.sequence += 1;
                if self.has(Defect::AcceptSkippedSequence) {
                    let honest = text.replacen(
                        &format!("\"sequence\":{}", asked.sequence),
                        &format!("\"sequence\":{}", asked.sequence - 1),
                        1,
                    );
                    self.request_arrives(id, asked);
                    self.node_takes(host, Event::Message(honest.as_bytes()));
                    let open = self.hosts[host]
                        .process
                        .as_ref()
                        .is_some_and(|p| p.link == Some(id));
                    return self.demand(!open, Invariant::P7, || {
                        "a skipped sequence is accepted".to_owned()
                    });
                }
                let closed = self.node_acts(host, Event::Message(text.as_bytes()));
                let fits = closed.as_ref().is_some_and(violation(Violation::Sequence));
                self.demand(fits, Invariant::P7, || format!("a skipped sequence: {closed:?}"));
            }
            Tamper::UnknownOperation => {
                let Some(asked) = asked else { return };
                let (run, before) = (self.hosts[host].run, self.network.links[&id].pending.len());
                if let Some(link) = self.network.links.get_mut(&id) {
                    link.accepted = asked.sequence;
                    // It is answered, and never runs.
                    link.delivered.push(network::Delivered {
                        asked: Asked {
                            operation: Operation::Renew,
                            ..asked
                        },
                        deadline: 0,
                        started: true,
                    });
                }
                self.node_acts(host, Event::Message(text.as_bytes()));
                if self.has(Defect::InvalidCloses) {
                    self.node_acts(host, Event::Lost);
                }
                let open = self.hosts[host].is_linked(run, id);
                let answered = !self.network.links[&id]
                    .delivered
                    .iter()
                    .any(|d| d.asked.id == asked.id);
                self.reach("an invalid request was answered");
                self.demand(open && answered, Invariant::P28, || {
                    format!("after an invalid request: open {open}, answered {answered}, {before} pending")
                });
            }
            Tamper::LowerEpoch => {
                let stored = self.hosts[host].stored_epoch;
                let closed = self.node_acts(host, Event::Message(text.as_bytes()));
                let fits = closed.as_ref().is_some_and(violation(Violation::EpochLower));
                self.demand(
                    fits && self.hosts[host].stored_epoch == stored,
                    Invariant::P6,
                    || format!("a welcome below epoch {stored}: {closed:?}"),
                );
            }
            // On their way to Core.
            Tamper::FailureWithInfo | Tamper::OmitGenerations => {}
            _ => {
                let granted = self.granted_now(host);
                if self.has(Defect::AckUnchecked) {
                    self.believe_any_ack(host, text);
                } else {
                    let closed = self.node_acts(host, Event::Message(text.as_bytes()));
                    let fits = closed.as_ref().is_some_and(violation(Violation::Retention));
                    self.demand(fits, Invariant::P14, || {
                        format!("a differing retention_ack: {closed:?}")
                    });
                }
                self.reach("a differing retention_ack arrived");
                self.demand(self.granted_now(host) <= granted, Invariant::P14, || {
                    "a differing retention_ack permits something".to_owned()
                });
            }
        }
        self.set_node_tick(host);
    }

    /// False when there is no connection to send on.
    fn node_sends(&mut self, host: usize, text: String) -> bool {
        let crosses = self.has(Defect::AnswerCrosses);
        let Some(process) = self.hosts[host].process.as_mut() else {
            return false;
        };
        let unfinished = process.unfinished.len() as i64;
        let Some(link) = process.link else {
            return false;
        };
        if crosses {
            let kept = std::mem::take(&mut process.kept_answers);
            if network::member(&text, "type") == Some("response") {
                process.kept_answers.push(text.clone());
            }
            for text in kept {
                self.check_response(link, &text);
            }
        }
        match network::member(&text, "type") {
            Some("response") => {
                self.check_response(link, &text);
                if self.has(Defect::AnswerTwice) {
                    self.check_response(link, &text);
                }
            }
            Some("hello" | "heartbeat") => {
                let said = network::number(&text, "active_operations").unwrap_or(-1);
                self.demand(said == unfinished && said <= 32, Invariant::N26, || {
                    format!("{said} operations are reported, {unfinished} run")
                });
                self.check_report(host, &text);
            }
            _ => {}
        }
        self.transmit(link, End::Core, text, Note::Plain);
        true
    }

    /// A response leaves on the connection that asked, once.
    fn check_response(&mut self, id: LinkId, text: &str) {
        let Some(request) = network::member(text, "id").and_then(|id| id.parse().ok()) else {
            return self.violated(Invariant::Honest, || format!("a response without id: {text}"));
        };
        let Some(link) = self.network.links.get_mut(&id) else {
            return;
        };
        let owed = link.delivered.iter().position(|d| d.asked.id == request);
        let fits = owed.is_some();
        if let Some(owed) = owed {
            link.delivered.remove(owed);
        }
        self.demand(fits, Invariant::P8, || {
            "a response that this connection does not owe".to_owned()
        });
    }
}
