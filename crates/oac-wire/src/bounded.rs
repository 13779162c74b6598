//! Arrays of strings in large frames: what a peer may send in 72 MiB must not become gigabytes of empty strings.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{self, SeqAccess, Visitor},
};

/// Reads an array and stops with an error at the first entry above `MOST`.
pub(crate) fn at_most<'de, const MOST: usize, T, D>(d: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    struct ListVisitor<const MOST: usize, T>(PhantomData<T>);

    impl<'de, const MOST: usize, T: Deserialize<'de>> Visitor<'de> for ListVisitor<MOST, T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Vec<T>, A::Error> {
            let mut items = Vec::new();
            while let Some(item) = access.next_element()? {
                if items.len() == MOST {
                    return Err(de::Error::custom(format_args!("expected at most {MOST} entries")));
                }
                items.push(item);
            }
            Ok(items)
        }
    }

    d.deserialize_seq(ListVisitor::<MOST, T>(PhantomData))
}
