use super::*;

fn recorded(c: &mut Connection, recorded: Recorded) -> Vec<Action> {
    c.apply(Event::HealthRecorded(recorded), Moment(0))
}

fn beat(c: &mut Connection, statuses: &[(i64, bool)]) -> Vec<Action> {
    let text = heartbeat_of(managed(statuses));
    c.apply(Event::Message(text.as_bytes(), wall()), Moment(0))
}

fn create_on(c: &mut Connection, n: u64, on: i64) -> Result<Action, Unsent> {
    let mut create = call(n, n, create_arguments(reference(n)), Moment(90_000));
    create.generation = generation(on);
    c.call(create, Moment(0))
}

// req: P-025, P-029, P-083
#[test]
fn welcome_and_every_acknowledgement_carry_the_deployment_of_their_transaction() {
    let mut c = managing(&[(1, true), (2, false)], Moment(0));
    let actions = beat(&mut c, &[(2, true)]);
    let [Action::RecordHealth(health)] = &actions[..] else {
        panic!("{actions:?}");
    };
    assert_eq!(health.generations.as_ref().map(Vec::len), Some(1));
    let moved = deployment(2, Some(2));
    assert_eq!(
        recorded(&mut c, facts(moved)),
        [Action::Send(ack_with(connection(0), epoch(1), Some(moved)))]
    );
    // A store that answers without facts has nothing to tell a managing node.
    beat(&mut c, &[(2, true)]);
    let actions = recorded(&mut c, Recorded::Done(None));
    assert_eq!(
        close_of(&actions),
        Some(&CloseReason::Health(RecordFailure::NotDeployed))
    );
    assert_eq!(sends(&actions), 0);
}

// req: P-054, P-088
// inv: INV-P15
#[test]
fn create_goes_only_to_a_generation_recorded_as_ready_and_omission_changes_nothing() {
    let mut c = managing(&[(1, true), (2, false)], Moment(0));
    create_on(&mut c, 1, 1).unwrap();
    assert_eq!(create_on(&mut c, 2, 2), Err(Unsent::NotReady));
    assert_eq!(create_on(&mut c, 3, 3), Err(Unsent::NotReady));
    // What merely observes goes to any generation: the node answers for what it does not have.
    let mut info = call(4, 4, Arguments::Info, Moment(90_000));
    info.generation = generation(9);
    c.call(info, Moment(0)).unwrap();
    // A report that leaves generation 1 out, and says that 2 is ready, counts when it is recorded.
    beat(&mut c, &[(2, true)]);
    assert_eq!(create_on(&mut c, 5, 2), Err(Unsent::NotReady));
    recorded(&mut c, facts(deployment(2, Some(1))));
    create_on(&mut c, 6, 2).unwrap();
    create_on(&mut c, 7, 1).unwrap();
    beat(&mut c, &[(1, false)]);
    recorded(&mut c, facts(deployment(2, Some(1))));
    assert_eq!(create_on(&mut c, 8, 1), Err(Unsent::NotReady));
    // What Core does not keep counts for nothing, whatever the node says of it.
    beat(&mut c, &[(3, true)]);
    recorded(
        &mut c,
        Recorded::Done(Some(Facts {
            deployment: deployment(2, Some(1)),
            ignored: vec![generation(3)],
        })),
    );
    assert_eq!(create_on(&mut c, 9, 3), Err(Unsent::NotReady));
}

fn answered(c: &mut Connection, keep: &[bool]) -> Vec<Action> {
    let answer = RetentionAnswer::Done {
        keep: keep.to_vec(),
        deployment: deployment(2, Some(1)),
    };
    c.apply(Event::RetentionAnswered(answer), Moment(0))
}

fn asks(c: &mut Connection, sequence: i64, asked: &[RetentionReference]) -> Vec<Action> {
    let text = retention(control(sequence, asked));
    c.apply(Event::Message(text.as_bytes(), wall()), Moment(0))
}

// req: P-089, P-090, P-091, P-094
// inv: INV-P29
#[test]
fn a_retention_request_is_answered_entry_by_entry_while_thirty_two_requests_are_pending() {
    let mut c = managing(&[(1, true), (7, true)], Moment(0));
    for n in 0..PENDING_REQUESTS as u64 {
        c.call(call(n, n, Arguments::Info, Moment(90_000)), Moment(0))
            .unwrap();
    }
    for sequence in 1..=2 {
        let named = [asked(7), asked(3)];
        assert_eq!(
            asks(&mut c, sequence, &named),
            [Action::AnswerRetention(named.to_vec())]
        );
        let actions = answered(&mut c, &[false, true]);
        let [Action::Send(text)] = &actions[..] else {
            panic!("{actions:?}");
        };
        let Ok(CoreFrame::RetentionAck(ack)) = CoreFrame::decode(text.as_bytes()) else {
            panic!("{text}");
        };
        assert_eq!(ack.deployment, deployment(2, Some(1)));
        let control = ack.control;
        assert_eq!(
            (control.id, control.sequence),
            (request_id(sequence as u64), sequence)
        );
        assert_eq!(
            (control.connection_id, control.owner_epoch),
            (connection(0), epoch(1))
        );
        let answers: Vec<_> = control
            .retentions
            .iter()
            .map(|r| (r.generation, r.specification_digest, r.keep))
            .collect();
        assert_eq!(
            answers,
            [
                (generation(7), digest(7), false),
                (generation(3), digest(3), true)
            ]
        );
    }
    assert_eq!(c.pending(), PENDING_REQUESTS, "it took no place among them");
    let answer = frame(response(
        request_id(0),
        None,
        Some(ResponseResult::Info(running(reference(0)))),
    ));
    c.apply(Event::Message(answer.as_bytes(), wall()), Moment(0));
    let next = requested(
        c.call(call(99, 99, Arguments::Info, Moment(90_000)), Moment(0))
            .unwrap(),
    );
    assert_eq!(
        next.sequence,
        PENDING_REQUESTS as i64 + 1,
        "and no request's sequence"
    );
}

#[test]
fn a_generation_that_is_not_kept_is_ready_no_more() {
    let mut c = managing(&[(1, true), (7, true)], Moment(0));
    create_on(&mut c, 1, 7).unwrap();
    asks(&mut c, 1, &[asked(7)]);
    answered(&mut c, &[false]);
    assert_eq!(create_on(&mut c, 2, 7), Err(Unsent::NotReady));
}

#[test]
fn an_answer_after_the_connection_ended_sends_nothing() {
    let mut c = managing(&[(1, true)], Moment(0));
    asks(&mut c, 1, &[asked(7)]);
    c.apply(Event::Lost, Moment(0));
    assert_eq!(answered(&mut c, &[false]), []);
    let mut c = managing(&[(1, true)], Moment(0));
    assert_eq!(answered(&mut c, &[false]), [], "nothing was asked");
}
