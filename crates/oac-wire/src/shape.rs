//! The declaration of wire types: one macro writes a type's members, its bounds and its rules, and from that one
//! declaration come the type itself, the check of its values, its structure for the second look (`structure`), and
//! its part of the surface file (`surface`).
//!
//! Refused alternative: tables beside the types. Two lists of the same members drift apart.

use std::{borrow::Cow, fmt};

use oac_model::{
    AllocationId, BootId, ComputePhase, ConnectionId, Digest, EnvironmentId, Generation, InstallationId,
    NetworkAccess, NodeId, OperationId, OwnerEpoch, ProjectId, ProviderKind, Reference, RequestId, Secret,
    SessionId, StoreId, Time,
};

use crate::{B64, Nullable, limits, strict::StrictError};

pub(crate) type Checked = Result<(), StrictError>;

/// What stands at a place of a frame, as protocol.md section 2 names it.
#[derive(Debug)]
pub(crate) enum Shape {
    /// A string of a named form.
    Text(&'static str),
    /// A string that is one of these.
    Words(&'static [&'static str]),
    /// A plain integer in signed 64 bits, of a named range.
    Integer(&'static str),
    /// Any finite number.
    Number,
    Bool,
    /// An object whose members are nobody's business here, each of them there once.
    Opaque,
    Nullable(&'static Shape),
    List(&'static Shape),
    Object(&'static Object),
}

#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) name: &'static str,
    pub(crate) members: &'static [Member],
    /// What holds between members.
    pub(crate) rules: &'static [&'static str],
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: &'static str,
    pub(crate) shape: &'static Shape,
    pub(crate) required: bool,
    pub(crate) bound: Option<Bound>,
}

/// Which values of a member's type are allowed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bound {
    Range(i64, i64),
    /// A number from, to.
    Between(f64, f64),
    /// A finite number above.
    Above(f64),
    /// A finite number, at least.
    AtLeast(f64),
    /// Bytes of a string, or of what base64 decodes to; at least, at most.
    Bytes(usize, usize),
    /// Entries of an array; at least, at most.
    Items(usize, usize),
    /// A form, by its description and its test.
    Form(&'static str, fn(&str) -> bool),
}

impl Bound {
    pub(crate) const POS: Self = Self::Range(1, i64::MAX);
    pub(crate) const NAT: Self = Self::Range(0, i64::MAX);

    /// `size`, and at least.
    pub(crate) const fn size(least: i64) -> Self {
        Self::Range(least, limits::SIZE_MAX)
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range(only, most) if only == most => write!(f, "{only}"),
            Self::Range(least, most) => write!(f, "{least}..{most}"),
            Self::Between(least, most) => write!(f, "a number from {least} to {most}"),
            Self::Above(least) => write!(f, "a number above {least}"),
            Self::AtLeast(least) => write!(f, "a number of at least {least}"),
            Self::Bytes(least, most) => write!(f, "{least}..{most} bytes"),
            Self::Items(least, most) => write!(f, "{least}..{most} entries"),
            Self::Form(name, _) => f.write_str(name),
        }
    }
}

/// A type that stands somewhere in a frame.
pub(crate) trait Wire {
    const SHAPE: &'static Shape;
    /// May be absent: `Option`.
    const OPTIONAL: bool = false;

    /// Bounds and rules of this value and of everything in it.
    fn check(&self) -> Checked {
        Ok(())
    }

    /// Whether this value is within `bound`. Nothing is within a bound of another type's kind.
    fn within(&self, _: &Bound) -> bool {
        false
    }
}

const fn must(name: &'static str, shape: &'static Shape) -> Member {
    Member {
        name,
        shape,
        required: true,
        bound: None,
    }
}

macro_rules! leaves {
    ($($type:ty = $shape:expr;)*) => { $(
        impl Wire for $type { const SHAPE: &'static Shape = &$shape; }
    )* };
}

const UUID: Shape = Shape::Text("uuid");

leaves! {
    AllocationId = UUID;
    BootId = UUID;
    ConnectionId = UUID;
    EnvironmentId = UUID;
    InstallationId = UUID;
    NodeId = UUID;
    OperationId = UUID;
    ProjectId = UUID;
    RequestId = UUID;
    SessionId = UUID;
    StoreId = UUID;
    Digest = Shape::Text("hex64");
    Time = Shape::Text("time");
    Generation = Shape::Integer("pos");
    OwnerEpoch = Shape::Integer("pos");
    bool = Shape::Bool;
    NetworkAccess = Shape::Words(&["none", "restricted", "public"]);
    ComputePhase = Shape::Words(&[
        "disabled", "running", "quiescing", "suspending", "suspended", "restoring", "waking",
    ]);
    Reference = Shape::Object(&Object {
        name: "reference",
        members: &[
            must("tenant_id", ProjectId::SHAPE),
            must("environment_id", EnvironmentId::SHAPE),
            must("allocation_id", AllocationId::SHAPE),
        ],
        rules: &[],
    });
}

impl Wire for ProviderKind {
    const SHAPE: &'static Shape = &Shape::Words(&["docker", "microsandbox"]);

    fn check(&self) -> Checked {
        match self {
            Self::Docker | Self::Microsandbox => Ok(()),
            Self::E2b => Err(StrictError::broken("`docker` or `microsandbox`")),
        }
    }
}

impl Wire for i64 {
    const SHAPE: &'static Shape = &Shape::Integer("integer");

    fn within(&self, bound: &Bound) -> bool {
        matches!(bound, Bound::Range(least, most) if (*least..=*most).contains(self))
    }
}

impl Wire for u32 {
    const SHAPE: &'static Shape = i64::SHAPE;

    fn within(&self, bound: &Bound) -> bool {
        i64::from(*self).within(bound)
    }
}

impl Wire for f64 {
    const SHAPE: &'static Shape = &Shape::Number;

    fn within(&self, bound: &Bound) -> bool {
        match bound {
            Bound::Between(least, most) => (*least..=*most).contains(self),
            Bound::Above(least) => self.is_finite() && self > least,
            Bound::AtLeast(least) => self.is_finite() && self >= least,
            _ => false,
        }
    }
}

impl Wire for String {
    const SHAPE: &'static Shape = &Shape::Text("string");

    fn within(&self, bound: &Bound) -> bool {
        match bound {
            Bound::Bytes(least, most) => (*least..=*most).contains(&self.len()),
            Bound::Form(_, holds) => holds(self),
            _ => false,
        }
    }
}

impl Wire for Secret {
    const SHAPE: &'static Shape = String::SHAPE;

    fn within(&self, bound: &Bound) -> bool {
        matches!(bound, Bound::Form(_, holds) if holds(self.expose()))
    }
}

impl Wire for B64 {
    const SHAPE: &'static Shape = &Shape::Text("b64");

    fn within(&self, bound: &Bound) -> bool {
        matches!(bound, Bound::Bytes(least, most) if (*least..=*most).contains(&self.0.len()))
    }
}

impl<T: Wire> Wire for Nullable<T> {
    const SHAPE: &'static Shape = &Shape::Nullable(T::SHAPE);

    fn check(&self) -> Checked {
        self.0.check()
    }

    fn within(&self, bound: &Bound) -> bool {
        self.0.within(bound)
    }
}

impl<T: Wire> Wire for Option<T> {
    const SHAPE: &'static Shape = T::SHAPE;
    const OPTIONAL: bool = true;

    fn check(&self) -> Checked {
        self.as_ref().map_or(Ok(()), T::check)
    }

    fn within(&self, bound: &Bound) -> bool {
        self.as_ref().is_none_or(|v| v.within(bound))
    }
}

impl<T: Wire> Wire for Box<T> {
    const SHAPE: &'static Shape = T::SHAPE;

    fn check(&self) -> Checked {
        T::check(self)
    }
}

impl<T: Wire + Clone> Wire for Cow<'_, T> {
    const SHAPE: &'static Shape = T::SHAPE;

    fn check(&self) -> Checked {
        T::check(self)
    }

    fn within(&self, bound: &Bound) -> bool {
        T::within(self, bound)
    }
}

impl<T: Wire> Wire for Vec<T> {
    const SHAPE: &'static Shape = &Shape::List(T::SHAPE);

    fn check(&self) -> Checked {
        for (index, item) in self.iter().enumerate() {
            item.check().map_err(|e| e.within(&format!("[{index}]")))?;
        }
        Ok(())
    }

    fn within(&self, bound: &Bound) -> bool {
        matches!(bound, Bound::Items(least, most) if (*least..=*most).contains(&self.len()))
    }
}

/// Declares an object of the wire: its name in the surface, members as in a struct, each with `[absent]` where a
/// `Nullable` may also be absent and `where` its bound, then the rules between members.
///
/// Whether a member may be absent is said twice, to serde by its attribute and here by `Option` or `[absent]`; the test
/// `every_member_is_as_required_as_the_surface_says` holds the two together.
macro_rules! wire {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident $(<$life:lifetime>)? = $text:literal {
            $(
                $(#[$member_meta:meta])*
                $member_vis:vis $member:ident : $type:ty $([$absent:ident])? $(where $bound:expr)?
            ),* $(,)?
        }
        $(rules { $($rule:literal => $holds:expr),* $(,)? })?
    ) => {
        $(#[$meta])*
        #[serde(deny_unknown_fields)]
        $vis struct $name $(<$life>)? {
            $( $(#[$member_meta])* $member_vis $member: $type ),*
        }

        impl $(<$life>)? $crate::shape::Wire for $name $(<$life>)? {
            const SHAPE: &'static $crate::shape::Shape =
                &$crate::shape::Shape::Object(&$crate::shape::Object {
                    name: $text,
                    members: &[$(
                        $crate::shape::Member {
                            name: stringify!($member),
                            shape: <$type as $crate::shape::Wire>::SHAPE,
                            required: !<$type as $crate::shape::Wire>::OPTIONAL
                                $(&& stringify!($absent).is_empty())?,
                            bound: $crate::shape::bound!($($bound)?),
                        }
                    ),*],
                    rules: &[$($($rule),*)?],
                });

            fn check(&self) -> $crate::shape::Checked {
                $(
                    $crate::shape::check_member(
                        stringify!($member),
                        &self.$member,
                        $crate::shape::bound!($($bound)?),
                    )?;
                )*
                $($( $crate::shape::check_rule(self, $rule, $holds)?; )*)?
                Ok(())
            }
        }
    };
}

macro_rules! bound {
    () => {
        None
    };
    ($bound:expr) => {
        Some($bound)
    };
}

pub(crate) use {bound, wire};

pub(crate) fn check_member<T: Wire>(name: &str, value: &T, bound: Option<Bound>) -> Checked {
    if let Some(bound) = bound
        && !value.within(&bound)
    {
        return Err(StrictError::broken(bound).within(name));
    }
    value.check().map_err(|e| e.within(name))
}

/// A rule between members names them itself, so the path ends at their object.
pub(crate) fn check_rule<T>(value: &T, text: &str, holds: fn(&T) -> bool) -> Checked {
    if holds(value) {
        Ok(())
    } else {
        Err(StrictError::broken(text))
    }
}
