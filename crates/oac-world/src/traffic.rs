//! Frames on their way: sending, arriving, ending, and being changed.

use oac_peer::{core, node};
use oac_wire::{CoreFrame, NodeFrame};

use crate::{
    fault::Tamper,
    invariant::Invariant,
    network::{Asked, End, Item, LinkId, Note},
    world::{Happening, World},
};

impl World {
    /// Puts a frame on its way. What its direction does with it is the network's matter.
    pub(crate) fn transmit(&mut self, link: LinkId, to: End, text: String, note: Note) {
        let (text, note) = self.changed(link, to, text, note);
        self.put(link, to, Item::Frame(text, note));
    }

    fn put(&mut self, id: LinkId, to: End, item: Item) {
        let Some(host) = self.network.links.get(&id).map(|link| link.host) else {
            return;
        };
        let slow = self.hosts[host].path_slow_until > self.now;
        let delay = if slow {
            self.between(1, 6_000)
        } else {
            self.between(1, 40)
        };
        let arrives = self.now + delay;
        let Some(link) = self.network.links.get_mut(&id) else {
            return;
        };
        let pipe = link.pipe(to);
        if pipe.mute {
            return;
        }
        pipe.last = pipe.last.max(arrives);
        let at = pipe.last;
        pipe.queue.push_back(item);
        self.agenda.at(at, Happening::Arrives(id, to));
    }

    /// One end drops the socket; the other learns it when the news arrives.
    pub(crate) fn close_end(&mut self, id: LinkId, end: End, quietly: bool) {
        let Some(link) = self.network.links.get_mut(&id) else {
            return;
        };
        let (open, other) = match end {
            End::Core => (&mut link.core_open, End::Node),
            End::Node => (&mut link.node_open, End::Core),
        };
        if !std::mem::replace(open, false) {
            return;
        }
        link.pipe(end).queue.clear();
        if !quietly {
            self.put(id, other, Item::End);
        }
    }

    pub(crate) fn cut(&mut self, id: LinkId, silently: bool) {
        if let Some(link) = self.network.links.get_mut(&id) {
            for pipe in [&mut link.to_core, &mut link.to_node] {
                pipe.queue.clear();
                pipe.mute = true;
                if !silently {
                    pipe.queue.push_back(Item::End);
                }
            }
        }
        if !silently {
            self.after(0, 50, Happening::Arrives(id, End::Core));
            self.after(0, 50, Happening::Arrives(id, End::Node));
        }
    }

    pub(crate) fn arrives(&mut self, id: LinkId, end: End) {
        let Some(link) = self.network.links.get_mut(&id) else {
            return;
        };
        let Some(item) = link.pipe(end).queue.pop_front() else {
            return;
        };
        if !link.is_open(end) {
            return;
        }
        match (end, item) {
            (End::Core, Item::End) => {
                link.core_open = false;
                let (core, run, connection) = (link.core, link.core_run, link.connection);
                if self.cores[core].is(run) {
                    self.core_takes(core, connection, core::Event::Lost);
                }
            }
            (End::Core, Item::Frame(text, note)) => self.frame_at_core(id, &text, &note),
            (End::Node, Item::End) => {
                link.node_open = false;
                let (host, run) = (link.host, link.run);
                if run.is_some_and(|run| self.hosts[host].is_linked(run, id)) {
                    self.node_takes(host, node::Event::Lost);
                }
            }
            (End::Node, Item::Frame(text, note)) => self.frame_at_node(id, text, note),
        }
    }

    /// What a dishonest peer makes of a frame, when one is due on this host's connections.
    fn changed(&mut self, id: LinkId, to: End, text: String, note: Note) -> (String, Note) {
        let Some(host) = self.network.links.get(&id).map(|link| link.host) else {
            return (text, note);
        };
        let due = self.hosts[host]
            .tampers
            .iter()
            .position(|with| fits(*with, to, &text));
        let Some(at) = due else {
            return (text, note);
        };
        let with = self.hosts[host].tampers[at];
        let Some(changed) = self.change(host, with, &text) else {
            return (text, note);
        };
        self.hosts[host].tampers.remove(at);
        self.say(|| format!("TAMPERED {with:?} towards host {host}"));
        if let Some(link) = self.network.links.get_mut(&id) {
            link.dishonest |= with != Tamper::OmitGenerations;
        }
        let asked = match note {
            Note::Request(asked) => Some(asked),
            _ => None,
        };
        (changed, Note::Tampered(with, asked))
    }

    fn change(&self, host: usize, with: Tamper, text: &str) -> Option<String> {
        match with {
            Tamper::UnknownOperation => {
                let operation = crate::network::member(text, "operation")?.to_owned();
                let named = format!("\"operation\":\"{operation}\"");
                return Some(text.replacen(&named, "\"operation\":\"invent\"", 1));
            }
            Tamper::OmitGenerations => {
                let NodeFrame::Heartbeat(mut heartbeat) = NodeFrame::decode(text.as_bytes()).ok()? else {
                    return None;
                };
                heartbeat.health.generations.as_ref()?;
                heartbeat.health.generations = Some(Vec::new());
                return NodeFrame::Heartbeat(heartbeat).encode().ok();
            }
            Tamper::FailureWithInfo => {
                let NodeFrame::Response(mut response) = NodeFrame::decode(text.as_bytes()).ok()? else {
                    return None;
                };
                response.error_code.as_ref()?;
                let mut info = self.foreign_info(host);
                info.create_settled = self.now.is_multiple_of(2);
                response.result = Ok(Some(oac_wire::frames::ResponseResult::Info(info)));
                return NodeFrame::Response(response).encode().ok();
            }
            _ => {}
        }
        let frame = match (CoreFrame::decode(text.as_bytes()).ok()?, with) {
            (CoreFrame::Request(mut request), Tamper::SkippedSequence) => {
                request.sequence += 1;
                CoreFrame::Request(request)
            }
            (CoreFrame::Welcome(mut welcome), Tamper::LowerEpoch) => {
                let lower = self.hosts[host].stored_epoch - 1;
                welcome.owner_epoch = lower.try_into().ok()?;
                CoreFrame::Welcome(welcome)
            }
            (CoreFrame::RetentionAck(mut ack), with) => {
                let control = &mut ack.control;
                let first = control.retentions.first_mut()?;
                match with {
                    Tamper::AckId => control.id = crate::ids::request(u64::MAX - 1),
                    Tamper::AckSequence => control.sequence += 1,
                    Tamper::AckGeneration => {
                        first.generation = (first.generation.get() + 1_000).try_into().ok()?;
                        first.keep = false;
                    }
                    Tamper::AckDigest => {
                        first.specification_digest = oac_model::Digest::of("another");
                        first.keep = false;
                    }
                    _ => {
                        control
                            .retentions
                            .pop()
                            .filter(|_| !control.retentions.is_empty())?;
                    }
                }
                CoreFrame::RetentionAck(ack)
            }
            _ => return None,
        };
        frame.encode().ok()
    }

    /// What the checks know of a request that reached the node, before the node takes it.
    pub(crate) fn request_arrives(&mut self, id: LinkId, asked: Asked) {
        let now = self.now;
        let Some(link) = self.network.links.get_mut(&id) else {
            return;
        };
        let in_order = asked.sequence == link.accepted + 1;
        let accepted = link.accepted;
        link.accepted = asked.sequence;
        link.delivered.push(crate::network::Delivered {
            asked,
            deadline: now + asked.timeout,
            started: false,
        });
        if !self.has(crate::defect::Defect::AcceptSkippedSequence) {
            self.demand(in_order, Invariant::P7, || {
                format!("sequence {} after {accepted}", asked.sequence)
            });
        }
    }
}

/// By the member that it alone has; frames are named in one crate.
pub(crate) fn is_retention_ack(text: &str) -> bool {
    text.contains("\"retentions\":[")
}

fn fits(with: Tamper, to: End, text: &str) -> bool {
    let kind = crate::network::member(text, "type");
    let (end, wanted) = match with {
        Tamper::SkippedSequence | Tamper::UnknownOperation => (End::Node, "request"),
        Tamper::LowerEpoch => (End::Node, "welcome"),
        Tamper::FailureWithInfo => (End::Core, "response"),
        Tamper::OmitGenerations => (End::Core, "heartbeat"),
        _ => return to == End::Node && is_retention_ack(text),
    };
    to == end && kind == Some(wanted)
}
