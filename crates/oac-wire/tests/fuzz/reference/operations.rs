//! Section 7: requests, responses and their shapes.

use super::{
    Look, MIB, NAT, Outcome, POS, SIZE, SIZE_FROM_1,
    forms::{is_control, is_host_name, is_link_url, of},
    integer_at,
    json::{Json, Value},
    member_of, text_at,
};

impl Look<'_> {
    pub(super) fn request(&mut self, json: &Json) -> Outcome {
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

    pub(super) fn reference(&mut self, json: &Json) {
        let m = self.object(json, &["tenant_id", "environment_id", "allocation_id"], &[]);
        for name in ["tenant_id", "environment_id", "allocation_id"] {
            self.member(&m, name, Self::uuid);
        }
    }

    /// A reference that is to equal the request's.
    pub(super) fn same_reference(&mut self, json: &Json, request: Option<&Json>) {
        self.reference(json);
        for name in ["tenant_id", "environment_id", "allocation_id"] {
            self.allow(text_at(json, name) == request.and_then(|r| text_at(r, name)));
        }
    }

    pub(super) fn bootstrap(&mut self, json: &Json, request: Option<&Json>) {
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

    pub(super) fn link(&mut self, json: &Json, request: Option<&Json>) {
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

    pub(super) fn workspace(&mut self, json: &Json) {
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

    pub(super) fn command(&mut self, json: &Json) {
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

    pub(super) fn retained(&mut self, json: &Json) {
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

    pub(super) fn compute(&mut self, json: &Json) {
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

    pub(super) fn suspend(&mut self, json: &Json, request: Option<&Json>) {
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

    pub(super) fn resume(&mut self, json: &Json, request: Option<&Json>) {
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

    pub(super) fn same_checkpoint(&self, a: &Json, b: &Json) -> bool {
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

    pub(super) fn observation(&mut self, json: &Json) {
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

    pub(super) fn response(&mut self, json: &Json) -> Outcome {
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

    pub(super) fn info(&mut self, json: &Json) {
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

    pub(super) fn command_result(&mut self, json: &Json) {
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

    pub(super) fn sample(&mut self, json: &Json) {
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

    pub(super) fn state(&mut self, json: &Json) {
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

    pub(super) fn unsupported(&mut self, json: &Json) {
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
