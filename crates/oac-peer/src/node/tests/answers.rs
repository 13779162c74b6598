use oac_wire::shapes::Unsupported;

use super::*;

// req: P-059, P-060, P-067
// inv: INV-P19
#[test]
fn an_answer_carries_the_result_of_its_row_and_a_failure_at_most_a_settled_receipt() {
    use crate::Outcome::*;
    let info = ResponseResult::Info;
    let here = reference(0);
    let unsettled = oac_wire::shapes::Info {
        create_settled: false,
        bootstrap_complete: false,
        ..running(here)
    };
    let cases: Vec<(Arguments, crate::Outcome, Option<&str>, Option<ResponseResult>)> = vec![
        (
            Arguments::Info,
            Success(Some(info(running(here)))),
            None,
            Some(info(running(here))),
        ),
        (Arguments::Kill, Success(None), None, None),
        (
            Arguments::Kill,
            Success(Some(info(running(here)))),
            Some("unconfirmed"),
            None,
        ),
        (Arguments::Info, Success(None), Some("unconfirmed"), None),
        (
            Arguments::Info,
            Success(Some(info(running(reference(1))))),
            Some("unconfirmed"),
            None,
        ),
        (
            command_arguments(),
            Success(None),
            Some("command_unconfirmed"),
            None,
        ),
        (
            command_arguments(),
            Success(Some(ResponseResult::Command(oac_wire::shapes::CommandResult {
                exit_code: 256,
                ..command_result()
            }))),
            Some("command_unconfirmed"),
            None,
        ),
        (
            create_arguments(here),
            Failed {
                code: FailureCode::Invalid,
                receipt: Some(settled_absent(here)),
            },
            Some("invalid"),
            Some(info(settled_absent(here))),
        ),
        (
            create_arguments(here),
            Failed {
                code: FailureCode::Exists,
                receipt: Some(unsettled),
            },
            Some("exists"),
            None,
        ),
        (
            create_arguments(here),
            Failed {
                code: FailureCode::Invalid,
                receipt: Some(settled_absent(reference(1))),
            },
            Some("invalid"),
            None,
        ),
        (
            Arguments::Initial,
            Unsupported(self::Unsupported {
                operation: "Initial".into(),
                reason: "no".into(),
            }),
            Some("unsupported"),
            Some(ResponseResult::Unsupported(self::Unsupported {
                operation: "Initial".into(),
                reason: "no".into(),
            })),
        ),
    ];
    let mut node = live(Moment(0));
    for (index, (arguments, outcome, code, result)) in cases.into_iter().enumerate() {
        let sequence = index as i64 + 1;
        let job = jobs(send(&mut node, 0, sequence, 0, arguments, Moment(0))).remove(0);
        let shown = format!("{outcome:?}");
        let actions = node.apply(Event::Answered(job.ticket, outcome), Moment(0));
        let response = responses(&actions).remove(0);
        assert_eq!(response.id, request_id(sequence as u64));
        assert_eq!(response.error_code.as_deref(), code, "{shown}");
        assert_eq!(response.result, Ok(result), "{shown}");
        node.apply(Event::Ended(job.ticket), Moment(0));
    }
}
