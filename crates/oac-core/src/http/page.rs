//! Lists in pages: `?cursor=&limit=` in, `{data, next}` out.

use serde::{Deserialize, Serialize};

use super::{ApiError, limits};

/// The query of a list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// The `next` of the page before.
    #[param(nullable = false)]
    pub cursor: Option<String>,
    /// Rows of a page, 1 to 100; 100 without it.
    #[param(nullable = false, minimum = 1, maximum = 100)]
    pub limit: Option<u64>,
}

/// One page of a list.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Page<T> {
    pub data: Vec<T>,
    /// The cursor of the following page; null on the last.
    #[schema(required)]
    pub next: Option<String>,
}

impl PageQuery {
    /// Rows asked for; 400 outside 1..100.
    pub fn limit(&self) -> Result<u64, ApiError> {
        match self.limit {
            None => Ok(limits::PAGE_ROWS),
            Some(n) if (1..=limits::PAGE_ROWS).contains(&n) => Ok(n),
            Some(_) => Err(ApiError::invalid_member(
                "limit",
                format!("limit must be 1 to {}: correct it.", limits::PAGE_ROWS),
            )),
        }
    }

    /// What the cursor names, such as the id of the last row shown; 400 for text that no page gave out.
    pub fn after<C: std::str::FromStr>(&self) -> Result<Option<C>, ApiError> {
        self.cursor.as_deref().map(str::parse).transpose().map_err(|_| {
            ApiError::invalid_member(
                "cursor",
                "cursor is not one that a page gave out: start without it.",
            )
        })
    }
}

impl<T> Page<T> {
    /// The first `limit` of `rows`, which were asked for one more than that; `cursor` names a row for [`PageQuery::after`].
    pub fn of<R>(
        mut rows: Vec<R>,
        limit: u64,
        cursor: impl Fn(&R) -> String,
        show: impl FnMut(R) -> T,
    ) -> Self {
        let more = rows.len() as u64 > limit;
        rows.truncate(limit as usize);
        let next = rows.last().filter(|_| more).map(cursor);
        Self {
            data: rows.into_iter().map(show).collect(),
            next,
        }
    }
}
