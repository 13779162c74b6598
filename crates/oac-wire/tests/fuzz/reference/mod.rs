//! A second opinion on frames, written from the tables of protocol.md alone: slow, plain, and without the codec's code.
//!
//! One walk over the document notes two things: whether its *structure* is that of the tables (members, types, nulls,
//! integer forms), and whether its *values* are in bounds. Who wins is decided at the end.

pub(crate) mod json;

use json::{Json, Value};
use oac_wire::Direction;

/// The outcomes of protocol.md section 7, "Node's order", and of a response's results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Accept,
    Unconfirmed,
    Request,
    Frame,
}

const MIB: usize = 1 << 20;

pub(crate) fn judge(direction: Direction, bytes: &[u8]) -> Outcome {
    if bytes.len() > 72 * MIB {
        return Outcome::Frame;
    }
    let Some(document) = json::parse(bytes) else {
        return Outcome::Frame;
    };
    let mut look = Look {
        text: bytes,
        structure: true,
        bounds: true,
    };
    look.frame(direction, &document)
}

/// What has been seen so far. Every method goes on after a mistake, so that a later, worse one is seen as well.
struct Look<'a> {
    text: &'a [u8],
    structure: bool,
    bounds: bool,
}

/// The members of an object of right member set.
struct Members<'j>(&'j [(String, Json)]);

impl<'j> Members<'j> {
    fn get(&self, name: &str) -> Option<&'j Json> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, json)| json)
    }

    fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}

const POS: std::ops::RangeInclusive<i64> = 1..=i64::MAX;
const NAT: std::ops::RangeInclusive<i64> = 0..=i64::MAX;
const SIZE: std::ops::RangeInclusive<i64> = 0..=9_007_199_254_740_991;
const SIZE_FROM_1: std::ops::RangeInclusive<i64> = 1..=9_007_199_254_740_991;

impl<'a> Look<'a> {
    fn broken(&mut self) {
        self.structure = false;
    }

    fn allow(&mut self, holds: bool) {
        self.bounds &= holds;
    }

    fn sound(&self) -> bool {
        self.structure && self.bounds
    }

    fn object<'j>(&mut self, json: &'j Json, must: &[&str], may: &[&str]) -> Members<'j> {
        let Value::Object(members) = &json.value else {
            self.broken();
            return Members(&[]);
        };
        let known = |name: &String| must.contains(&name.as_str()) || may.contains(&name.as_str());
        let complete = must.iter().all(|m| members.iter().any(|(name, _)| name == m));
        if !complete || !members.iter().all(|(name, _)| known(name)) {
            self.broken();
        }
        Members(members)
    }

    /// The member, unless it is absent; a missing mandatory one has been noted with the member set.
    fn member<'j>(&mut self, members: &Members<'j>, name: &str, look: impl FnOnce(&mut Self, &'j Json)) {
        if let Some(json) = members.get(name) {
            look(self, json);
        }
    }

    fn nullable<'j>(&mut self, members: &Members<'j>, name: &str, look: impl FnOnce(&mut Self, &'j Json)) {
        if let Some(json) = members.get(name)
            && !matches!(json.value, Value::Null)
        {
            look(self, json);
        }
    }

    fn text<'j>(&mut self, json: &'j Json) -> Option<&'j str> {
        match &json.value {
            Value::Text(text) => Some(text),
            _ => {
                self.broken();
                None
            }
        }
    }

    fn flag(&mut self, json: &Json) -> Option<bool> {
        match json.value {
            Value::Bool(flag) => Some(flag),
            _ => {
                self.broken();
                None
            }
        }
    }

    fn integer(&mut self, json: &Json, range: std::ops::RangeInclusive<i64>) -> Option<i64> {
        let Value::Number(written) = &json.value else {
            self.broken();
            return None;
        };
        let plain = written != "-0" && !written.contains(['.', 'e', 'E']);
        let Some(value) = written.parse::<i64>().ok().filter(|_| plain) else {
            self.broken();
            return None;
        };
        self.allow(range.contains(&value));
        Some(value)
    }

    fn number(&mut self, json: &Json, fits: impl Fn(f64) -> bool) {
        match &json.value {
            Value::Number(written) => self.allow(written.parse().is_ok_and(fits)),
            _ => self.broken(),
        }
    }

    fn list<'j>(&mut self, json: &'j Json, length: std::ops::RangeInclusive<usize>) -> &'j [Json] {
        match &json.value {
            Value::List(items) => {
                self.allow(length.contains(&items.len()));
                items
            }
            _ => {
                self.broken();
                &[]
            }
        }
    }

    fn form(&mut self, json: &Json, fits: impl Fn(&str) -> bool) {
        if let Some(text) = self.text(json) {
            self.allow(fits(text));
        }
    }

    fn uuid(&mut self, json: &Json) {
        self.form(json, |t| {
            let groups: Vec<&str> = t.split('-').collect();
            let lengths: Vec<usize> = groups.iter().map(|g| g.len()).collect();
            let hex = groups
                .iter()
                .all(|g| g.chars().all(|c| "0123456789abcdef".contains(c)));
            lengths == [8, 4, 4, 4, 12] && hex && t.chars().any(|c| c != '0' && c != '-')
        });
    }

    fn hex64(&mut self, json: &Json) {
        self.form(json, |t| {
            t.len() == 64 && t.chars().all(|c| "0123456789abcdef".contains(c))
        });
    }

    /// Nanoseconds since the year 0, for comparing.
    fn time(&mut self, json: &Json) -> Option<u128> {
        let text = self.text(json)?;
        let nanos = nanoseconds(text);
        self.allow(nanos.is_some());
        nanos
    }

    fn token(&mut self, json: &Json) -> bool {
        self.form(json, |t| {
            t.len() <= 64 && of(t, |c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        });
        matches!(&json.value, Value::Text(t) if !t.is_empty())
    }

    fn short_text(&mut self, json: &Json, most: usize) {
        self.form(json, |t| {
            (1..=most).contains(&t.len()) && !t.chars().any(is_control)
        });
    }

    fn state_word(&mut self, json: &Json, most: usize) {
        self.form(json, |t| {
            (1..=most).contains(&t.len()) && of(t, |c| c.is_ascii_lowercase() || c == '_')
        });
    }

    fn one_of(&mut self, json: &Json, words: &[&str]) {
        self.form(json, |t| words.contains(&t));
    }

    fn base64(&mut self, json: &Json, most: usize) {
        self.form(json, |t| decoded_length(t).is_some_and(|n| n <= most));
    }

    // Section 3.

    fn frame(&mut self, direction: Direction, json: &Json) -> Outcome {
        let Value::Object(members) = &json.value else {
            return Outcome::Frame;
        };
        let all = Members(members);
        let version = all.get("version").map(|v| &v.value);
        if !matches!(version, Some(Value::Number(written)) if written == "1") {
            return Outcome::Frame;
        }
        let Some(Value::Text(kind)) = all.get("type").map(|v| &v.value) else {
            return Outcome::Frame;
        };
        let control = self.text.len() <= 32 * 1024;
        match (direction, kind.as_str()) {
            (Direction::NodeToCore, "hello") if control => self.hello(json),
            (Direction::NodeToCore, "heartbeat") if control => self.heartbeat(json),
            (Direction::NodeToCore, "retention") if control => self.retention(json),
            (Direction::CoreToNode, "welcome" | "heartbeat_ack") if control => self.greeting(json),
            (Direction::CoreToNode, "retention_ack") if control => self.retention_ack(json),
            (Direction::NodeToCore, "response") => return self.response(json),
            (Direction::CoreToNode, "request") => return self.request(json),
            _ => return Outcome::Frame,
        }
        if self.sound() {
            Outcome::Accept
        } else {
            Outcome::Frame
        }
    }

    fn hello(&mut self, json: &Json) {
        let m = self.object(
            json,
            &["version", "type", "identity", "health"],
            &["generation_management"],
        );
        self.member(&m, "identity", Self::identity);
        let mut managing = false;
        if let Some(flag) = m.get("generation_management") {
            managing = self.flag(flag) == Some(true);
        }
        self.member(&m, "health", |l, health| {
            l.health(health, managing);
            l.allow(managing || !has(health, "generations"));
        });
    }

    fn heartbeat(&mut self, json: &Json) {
        let m = self.object(
            json,
            &["version", "type", "connection_id", "owner_epoch", "health"],
            &[],
        );
        self.connection(&m);
        self.member(&m, "health", |l, health| {
            l.health(health, has(health, "generations"))
        });
    }

    fn connection(&mut self, m: &Members<'_>) {
        self.member(m, "connection_id", Self::uuid);
        self.member(m, "owner_epoch", |l, v| {
            l.integer(v, POS);
        });
    }

    fn greeting(&mut self, json: &Json) {
        let m = self.object(
            json,
            &["version", "type", "connection_id", "owner_epoch"],
            &["deployment"],
        );
        self.connection(&m);
        self.member(&m, "deployment", Self::deployment);
    }

    fn deployment(&mut self, json: &Json) {
        let m = self.object(
            json,
            &["generation", "specification_digest", "serving_generation"],
            &[],
        );
        self.generation_and_digest(&m);
        self.nullable(&m, "serving_generation", |l, v| {
            l.integer(v, POS);
        });
    }

    fn generation_and_digest(&mut self, m: &Members<'_>) {
        self.member(m, "generation", |l, v| {
            l.integer(v, POS);
        });
        self.member(m, "specification_digest", Self::hex64);
    }

    fn identity(&mut self, json: &Json) {
        let must = [
            "node_id",
            "installation_id",
            "provider",
            "backend_fingerprint",
            "deployment_generation",
            "specification_digest",
            "max_active",
            "max_retained",
        ];
        let m = self.object(json, &must, &[]);
        self.member(&m, "node_id", Self::uuid);
        self.member(&m, "installation_id", Self::uuid);
        self.member(&m, "provider", |l, v| l.one_of(v, &["docker", "microsandbox"]));
        self.member(&m, "backend_fingerprint", Self::hex64);
        self.member(&m, "specification_digest", Self::hex64);
        self.member(&m, "deployment_generation", |l, v| {
            l.integer(v, POS);
        });
        let active = m.get("max_active").and_then(|v| self.integer(v, 1..=1_000_000));
        let retained = m.get("max_retained").and_then(|v| self.integer(v, 1..=1_000_000));
        self.allow(active <= retained);
    }

    fn health(&mut self, json: &Json, managing: bool) {
        let must = [
            "provider_ready",
            "observed_at",
            "active_operations",
            "cpu_utilization",
            "total_memory_bytes",
            "effective_cpu_cores",
        ];
        let may = [
            "cpu_count",
            "available_memory_bytes",
            "available_disk_bytes",
            "execution_class",
            "checkpoint_store",
            "boot_id",
            "diagnostic",
            "generations",
        ];
        let m = self.object(json, &must, &may);
        let ready = m.get("provider_ready").and_then(|v| self.flag(v));
        self.member(&m, "observed_at", |l, v| {
            l.time(v);
        });
        self.member(&m, "active_operations", |l, v| {
            l.integer(v, 0..=32);
        });
        self.nullable(&m, "cpu_utilization", |l, v| {
            l.number(v, |n| (0.0..=1.0).contains(&n))
        });
        self.nullable(&m, "effective_cpu_cores", |l, v| l.number(v, |n| n > 0.0));
        let (mut total, mut available) = (None, None);
        self.nullable(&m, "total_memory_bytes", |l, v| total = l.integer(v, SIZE_FROM_1));
        self.nullable(&m, "available_memory_bytes", |l, v| {
            available = l.integer(v, SIZE)
        });
        if let (Some(total), Some(available)) = (total, available) {
            self.allow(available <= total);
        }
        for name in ["cpu_count", "available_disk_bytes"] {
            self.nullable(&m, name, |l, v| {
                l.integer(v, SIZE);
            });
        }
        self.nullable(&m, "execution_class", Self::hex64);
        self.nullable(&m, "checkpoint_store", Self::uuid);
        self.nullable(&m, "boot_id", Self::uuid);
        let mut told = false;
        self.member(&m, "diagnostic", |l, v| told = l.token(v));
        if managing {
            self.allow(ready == Some(false) && !told);
        }
        self.member(&m, "generations", |l, v| {
            let items = l.list(v, 0..=8);
            items.iter().for_each(|item| l.status(item));
            l.distinct_generations(items);
        });
    }

    fn distinct_generations(&mut self, items: &[Json]) {
        let mut numbers: Vec<&str> = Vec::new();
        for item in items {
            if let Value::Object(members) = &item.value
                && let Some(Value::Number(n)) = Members(members).get("generation").map(|v| &v.value)
            {
                self.allow(!numbers.contains(&n.as_str()));
                numbers.push(n);
            }
        }
    }

    fn status(&mut self, json: &Json) {
        let m = self.object(
            json,
            &["generation", "specification_digest", "state"],
            &["diagnostic"],
        );
        self.generation_and_digest(&m);
        self.member(&m, "state", |l, v| l.one_of(v, &["ready", "preparing", "failed"]));
        let mut told = false;
        self.member(&m, "diagnostic", |l, v| told = l.token(v));
        let ready = matches!(m.get("state").map(|v| &v.value), Some(Value::Text(t)) if t == "ready");
        self.allow(!(ready && told));
    }

    fn retention(&mut self, json: &Json) {
        let m = self.object(json, &["version", "type", "control"], &[]);
        self.member(&m, "control", |l, v| l.control(v, "references"));
    }

    fn retention_ack(&mut self, json: &Json) {
        let m = self.object(json, &["version", "type", "control", "deployment"], &[]);
        self.member(&m, "control", |l, v| l.control(v, "retentions"));
        self.member(&m, "deployment", Self::deployment);
    }

    fn control(&mut self, json: &Json, entries: &str) {
        let m = self.object(
            json,
            &["id", "sequence", "connection_id", "owner_epoch", entries],
            &[],
        );
        self.member(&m, "id", Self::uuid);
        self.member(&m, "sequence", |l, v| {
            l.integer(v, POS);
        });
        self.connection(&m);
        self.member(&m, entries, |l, v| {
            let items = l.list(v, 1..=8);
            for item in items {
                let must: &[&str] = if entries == "references" {
                    &["generation", "specification_digest"]
                } else {
                    &["generation", "specification_digest", "keep"]
                };
                let m = l.object(item, must, &[]);
                l.generation_and_digest(&m);
                l.member(&m, "keep", |l, v| {
                    l.flag(v);
                });
            }
            l.distinct_generations(items);
        });
    }

    // Section 7.

    fn request(&mut self, json: &Json) -> Outcome {
        let must = [
            "version",
            "type",
            "id",
            "sequence",
            "connection_id",
            "owner_epoch",
            "deployment_generation",
            "operation",
            "timeout_ms",
            "reference",
        ];
        let arguments = [
            "bootstrap",
            "command",
            "observation",
            "generation",
            "compute",
            "suspend",
            "resume",
            "retained",
        ];
        let m = self.object(json, &must, &arguments);
        // Steps 1 to 3 close.
        self.member(&m, "id", Self::uuid);
        self.connection(&m);
        self.member(&m, "sequence", |l, v| {
            l.integer(v, POS);
        });
        let envelope = std::mem::replace(&mut self.bounds, true);
        // Step 6 answers `invalid`.
        self.member(&m, "deployment_generation", |l, v| {
            l.integer(v, POS);
        });
        self.member(&m, "timeout_ms", |l, v| {
            l.integer(v, 1..=120_000);
        });
        self.member(&m, "reference", Self::reference);
        let reference = m.get("reference");
        self.member(&m, "bootstrap", |l, v| l.bootstrap(v, reference));
        self.member(&m, "command", Self::command);
        self.member(&m, "observation", Self::observation);
        self.member(&m, "generation", |l, v| {
            l.integer(v, POS);
        });
        self.member(&m, "compute", Self::compute);
        self.member(&m, "suspend", |l, v| l.suspend(v, reference));
        self.member(&m, "resume", |l, v| l.resume(v, reference));
        self.member(&m, "retained", Self::retained);
        let operation = m.get("operation").and_then(|v| self.text(v)).unwrap_or_default();
        let (takes, may): (&[&str], &[&str]) = match operation {
            "create" => (&["bootstrap"], &[]),
            "info" | "renew" | "kill" | "initial" => (&[], &[]),
            "command" => (&["command"], &[]),
            "observe" => (&["observation"], &[]),
            "new_compute" => (&["generation"], &["retained"]),
            "compute" | "kill_compute" | "resume_compute" => (&["compute"], &[]),
            "command_compute" => (&["compute", "command"], &[]),
            "suspend" => (&["suspend"], &[]),
            "resume" => (&["resume"], &[]),
            "delete_retained" => (&["retained"], &[]),
            _ => {
                self.allow(false);
                (&[], &arguments)
            }
        };
        for argument in arguments {
            let has = m.has(argument);
            self.allow(has || !takes.contains(&argument));
            self.allow(!has || takes.contains(&argument) || may.contains(&argument));
        }
        match (self.structure && envelope, self.bounds) {
            (false, _) => Outcome::Frame,
            (true, false) => Outcome::Request,
            (true, true) => Outcome::Accept,
        }
    }

    fn reference(&mut self, json: &Json) {
        let m = self.object(json, &["tenant_id", "environment_id", "allocation_id"], &[]);
        for name in ["tenant_id", "environment_id", "allocation_id"] {
            self.member(&m, name, Self::uuid);
        }
    }

    /// A reference that is to equal the request's.
    fn same_reference(&mut self, json: &Json, request: Option<&Json>) {
        self.reference(json);
        for name in ["tenant_id", "environment_id", "allocation_id"] {
            self.allow(text_at(json, name) == request.and_then(|r| text_at(r, name)));
        }
    }

    fn bootstrap(&mut self, json: &Json, request: Option<&Json>) {
        let must = [
            "reference",
            "session_id",
            "network_access",
            "allowed_domains",
            "link",
            "workspace",
        ];
        let m = self.object(json, &must, &[]);
        self.member(&m, "reference", |l, v| l.same_reference(v, request));
        self.member(&m, "session_id", Self::uuid);
        self.member(&m, "network_access", |l, v| {
            l.one_of(v, &["none", "restricted", "public"])
        });
        let restricted = text_at(json, "network_access") == Some("restricted");
        self.member(&m, "allowed_domains", |l, v| {
            let items = l.list(v, 0..=64);
            items.iter().for_each(|item| l.form(item, is_host_name));
            l.allow(restricted || items.is_empty());
        });
        self.member(&m, "link", |l, v| l.link(v, request));
        self.nullable(&m, "workspace", Self::workspace);
    }

    fn link(&mut self, json: &Json, request: Option<&Json>) {
        let m = self.object(json, &["version", "link_url", "credential", "resource"], &[]);
        self.member(&m, "version", |l, v| {
            l.integer(v, 1..=1);
        });
        self.member(&m, "link_url", |l, v| l.form(v, is_link_url));
        self.member(&m, "credential", |l, v| {
            l.form(v, |t| {
                (1..=4096).contains(&t.len()) && !t.chars().any(|c| c == '\0' || c.is_whitespace())
            });
        });
        self.member(&m, "resource", |l, v| {
            let m = l.object(
                v,
                &["tenant_id", "environment_id", "kind", "id", "generation"],
                &[],
            );
            for (name, of) in [
                ("tenant_id", "tenant_id"),
                ("environment_id", "environment_id"),
                ("id", "allocation_id"),
            ] {
                l.member(&m, name, Self::uuid);
                l.allow(text_at(v, name) == request.and_then(|r| text_at(r, of)));
            }
            l.member(&m, "kind", |l, v| l.one_of(v, &["allocation"]));
            l.member(&m, "generation", |l, v| {
                l.integer(v, POS);
            });
        });
    }

    fn workspace(&mut self, json: &Json) {
        let m = self.object(json, &["store_id", "object_id", "mount"], &[]);
        self.member(&m, "store_id", Self::uuid);
        self.member(&m, "object_id", Self::uuid);
        self.member(&m, "mount", |l, v| {
            l.form(v, |t| {
                let parts: Vec<&str> = t.split('/').collect();
                let clean = parts.len() > 1
                    && parts[0].is_empty()
                    && parts[1..]
                        .iter()
                        .all(|p| !p.is_empty() && *p != "." && *p != "..");
                t == "/" || (clean && !t.chars().any(is_control))
            });
        });
    }

    fn command(&mut self, json: &Json) {
        let m = self.object(json, &["args", "directory"], &["stdin"]);
        self.member(&m, "args", |l, v| {
            let items = l.list(v, 1..=1024);
            let mut total = 0;
            for (index, item) in items.iter().enumerate() {
                let text = l.text(item).unwrap_or("x");
                total += text.len();
                l.allow(!text.contains('\0') && (index > 0 || !text.is_empty()));
            }
            l.allow(total <= MIB);
        });
        self.member(&m, "directory", |l, v| {
            l.form(v, |t| t.is_empty() || (t.starts_with('/') && !t.contains('\0')));
        });
        self.member(&m, "stdin", |l, v| l.base64(v, 50 * MIB + 32));
    }

    fn retained(&mut self, json: &Json) {
        let must = [
            "operation_id",
            "source_generation",
            "source_name",
            "source_id",
            "store_id",
            "execution_class",
            "digest",
            "size_bytes",
            "data",
        ];
        let m = self.object(json, &must, &[]);
        self.member(&m, "operation_id", Self::uuid);
        self.member(&m, "source_generation", |l, v| {
            l.integer(v, NAT);
        });
        self.member(&m, "source_name", |l, v| l.short_text(v, 128));
        self.member(&m, "source_id", |l, v| l.short_text(v, 256));
        self.member(&m, "store_id", Self::uuid);
        self.member(&m, "execution_class", Self::hex64);
        self.member(&m, "digest", Self::hex64);
        self.member(&m, "size_bytes", |l, v| {
            l.integer(v, SIZE);
        });
        self.member(&m, "data", |l, v| {
            if matches!(v.value, Value::Object(_)) {
                l.allow(v.place.len() <= 64 * 1024);
            } else {
                l.broken();
            }
        });
    }

    fn compute(&mut self, json: &Json) {
        let m = self.object(json, &["generation", "name", "id", "restored_from"], &[]);
        let generation = m.get("generation").and_then(|v| self.integer(v, NAT));
        self.member(&m, "name", |l, v| l.short_text(v, 128));
        self.nullable(&m, "id", |l, v| l.short_text(v, 256));
        let mut parent = None;
        self.nullable(&m, "restored_from", |l, v| {
            l.retained(v);
            parent = Some(v);
        });
        let source = parent.and_then(|p| integer_at(p, "source_generation"));
        match (generation, parent) {
            (Some(0), Some(_)) | (Some(1..), None) => self.allow(false),
            (Some(generation), Some(_)) => self.allow(source.is_some_and(|s| s < generation)),
            _ => {}
        }
    }

    fn suspend(&mut self, json: &Json, request: Option<&Json>) {
        let must = [
            "reference",
            "operation_id",
            "source",
            "retained",
            "reconcile_only",
        ];
        let m = self.object(json, &must, &[]);
        self.member(&m, "reference", |l, v| l.same_reference(v, request));
        self.member(&m, "operation_id", Self::uuid);
        self.member(&m, "source", |l, v| {
            l.compute(v);
            l.allow(text_at(v, "id").is_some());
        });
        self.nullable(&m, "retained", Self::retained);
        self.member(&m, "reconcile_only", |l, v| {
            l.flag(v);
        });
    }

    fn resume(&mut self, json: &Json, request: Option<&Json>) {
        let must = [
            "reference",
            "operation_id",
            "retained",
            "target",
            "reconcile_only",
            "workspace",
        ];
        let m = self.object(json, &must, &[]);
        self.member(&m, "reference", |l, v| l.same_reference(v, request));
        self.member(&m, "operation_id", Self::uuid);
        self.member(&m, "retained", Self::retained);
        self.member(&m, "target", Self::compute);
        self.member(&m, "reconcile_only", |l, v| {
            l.flag(v);
        });
        self.nullable(&m, "workspace", Self::workspace);
        let restored_from = m.get("target").and_then(|t| member_of(t, "restored_from"));
        let same = match (m.get("retained"), restored_from) {
            (Some(a), Some(b)) => self.same_checkpoint(a, b),
            _ => false,
        };
        self.allow(same);
    }

    fn same_checkpoint(&self, a: &Json, b: &Json) -> bool {
        let same_text = |name| text_at(a, name).is_some() && text_at(a, name) == text_at(b, name);
        let same_number = |name| integer_at(a, name).is_some() && integer_at(a, name) == integer_at(b, name);
        let raw = |json| member_of(json, "data").map(|d| &self.text[d.place.clone()]);
        [
            "operation_id",
            "source_name",
            "source_id",
            "store_id",
            "execution_class",
            "digest",
        ]
        .into_iter()
        .all(same_text)
            && ["source_generation", "size_bytes"].into_iter().all(same_number)
            && raw(a) == raw(b)
    }

    fn observation(&mut self, json: &Json) {
        let m = self.object(json, &["mode", "session_id", "instance"], &[]);
        self.member(&m, "mode", |l, v| l.one_of(v, &["managed"]));
        self.member(&m, "session_id", Self::uuid);
        self.member(&m, "instance", |l, v| {
            let m = l.object(v, &["provider_key", "compute_phase", "compute"], &[]);
            l.member(&m, "provider_key", Self::uuid);
            let phases = [
                "disabled",
                "running",
                "quiescing",
                "suspending",
                "suspended",
                "restoring",
                "waking",
            ];
            l.member(&m, "compute_phase", |l, v| l.one_of(v, &phases));
            l.nullable(&m, "compute", Self::compute);
        });
    }

    fn response(&mut self, json: &Json) -> Outcome {
        let results = ["info", "command", "sample", "compute", "state", "unsupported"];
        let mut may = vec!["error_code"];
        may.extend(results);
        let m = self.object(json, &["version", "type", "id", "connection_id"], &may);
        self.member(&m, "id", Self::uuid);
        self.member(&m, "connection_id", Self::uuid);
        self.member(&m, "error_code", |l, v| l.state_word(v, 64));
        let one = results.iter().filter(|r| m.has(r)).count() <= 1;
        let envelope = std::mem::replace(&mut self.bounds, true) && one;
        self.member(&m, "info", Self::info);
        self.member(&m, "command", Self::command_result);
        self.member(&m, "sample", Self::sample);
        self.member(&m, "compute", Self::compute);
        self.member(&m, "state", Self::state);
        self.member(&m, "unsupported", Self::unsupported);
        match (self.structure && envelope, self.bounds) {
            (false, _) => Outcome::Frame,
            (true, false) => Outcome::Unconfirmed,
            (true, true) => Outcome::Accept,
        }
    }

    fn info(&mut self, json: &Json) {
        let must = [
            "reference",
            "provider_id",
            "state",
            "bootstrap_complete",
            "create_settled",
            "compute_lost",
        ];
        let m = self.object(json, &must, &[]);
        self.member(&m, "reference", Self::reference);
        self.member(&m, "provider_id", |l, v| l.form(v, |t| t.len() <= 256));
        self.member(&m, "state", |l, v| l.state_word(v, 32));
        let mut flag = |name| m.get(name).and_then(|v| self.flag(v)).unwrap_or_default();
        let (complete, settled, lost) = (
            flag("bootstrap_complete"),
            flag("create_settled"),
            flag("compute_lost"),
        );
        self.allow(!complete || settled);
        self.allow(!lost || (settled && text_at(json, "state") == Some("absent")));
    }

    fn command_result(&mut self, json: &Json) {
        let must = [
            "stdout",
            "stderr",
            "stdout_truncated",
            "stderr_truncated",
            "exit_code",
        ];
        let m = self.object(json, &must, &[]);
        for name in ["stdout", "stderr"] {
            self.member(&m, name, |l, v| l.base64(v, MIB));
        }
        for name in ["stdout_truncated", "stderr_truncated"] {
            self.member(&m, name, |l, v| {
                l.flag(v);
            });
        }
        self.member(&m, "exit_code", |l, v| {
            l.integer(v, 0..=255);
        });
    }

    fn sample(&mut self, json: &Json) {
        let must = [
            "observed_at",
            "started_at",
            "cpu_usage_seconds_total",
            "cpu_capacity_cores",
            "memory_usage_bytes",
            "memory_limit_bytes",
        ];
        let may = ["cpu_utilization_ratio", "disk_usage_bytes", "disk_limit_bytes"];
        let m = self.object(json, &must, &may);
        let observed = m.get("observed_at").and_then(|v| self.time(v));
        let mut started = None;
        self.nullable(&m, "started_at", |l, v| started = l.time(v));
        if let (Some(started), Some(observed)) = (started, observed) {
            self.allow(started <= observed);
        }
        self.nullable(&m, "cpu_usage_seconds_total", |l, v| l.number(v, |n| n >= 0.0));
        self.nullable(&m, "cpu_capacity_cores", |l, v| l.number(v, |n| n > 0.0));
        self.member(&m, "cpu_utilization_ratio", |l, v| l.number(v, |n| n >= 0.0));
        self.nullable(&m, "memory_usage_bytes", |l, v| {
            l.integer(v, SIZE);
        });
        self.nullable(&m, "memory_limit_bytes", |l, v| {
            l.integer(v, SIZE_FROM_1);
        });
        self.member(&m, "disk_usage_bytes", |l, v| {
            l.integer(v, SIZE);
        });
        self.member(&m, "disk_limit_bytes", |l, v| {
            l.integer(v, SIZE_FROM_1);
        });
    }

    fn state(&mut self, json: &Json) {
        let must = [
            "compute",
            "status",
            "bootstrap_complete",
            "retained",
            "resources_released",
            "suspend_settled",
        ];
        let m = self.object(json, &must, &[]);
        self.member(&m, "compute", Self::compute);
        self.member(&m, "status", |l, v| l.state_word(v, 32));
        self.nullable(&m, "retained", Self::retained);
        for name in ["bootstrap_complete", "resources_released", "suspend_settled"] {
            self.member(&m, name, |l, v| {
                l.flag(v);
            });
        }
    }

    fn unsupported(&mut self, json: &Json) {
        let m = self.object(json, &["operation", "reason"], &[]);
        let methods = [
            "Create",
            "GetInfo",
            "Renew",
            "Kill",
            "RunCommand",
            "Observe",
            "Initial",
            "NewCompute",
            "GetCompute",
            "KillCompute",
            "ResumeCompute",
            "RunCommandCompute",
            "Suspend",
            "Resume",
            "DeleteRetained",
        ];
        self.member(&m, "operation", |l, v| l.one_of(v, &methods));
        self.member(&m, "reason", |l, v| {
            l.form(v, |t| {
                (1..=64).contains(&t.len())
                    && of(t, |c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            });
        });
    }
}

fn of(text: &str, allowed: fn(char) -> bool) -> bool {
    text.chars().all(allowed)
}

/// Unicode's Cc.
fn is_control(c: char) -> bool {
    matches!(c, '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}')
}

fn member_of<'j>(json: &'j Json, name: &str) -> Option<&'j Json> {
    match &json.value {
        Value::Object(members) => Members(members).get(name),
        _ => None,
    }
}

fn has(json: &Json, name: &str) -> bool {
    member_of(json, name).is_some()
}

fn text_at<'j>(json: &'j Json, name: &str) -> Option<&'j str> {
    match &member_of(json, name)?.value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

fn integer_at(json: &Json, name: &str) -> Option<i64> {
    match &member_of(json, name)?.value {
        Value::Number(written) => written.parse().ok(),
        _ => None,
    }
}

/// `dddd-dd-ddTdd:dd:dd[.d{1,9}]Z` of a day and time that exist, as nanoseconds counted from the year 0.
fn nanoseconds(text: &str) -> Option<u128> {
    let number = |range: std::ops::Range<usize>| -> Option<u128> {
        let digits = text.get(range)?;
        digits
            .bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| digits.parse().ok())?
    };
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    for (at, expected) in [(4, "-"), (7, "-"), (10, "T"), (13, ":"), (16, ":")] {
        if text.get(at..at + 1)? != expected {
            return None;
        }
    }
    let fraction = match text.get(19..)?.strip_suffix('Z')? {
        "" => 0,
        more => {
            let digits = more.strip_prefix('.')?;
            if digits.is_empty() || digits.len() > 9 || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            digits.parse::<u128>().ok()? * 10u128.pow(9 - digits.len() as u32)
        }
    };
    let leap = |y: u128| (y.is_multiple_of(4) && !y.is_multiple_of(100)) || y.is_multiple_of(400);
    let length = |y: u128, m: u128| match m {
        2 if leap(y) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let exists = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=length(year, month)).contains(&day)
        && hour <= 23
        && minute <= 59
        && second <= 59;
    if !exists {
        return None;
    }
    // An order is enough: months of 31 days keep it.
    let days = (year * 12 + month) * 31 + day;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000_000 + fraction)
}

/// How many bytes canonical padded base64 holds.
fn decoded_length(text: &str) -> Option<usize> {
    const ALPHABET: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let data = text.trim_end_matches('=');
    let padding = text.len() - data.len();
    let fits = text.len().is_multiple_of(4)
        && padding <= 2
        && data.bytes().all(|b| ALPHABET.as_bytes().contains(&b));
    if !fits || (padding > 0 && data.len() % 4 != 4 - padding) {
        return None;
    }
    let last = data
        .chars()
        .last()
        .and_then(|c| ALPHABET.find(c))
        .unwrap_or_default();
    let unused = match padding {
        0 => 0,
        1 => last & 0b11,
        _ => last & 0b1111,
    };
    (unused == 0).then_some(data.len() * 3 / 4)
}

/// Labels of letters, digits and inner hyphens, 1 to 63 bytes each, 253 together with their dots.
fn is_host_name(text: &str) -> bool {
    let label = |label: &str| {
        let bytes = label.as_bytes();
        let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
        label.len() <= 63
            && edge(bytes.first())
            && edge(bytes.last())
            && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

fn is_link_url(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else {
        return false;
    };
    let Some((authority, path)) = rest.split_once('/') else {
        return false;
    };
    let (host, port) = match authority.rfind(']') {
        Some(end) => authority.split_at(end + 1),
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let host_fits = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            (1..=253).contains(&host.len()) && of(host, |c| c.is_ascii_alphanumeric() || "._-".contains(c))
        }
    };
    let port_fits = match port.strip_prefix(':') {
        Some(digits) => {
            !digits.is_empty() && of(digits, |c| c.is_ascii_digit()) && matches!(digits.parse(), Ok(1u16..))
        }
        None => port.is_empty(),
    };
    matches!(scheme, "ws" | "wss") && path == "api/v1/sandbox-link" && host_fits && port_fits
}
