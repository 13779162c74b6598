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
    let mut cancel: Option<Call<'_>> = turn.cancel_requested_at.map(|_| cancel(core, link, turn.id));
    loop {
        tokio::select! {
            items = output.next_batch(limits::MAX_BATCH_BYTES as usize) => {
                let received = receive(&turn, items?)?;
                let Some(exit) = received.exit else {
                    if !ledger::store_output(core, &turn, confirmed.take(), &received.batch).await? {
                        return Ok(End::Elsewhere);
                    }
                    turn.output_bytes = received.batch.end();
                    core.turns.output.notify(turn.id);
                    acks.want(received.batch.end());
                    continue;
                };
                let offset = received.batch.end();
                let settlement = Settlement::of(&exit);
                return Ok(match ledger::settle_ended(core, link, &turn, confirmed, &received.batch, &settlement).await? {
                    Some(next) => End::Settled { next, offset },
                    None => End::Elsewhere,
                });
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

struct Received {
    batch: Batch<OutputStream>,
    exit: Option<Exit>,
}

fn receive(turn: &TurnRow, items: Vec<OutputItem>) -> Result<Received, Trouble> {
    let mut batch = Batch::at(turn.output_bytes);
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
                    .map_err(|_| Trouble::Disagree(turn.id))?;
            }
            OutputItem::End { offset, exit: found } => {
                if offset != batch.end() {
                    return Err(Trouble::Disagree(turn.id));
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
    Ok(Received { batch, exit })
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
