//! Section 3: the frames, apart from what a request or a response is about.

use oac_wire::Direction;

use super::{
    Look, Members, Outcome, POS, SIZE, SIZE_FROM_1, has,
    json::{Json, Value},
};

impl Look<'_> {
    pub(super) fn frame(&mut self, direction: Direction, json: &Json) -> Outcome {
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

    pub(super) fn hello(&mut self, json: &Json) {
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

    pub(super) fn heartbeat(&mut self, json: &Json) {
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

    pub(super) fn connection(&mut self, m: &Members<'_>) {
        self.member(m, "connection_id", Self::uuid);
        self.member(m, "owner_epoch", |l, v| {
            l.integer(v, POS);
        });
    }

    pub(super) fn greeting(&mut self, json: &Json) {
        let m = self.object(
            json,
            &["version", "type", "connection_id", "owner_epoch"],
            &["deployment"],
        );
        self.connection(&m);
        self.member(&m, "deployment", Self::deployment);
    }

    pub(super) fn deployment(&mut self, json: &Json) {
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

    pub(super) fn generation_and_digest(&mut self, m: &Members<'_>) {
        self.member(m, "generation", |l, v| {
            l.integer(v, POS);
        });
        self.member(m, "specification_digest", Self::hex64);
    }

    pub(super) fn identity(&mut self, json: &Json) {
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

    pub(super) fn health(&mut self, json: &Json, managing: bool) {
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

    pub(super) fn distinct_generations(&mut self, items: &[Json]) {
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

    pub(super) fn status(&mut self, json: &Json) {
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

    pub(super) fn retention(&mut self, json: &Json) {
        let m = self.object(json, &["version", "type", "control"], &[]);
        self.member(&m, "control", |l, v| l.control(v, "references"));
    }

    pub(super) fn retention_ack(&mut self, json: &Json) {
        let m = self.object(json, &["version", "type", "control", "deployment"], &[]);
        self.member(&m, "control", |l, v| l.control(v, "retentions"));
        self.member(&m, "deployment", Self::deployment);
    }

    pub(super) fn control(&mut self, json: &Json, entries: &str) {
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
}
