//! Follows one Turn's output into the store (sessions.md section 7, "Output offsets").
//!
//! A batch is everything that has arrived while the previous one was being stored. Batch and new offset are one
//! transaction; only then is the offset acknowledged (INV-S5), beside the next batch. The first transaction also
//! stores that the runtime has the Turn, and the last one how it ended and that the next Turn is sent, so that a
//! short command costs two transactions in all.

use std::{future::Future, pin::Pin, sync::Arc};

use oac_link::{
    OutputError, OutputItem,
    service::{Ack, Cancel, OutputStreamName},
};
use oac_model::{InstanceId, TurnId};
use oac_store::{OutputStream, TurnRow};
use tokio::time::{Instant, sleep_until};

use super::{
    batch::Batch,
    drive::{Trouble, lost},
    ledger::{self, Job},
    settle::{Exit, Settlement},
};
use crate::{Core, limits, link::Link};

pub(super) enum End {
    /// Settled by this; `next` was recorded as sent in the same transaction.
    Settled { next: Option<Job>, offset: u64 },
    /// It is terminal already, or another driver is ahead.
    Elsewhere,
    /// The runtime cannot continue from the stored offset: its log is gone or shorter.
    Lost { job: TurnRow },
}

type Call<'a> = Pin<Box<dyn Future<Output = Result<bool, Trouble>> + Send + 'a>>;

/// From the stored offset to the exit record.
pub(super) async fn follow(
    core: &Arc<Core>,
    link: &Arc<Link>,
    mut turn: TurnRow,
    mut confirmed: Option<InstanceId>,
) -> Result<End, Trouble> {
    let client = link.admit(core).await?;
    let mut output = match client.output(turn.id, turn.output_bytes).await {
        Ok(output) => output,
        Err(error) if lost(&error) => return Ok(End::Lost { job: turn }),
        Err(OutputError::Call(error)) => return Err(error.into()),
        Err(_) => return Ok(End::Elsewhere),
    };
    // Stored with the first output, unless that takes its time.
    let confirm_at = Instant::now() + limits::CONFIRM_WAIT;
    let mut acks = Acks::default();
    let mut batch = Batch::at(turn.output_bytes);
    // When bytes that are only counted are counted; each time costs a transaction that stores nothing else.
    let mut count_at: Option<Instant> = None;
    let mut cancel: Option<Call<'_>> = turn.cancel_requested_at.map(|_| cancel(core, link, turn.id));
    loop {
        tokio::select! {
            items = output.next_batch(limits::MAX_BATCH_BYTES as usize) => {
                let exit = receive(turn.id, &mut batch, items?)?;
                if let Some(exit) = exit {
                    let settlement = Settlement::of(&exit);
                    let settled = ledger::settle_ended(core, link, &turn, confirmed, &batch, &settlement).await?;
                    return Ok(match settled {
                        Some(next) => End::Settled { next, offset: batch.end() },
                        None => End::Elsewhere,
                    });
                }
                if batch.rows().is_empty() {
                    count_at.get_or_insert(Instant::now() + limits::COUNT_WAIT);
                } else if !store(core, &mut turn, confirmed.take(), &mut batch, &mut acks).await? {
                    return Ok(End::Elsewhere);
                }
            }
            () = at(count_at) => {
                count_at = None;
                if !store(core, &mut turn, confirmed.take(), &mut batch, &mut acks).await? {
                    return Ok(End::Elsewhere);
                }
            }
            () = sleep_until(confirm_at), if confirmed.is_some() => {
                if !ledger::store_output(core, &turn, confirmed.take(), &Batch::at(turn.output_bytes)).await? {
                    return Ok(End::Elsewhere);
                }
            }
            () = link.wake.notified() => {
                match ledger::turn(core, turn.id).await? {
                    Some(now) if !now.state.is_terminal() => {
                        if now.cancel_requested_at.is_some() && turn.cancel_requested_at.is_none() {
                            turn.cancel_requested_at = now.cancel_requested_at;
                            cancel = Some(self::cancel(core, link, turn.id));
                        }
                    }
                    _ => return Ok(End::Elsewhere),
                }
            }
            sent = pending(&mut cancel) => {
                cancel = None;
                sent?;
            }
            acked = acks.next(core, link, turn.id) => acked?,
        }
    }
}

/// Stores the batch, and begins the next one. False when the Turn is not where the batch continues from.
async fn store(
    core: &Arc<Core>,
    turn: &mut TurnRow,
    confirmed: Option<InstanceId>,
    batch: &mut Batch<OutputStream>,
    acks: &mut Acks<'_>,
) -> Result<bool, Trouble> {
    if !ledger::store_output(core, turn, confirmed, batch).await? {
        return Ok(false);
    }
    turn.output_bytes = batch.end();
    core.turns.output.notify(turn.id);
    acks.want(batch.end());
    *batch = Batch::at(batch.end());
    Ok(true)
}

/// Adds what arrived; the exit, if that did.
fn receive(
    turn: TurnId,
    batch: &mut Batch<OutputStream>,
    items: Vec<OutputItem>,
) -> Result<Option<Exit>, Trouble> {
    let mut exit = None;
    for item in items {
        match item {
            OutputItem::Data { offset, stream, data } => {
                let stream = match stream {
                    OutputStreamName::Stdout => OutputStream::Stdout,
                    OutputStreamName::Stderr => OutputStream::Stderr,
                };
                batch
                    .push(offset, stream, &data)
                    .map_err(|_| Trouble::Disagree(turn))?;
            }
            OutputItem::End { offset, exit: found } => {
                if offset != batch.end() {
                    return Err(Trouble::Disagree(turn));
                }
                exit = Some(Exit {
                    code: found.code.0,
                    signal: found.signal.0,
                    timed_out: found.timed_out,
                    canceled: found.canceled,
                    error: found.error.0,
                });
            }
        }
    }
    Ok(exit)
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => std::future::pending().await,
    }
}

async fn pending(call: &mut Option<Call<'_>>) -> Result<bool, Trouble> {
    match call {
        Some(call) => call.await,
        None => std::future::pending().await,
    }
}

fn cancel<'a>(core: &'a Arc<Core>, link: &'a Arc<Link>, turn: TurnId) -> Call<'a> {
    Box::pin(async move {
        let grace_ms = limits::CANCEL_GRACE.as_millis() as u64;
        Ok(link.admit(core).await?.cancel(turn, Cancel { grace_ms }).await?)
    })
}

/// At most one acknowledgement is under way; what is stored meanwhile is acknowledged by the next.
#[derive(Default)]
struct Acks<'a> {
    wanted: u64,
    asked: u64,
    call: Option<Call<'a>>,
}

impl<'a> Acks<'a> {
    fn want(&mut self, offset: u64) {
        self.wanted = offset;
    }

    async fn next(&mut self, core: &'a Arc<Core>, link: &'a Arc<Link>, turn: TurnId) -> Result<(), Trouble> {
        if self.call.is_none() {
            if self.wanted <= self.asked {
                return std::future::pending().await;
            }
            self.asked = self.wanted;
            let ack = Ack {
                offset: self.wanted,
                is_final: false,
            };
            self.call = Some(Box::pin(async move {
                Ok(link.admit(core).await?.ack(turn, ack).await?)
            }));
        }
        pending(&mut self.call).await?;
        self.call = None;
        Ok(())
    }
}
