//! A request that acts, sent until its answer is known. Its Idempotency-Key makes all sendings one: Core answers the first
//! one's answer again and does nothing twice (sessions.md section 2). A request without such a key is never repeated.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::Failure;

/// A first, uncertain answer is asked about again after this long, then after twice as long, up to the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));
/// From then on it is worth a word.
const NOTICE: Duration = Duration::from_secs(5);
/// From then on the outcome stays unknown.
const GIVE_UP: Duration = Duration::from_secs(5 * 60);

/// How a request that acts came out.
#[derive(Debug)]
pub enum Outcome<T> {
    Answered(T),
    /// It did not act.
    Refused(Failure),
    /// It may have acted; this was the last trouble.
    Unknown(Failure),
}

/// A fresh key.
pub fn key() -> String {
    format!("oac-{}", uuid::Uuid::new_v4())
}

/// Sends with `send` until the answer is known, for a bounded time. `slow` is told the last trouble, once, when that takes a
/// while.
pub async fn send<T>(
    mut send: impl AsyncFnMut() -> Result<T, Failure>,
    slow: impl Fn(&Failure),
) -> Outcome<T> {
    let since = Instant::now();
    let (mut pause, mut uncertain, mut noticed) = (PAUSE.0, false, false);
    loop {
        let failure = match send().await {
            Ok(answer) => return Outcome::Answered(answer),
            Err(failure) => failure,
        };
        match bearing(&failure) {
            Bearing::MayHaveActed => uncertain = true,
            Bearing::AskAgain => {}
            Bearing::NotSent if uncertain => {}
            Bearing::InProgress if uncertain => {}
            _ => return Outcome::Refused(failure),
        }
        if since.elapsed() >= GIVE_UP {
            return if uncertain {
                Outcome::Unknown(failure)
            } else {
                Outcome::Refused(failure)
            };
        }
        if !noticed && since.elapsed() >= NOTICE {
            noticed = true;
            slow(&failure);
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}

/// What a failure says about the request.
#[derive(Debug, PartialEq, Eq)]
enum Bearing {
    MayHaveActed,
    /// A standby: it did nothing, and another Core will answer soon.
    AskAgain,
    /// The same key is being answered right now.
    InProgress,
    /// It never left.
    NotSent,
    No,
}

fn bearing(failure: &Failure) -> Bearing {
    match failure {
        Failure::Unreachable { source, .. } if source.is_connect() => Bearing::NotSent,
        Failure::Unreachable { .. } | Failure::NoAnswer { .. } => Bearing::MayHaveActed,
        // A proxy's own page: what was behind it is unknown.
        Failure::NotCore { status, .. } if *status >= 500 => Bearing::MayHaveActed,
        Failure::Refused { status, code, .. } => match (*status, code.as_deref()) {
            (503, Some("core_standby")) => Bearing::AskAgain,
            (409, Some("idempotency_conflict")) => Bearing::InProgress,
            (500 | 502 | 504, _) => Bearing::MayHaveActed,
            _ => Bearing::No,
        },
        _ => Bearing::No,
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, time::Duration};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_keeps_a_request_waiting_is_told_once_and_by_name() {
        let told = RefCell::new(Vec::new());
        let since = Instant::now();
        let send = async || {
            if since.elapsed() > Duration::from_secs(30) {
                return Ok(());
            }
            Err(Failure::Refused {
                status: 503,
                code: Some("core_standby".to_owned()),
                message: "This Core stands by.".to_owned(),
                retry_after: None,
            })
        };
        let outcome = super::send(send, |failure| told.borrow_mut().push(failure.to_string())).await;
        assert!(matches!(outcome, Outcome::Answered(())));
        assert_eq!(told.into_inner(), ["This Core stands by. (core_standby)"]);
    }
}
