//! From table columns to model types and back, in one place, so that a row struct's field list is all there is to say
//! about a table.

use std::collections::BTreeMap;

use oac_model::{
    AllocationState, ComputePhase, DiagnosticCode, Digest, Generation, Network, OwnerEpoch, ProviderKind,
    SessionState, Specification, Time, TurnState,
};
use sea_orm::{QueryResult, TryGetable, Value};
use uuid::Uuid;

use crate::StoreError;

/// Node labels and a Session's required labels.
pub type Labels = BTreeMap<String, String>;
/// A Session's metadata.
pub type Metadata = BTreeMap<String, String>;

/// One row of an answer.
pub(crate) struct Row(pub(crate) QueryResult);

impl Row {
    pub(crate) fn get<T: Column>(&self, column: &str) -> Result<T, StoreError> {
        T::read(self, column)
    }

    fn raw<T: TryGetable>(&self, column: &str) -> Result<Option<T>, StoreError> {
        self.0
            .try_get_by::<Option<T>, _>(column)
            .map_err(|_| StoreError::Stored {
                column: column.to_owned(),
            })
    }
}

/// A type one column holds, never null.
pub(crate) trait Field: Sized {
    fn decode(row: &Row, column: &str) -> Result<Option<Self>, StoreError>;
    /// The bound value, or the typed null of this column.
    fn encode(value: Option<&Self>) -> Value;
}

/// A column: a [`Field`], or one that may be null.
pub(crate) trait Column: Sized {
    fn read(row: &Row, column: &str) -> Result<Self, StoreError>;
    fn bind(&self) -> Value;
}

impl<F: Field> Column for F {
    fn read(row: &Row, column: &str) -> Result<Self, StoreError> {
        F::decode(row, column)?.ok_or_else(|| StoreError::Stored {
            column: column.to_owned(),
        })
    }

    fn bind(&self) -> Value {
        F::encode(Some(self))
    }
}

impl<F: Field> Column for Option<F> {
    fn read(row: &Row, column: &str) -> Result<Self, StoreError> {
        F::decode(row, column)
    }

    fn bind(&self) -> Value {
        F::encode(self.as_ref())
    }
}

/// A struct whose fields are the columns of one table.
pub(crate) trait Stored: Sized {
    const TABLE: &'static str;
    const COLUMNS: &'static [&'static str];
    fn from_row(row: &Row) -> Result<Self, StoreError>;
    fn values(&self) -> Vec<Value>;

    /// The column list, each name behind `prefix` (such as `n.`).
    fn list(prefix: &str) -> String {
        let mut list = String::with_capacity(Self::COLUMNS.len() * 20);
        for (i, column) in Self::COLUMNS.iter().enumerate() {
            if i > 0 {
                list.push_str(", ");
            }
            list.push_str(prefix);
            list.push_str(column);
        }
        list
    }
}

macro_rules! stored {
    ($(#[$doc:meta])* $name:ident in $table:literal {
        $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)?
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name { $($(#[$field_doc])* pub $field: $type),* }

        impl $crate::row::Stored for $name {
            const TABLE: &'static str = $table;
            const COLUMNS: &'static [&'static str] = &[$(stringify!($field)),*];

            fn from_row(row: &$crate::row::Row) -> Result<Self, $crate::StoreError> {
                Ok(Self { $($field: row.get(stringify!($field))?),* })
            }

            fn values(&self) -> Vec<sea_orm::Value> {
                vec![$($crate::row::Column::bind(&self.$field)),*]
            }
        }
    };
}
pub(crate) use stored;

macro_rules! params {
    ($($value:expr),* $(,)?) => { vec![$($crate::row::Column::bind(&$value)),*] };
}
pub(crate) use params;

impl Field for Uuid {
    fn decode(row: &Row, column: &str) -> Result<Option<Self>, StoreError> {
        row.raw(column)
    }

    fn encode(value: Option<&Self>) -> Value {
        Value::Uuid(value.copied())
    }
}

macro_rules! id_fields {
    ($($id:ident),* $(,)?) => { $(
        impl Field for oac_model::$id {
            fn decode(row: &Row, column: &str) -> Result<Option<Self>, StoreError> {
                Uuid::decode(row, column)?.map(|id| checked(Self::from_uuid(id), column)).transpose()
            }

            fn encode(value: Option<&Self>) -> Value {
                Value::Uuid(value.map(|id| id.as_uuid()))
            }
        }
    )* };
}

id_fields! {
    InstallationId, ProjectId, EnvironmentId, AllocationId, SessionId, InputId, TurnId, PlacementId, NodeId,
    EnrollmentId, ConnectionId, OperationId, CoreKeyId, ProjectKeyId, ConsoleSessionId, InstanceId, BootId, StoreId,
    AuditId, FileOperationId,
}

macro_rules! text_fields {
    ($($type:ty),* $(,)?) => { $(
        impl Field for $type {
            fn decode(row: &Row, column: &str) -> Result<Option<Self>, StoreError> {
                row.raw::<String>(column)?.map(|text| checked(Self::from_text(&text), column)).transpose()
            }

            fn encode(value: Option<&Self>) -> Value {
                Value::String(value.map(|v| v.as_str().to_owned()))
            }
        }
    )* };
}

text_fields! {
    AllocationState, ComputePhase, ProviderKind, SessionState, TurnState, crate::NodeLimits, crate::ObservationStatus, crate::TokenLimits,
    crate::ResetClear, crate::DrainIdle, crate::DrainThen, crate::DrainRetained, crate::GenerationState,
    crate::Initialization, crate::CleanupCause, crate::AllocationDiagnostic, crate::OperationKind,
    crate::OperationState, crate::Dispatch, crate::OutputStream, crate::EventKind,
    crate::FileOperationKind, crate::FileOperationState,
}

macro_rules! json_fields {
    ($($type:ty),* $(,)?) => { $(
        impl Field for $type {
            fn decode(row: &Row, column: &str) -> Result<Option<Self>, StoreError> {
                row.raw::<String>(column)?
                    .map(|text| checked(serde_json::from_str(&text).ok(), column))
                    .transpose()
            }

            fn encode(value: Option<&Self>) -> Value {
                // Plain data with string keys always serializes.
                Value::String(value.map(|v| serde_json::to_string(v).unwrap_or_default()))
            }
        }
    )* };
}

json_fields! { Labels, Network, Specification, Vec<String>, serde_json::Value }

macro_rules! number_fields {
    ($($type:ty),* $(,)?) => { $(
        impl Field for $type {
            fn decode(row: &Row, column: &str) -> Result<Option<Self>, StoreError> {
                row.raw::<i64>(column)?.map(|n| checked(Self::try_from(n).ok(), column)).transpose()
            }

            fn encode(value: Option<&Self>) -> Value {
                // Sizes beyond 2^63 do not occur; held at the top rather than wrapped.
                Value::BigInt(value.map(|n| i64::try_from(*n).unwrap_or(i64::MAX)))
            }
        }
    )* };
}

number_fields! { u32, u64 }

macro_rules! positive_fields {
    ($($type:ty),* $(,)?) => { $(
        impl Field for $type {
            fn decode(row: &Row, column: &str) -> Result<Option<Self>, StoreError> {
                row.raw::<i64>(column)?.map(|n| checked(Self::try_from(n).ok(), column)).transpose()
            }

            fn encode(value: Option<&Self>) -> Value {
                Value::BigInt(value.map(|n| n.get()))
            }
        }
    )* };
}

positive_fields! { Generation, OwnerEpoch }

impl Field for Time {
    fn decode(row: &Row, column: &str) -> Result<Option<Self>, StoreError> {
        row.raw::<i64>(column)?
            .map(|ms| checked(Self::from_millis(ms), column))
            .transpose()
    }

    fn encode(value: Option<&Self>) -> Value {
        Value::BigInt(value.map(|time| time.millis()))
    }
}

impl Field for Digest {
    fn decode(row: &Row, column: &str) -> Result<Option<Self>, StoreError> {
        row.raw::<Vec<u8>>(column)?
            .map(|bytes| checked(<[u8; 32]>::try_from(bytes).ok().map(Self::from_bytes), column))
            .transpose()
    }

    fn encode(value: Option<&Self>) -> Value {
        Value::Bytes(value.map(|digest| digest.as_bytes().to_vec()))
    }
}

impl Field for DiagnosticCode {
    fn decode(row: &Row, column: &str) -> Result<Option<Self>, StoreError> {
        Ok(row.raw::<String>(column)?.map(|text| Self::from_token(&text)))
    }

    fn encode(value: Option<&Self>) -> Value {
        Value::String(value.map(|code| code.as_str().to_owned()))
    }
}

macro_rules! plain_fields {
    ($($type:ty => $variant:ident),* $(,)?) => { $(
        impl Field for $type {
            fn decode(row: &Row, column: &str) -> Result<Option<Self>, StoreError> {
                row.raw(column)
            }

            fn encode(value: Option<&Self>) -> Value {
                Value::$variant(value.cloned())
            }
        }
    )* };
}

plain_fields! { bool => Bool, i64 => BigInt, f64 => Double, String => String, Vec<u8> => Bytes }

fn checked<T>(value: Option<T>, column: &str) -> Result<T, StoreError> {
    value.ok_or_else(|| StoreError::Stored {
        column: column.to_owned(),
    })
}
