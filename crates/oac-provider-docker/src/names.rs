//! Derived names and ownership labels.

use std::collections::HashMap;

use oac_model::{InstallationId, Reference};

pub(crate) const LABEL_INSTALLATION: &str = "io.oac.installation";
const LABEL_TENANT: &str = "io.oac.tenant";
const LABEL_ENVIRONMENT: &str = "io.oac.environment";
const LABEL_ALLOCATION: &str = "io.oac.allocation";

/// The native names of one reference, and the labels whose equality is ownership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) container: String,
    pub(crate) home: String,
    pub(crate) environment: String,
    pub(crate) labels: [(&'static str, String); 4],
}

pub(crate) type Labels = HashMap<String, String>;

impl Names {
    pub(crate) fn of(installation: InstallationId, reference: &Reference) -> Self {
        let container = format!("oac-runtime-{}", reference.native_hash(installation));
        Self {
            home: format!("{container}-home"),
            environment: format!("{container}-environment"),
            container,
            labels: [
                (LABEL_INSTALLATION, installation.to_string()),
                (LABEL_TENANT, reference.tenant_id.to_string()),
                (LABEL_ENVIRONMENT, reference.environment_id.to_string()),
                (LABEL_ALLOCATION, reference.allocation_id.to_string()),
            ],
        }
    }

    pub(crate) fn own(&self, labels: &Labels) -> bool {
        self.labels
            .iter()
            .all(|(key, value)| labels.get(*key) == Some(value))
    }

    pub(crate) fn label_map(&self) -> serde_json::Value {
        self.labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.clone().into()))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    /// The engine's filter for exactly these labels.
    pub(crate) fn filter(&self) -> serde_json::Value {
        let all: Vec<String> = self.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
        serde_json::json!({ "label": all })
    }
}

/// The reference that four labels of `installation` name; `None` when one is missing, another's or no id.
pub(crate) fn reference_of(installation: InstallationId, labels: &Labels) -> Option<Reference> {
    if labels.get(LABEL_INSTALLATION) != Some(&installation.to_string()) {
        return None;
    }
    Some(Reference {
        tenant_id: labels.get(LABEL_TENANT)?.parse().ok()?,
        environment_id: labels.get(LABEL_ENVIRONMENT)?.parse().ok()?,
        allocation_id: labels.get(LABEL_ALLOCATION)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_of_the_design_example() {
        let id = |d: &str| {
            format!(
                "{}-{}-4{}-8{}-{}",
                d.repeat(8),
                d.repeat(4),
                d.repeat(3),
                d.repeat(3),
                d.repeat(12)
            )
        };
        let installation = id("1").parse().unwrap();
        let reference = Reference {
            tenant_id: id("2").parse().unwrap(),
            environment_id: id("3").parse().unwrap(),
            allocation_id: id("4").parse().unwrap(),
        };
        let names = Names::of(installation, &reference);
        assert_eq!(names.container, "oac-runtime-1fc88697ea621787190e302f34820683");
        assert_eq!(names.home, "oac-runtime-1fc88697ea621787190e302f34820683-home");
        assert_eq!(
            names.environment,
            "oac-runtime-1fc88697ea621787190e302f34820683-environment"
        );
        let mut labels: Labels = names
            .labels
            .iter()
            .map(|(k, v)| ((*k).into(), v.clone()))
            .collect();
        assert!(names.own(&labels));
        assert_eq!(reference_of(installation, &labels), Some(reference));
        for key in [
            LABEL_INSTALLATION,
            LABEL_TENANT,
            LABEL_ENVIRONMENT,
            LABEL_ALLOCATION,
        ] {
            let kept = labels.insert(key.into(), id("5")).unwrap();
            assert!(!names.own(&labels), "{key}");
            labels.remove(key);
            assert!(!names.own(&labels), "{key}");
            assert_eq!(reference_of(installation, &labels), None);
            labels.insert(key.into(), kept);
        }
    }
}
