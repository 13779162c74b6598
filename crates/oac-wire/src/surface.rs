//! The surface of the protocol as text: every frame, object, member, type, bound and rule, written from the types.
//!
//! One checked-in file per version, `surface-v1.txt`, shows what a version is; a test compares. Whatever changes it
//! changes what two programs of one version can say to each other.

use std::fmt::Write as _;

use crate::{
    PROTOCOL_VERSION,
    codec::FRAMES,
    shape::{Member, Object, Shape},
    shapes::Operation,
};

/// The surface of [`PROTOCOL_VERSION`].
pub fn surface() -> String {
    let mut text = String::new();
    let mut line = |said: &str| {
        text.push_str(said.trim_end());
        text.push('\n');
    };
    line(&format!("Node protocol, version {PROTOCOL_VERSION}"));
    line("");
    line("Written from the types of oac-wire; a change of this file is a change of the protocol.");
    line(
        "Members: name, ? for may be absent, type, bound. Types and bounds are those of protocol.md section 2.",
    );
    line(&format!(
        "Each frame is an object that also holds version, the integer {PROTOCOL_VERSION}, and type."
    ));
    let mut objects: Vec<&'static Object> = Vec::new();
    for frame in FRAMES {
        line("");
        line(&format!(
            "frame {} from {}, at most {} bytes",
            frame.kind, frame.sender, frame.limit
        ));
        if let Shape::Object(object) = frame.shape {
            members(object, &mut line);
            collect(object, &mut objects);
        }
    }
    for object in objects {
        line("");
        line(&format!("object {}", object.name));
        members(object, &mut line);
    }
    line("");
    line("operations: name, method, arguments, result member");
    for operation in Operation::ALL {
        let arguments: Vec<String> = operation
            .arguments()
            .iter()
            .map(|a| format!("{}{}", a.name, if a.required { "" } else { "?" }))
            .collect();
        line(&format!(
            "  {:<16}{:<20}{:<24}{}",
            operation.as_str(),
            operation.method(),
            arguments.join(", "),
            operation.result_member().unwrap_or("none")
        ));
    }
    text
}

fn members(object: &Object, line: &mut impl FnMut(&str)) {
    for member in object.members {
        let optional = if member.required { "" } else { "?" };
        let bound = member.bound.map(|b| b.to_string()).unwrap_or_default();
        line(&format!(
            "  {:<26}{:<30}{bound}",
            format!("{}{optional}", member.name),
            type_name(member)
        ));
    }
    for rule in object.rules {
        line(&format!("  rule: {rule}"));
    }
}

/// Every object below `object`, each once, in the order in which a reader meets them.
fn collect(object: &'static Object, objects: &mut Vec<&'static Object>) {
    for member in object.members {
        let mut shape = member.shape;
        while let Shape::Nullable(inner) | Shape::List(inner) = shape {
            shape = inner;
        }
        if let Shape::Object(inner) = shape
            && !objects.iter().any(|known| known.name == inner.name)
        {
            objects.push(inner);
            collect(inner, objects);
        }
    }
}

fn type_name(member: &Member) -> String {
    let mut shape = member.shape;
    let (mut lists, mut nullable) = (String::new(), "");
    let name = loop {
        match shape {
            Shape::Nullable(inner) => {
                nullable = "|null";
                shape = inner;
            }
            Shape::List(inner) => {
                lists.push_str("array of ");
                shape = inner;
            }
            Shape::Text(name) | Shape::Integer(name) => break (*name).to_owned(),
            Shape::Words(words) => break words.join("|"),
            Shape::Number => break "number".to_owned(),
            Shape::Bool => break "bool".to_owned(),
            Shape::Opaque => break "opaque object of at most 65536 bytes".to_owned(),
            Shape::Object(object) => break object.name.to_owned(),
        }
    };
    let mut text = lists;
    // Writing to a string cannot fail.
    let _ = write!(text, "{name}{nullable}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_one_name_are_one_object_and_fit_the_reader_of_structure() {
        fn walk(object: &'static Object, seen: &mut Vec<(&'static str, String)>) {
            assert!(object.members.len() <= 32, "{}", object.name);
            let shown = format!("{object:?}");
            if let Some((_, other)) = seen.iter().find(|(name, _)| *name == object.name) {
                assert_eq!(*other, shown, "{}", object.name);
                return;
            }
            seen.push((object.name, shown));
            for member in object.members {
                let mut shape = member.shape;
                while let Shape::Nullable(inner) | Shape::List(inner) = shape {
                    shape = inner;
                }
                if let Shape::Object(inner) = shape {
                    walk(inner, seen);
                }
            }
        }
        let mut seen = Vec::new();
        for frame in FRAMES {
            if let Shape::Object(object) = frame.shape {
                walk(object, &mut seen);
            }
        }
    }
}
