use oac_wire::{frames::InvalidResult, shapes::Unsupported};

use super::*;

// req: P-060, P-061, P-067, P-074, P-075, P-076, P-077
// inv: INV-P18, INV-P19
#[test]
fn answers_are_read_as_the_table_says_and_whatever_breaks_it_is_unconfirmed() {
    use FailureCode as C;
    let here = reference(0);
    let info = |info: shapes::Info| Some(ResponseResult::Info(info));
    let failed = Outcome::failed;
    let evidence = |operation: &str, reason: &str| {
        Some(ResponseResult::Unsupported(Unsupported {
            operation: operation.into(),
            reason: reason.into(),
        }))
    };
    let unsettled = shapes::Info {
        create_settled: false,
        bootstrap_complete: false,
        ..running(here)
    };
    let nameless = shapes::Info {
        provider_id: String::new(),
        ..unsettled.clone()
    };
    let read = |operation, declared, code: Option<&str>, result| {
        read_answer(
            operation,
            &here,
            declared,
            response(request_id(1), code, result),
            wall(),
        )
    };
    use Operation::*;
    let rows: Vec<(Operation, Option<&str>, Option<ResponseResult>, Outcome)> = vec![
        (
            Create,
            None,
            info(running(here)),
            Outcome::Success(info(running(here))),
        ),
        (
            Info,
            None,
            info(settled_absent(here)),
            Outcome::Success(info(settled_absent(here))),
        ),
        (
            Info,
            None,
            info(unsettled.clone()),
            Outcome::Success(info(unsettled.clone())),
        ),
        (Info, None, info(nameless.clone()), failed(C::Unconfirmed)),
        (Info, None, info(running(reference(1))), failed(C::Unconfirmed)),
        (Info, None, None, failed(C::Unconfirmed)),
        (
            Info,
            None,
            Some(ResponseResult::Command(command_result())),
            failed(C::Unconfirmed),
        ),
        (Kill, None, None, Outcome::Success(None)),
        (Kill, None, info(running(here)), failed(C::Unconfirmed)),
        (
            Command,
            None,
            Some(ResponseResult::Command(command_result())),
            Outcome::Success(Some(ResponseResult::Command(command_result()))),
        ),
        (Command, None, None, failed(C::CommandUnconfirmed)),
        (Observe, None, None, failed(C::ObservationUnavailable)),
        (Create, Some("exists"), None, failed(C::Exists)),
        (Create, Some("ownership"), None, failed(C::Ownership)),
        (Info, Some("not_found"), None, failed(C::NotFound)),
        (
            Observe,
            Some("runtime_not_running"),
            None,
            failed(C::RuntimeNotRunning),
        ),
        (
            Observe,
            Some("unconfirmed"),
            None,
            failed(C::ObservationUnavailable),
        ),
        (Command, Some("unconfirmed"), None, failed(C::CommandUnconfirmed)),
        (Kill, Some("unconfirmed"), None, failed(C::Unconfirmed)),
        (Kill, Some("a_code_of_tomorrow"), None, failed(C::Unconfirmed)),
        // What Core calls a request that was not sent, or not answered, is no code of a node.
        (Create, Some("unavailable"), None, failed(C::Unconfirmed)),
        (Create, Some("uncertain"), None, failed(C::Unconfirmed)),
        (
            Create,
            Some("invalid"),
            info(settled_absent(here)),
            Outcome::Failed {
                code: C::Invalid,
                receipt: Some(settled_absent(here)),
            },
        ),
        (
            Create,
            Some("invalid"),
            info(running(here)),
            Outcome::Failed {
                code: C::Invalid,
                receipt: Some(running(here)),
            },
        ),
        (Create, Some("invalid"), info(unsettled), failed(C::Invalid)),
        (
            Create,
            Some("invalid"),
            info(settled_absent(reference(1))),
            failed(C::Invalid),
        ),
        (
            Create,
            Some("invalid"),
            Some(ResponseResult::Command(command_result())),
            failed(C::Invalid),
        ),
        (Initial, Some("unsupported"), None, failed(C::Unconfirmed)),
        (
            Initial,
            Some("unsupported"),
            evidence("Kill", "declared"),
            failed(C::Unconfirmed),
        ),
        (
            Initial,
            Some("unsupported"),
            evidence("Initial", "another"),
            failed(C::Unconfirmed),
        ),
        (
            Initial,
            Some("invalid"),
            evidence("Initial", "declared"),
            failed(C::Unconfirmed),
        ),
        (
            Initial,
            None,
            evidence("Initial", "declared"),
            failed(C::Unconfirmed),
        ),
        (
            CommandCompute,
            Some("unsupported"),
            evidence("RunCommand", "declared"),
            failed(C::CommandUnconfirmed),
        ),
        (
            Initial,
            Some("unsupported"),
            evidence("Initial", "declared"),
            Outcome::Unsupported(Unsupported {
                operation: "Initial".into(),
                reason: "declared".into(),
            }),
        ),
    ];
    for (operation, code, result, expected) in rows {
        let shown = format!("{operation:?} {code:?} {result:?}");
        assert_eq!(
            read(operation, Some("declared"), code, result),
            expected,
            "{shown}"
        );
    }
    let undeclared = read(
        Initial,
        None,
        Some("unsupported"),
        evidence("Initial", "declared"),
    );
    assert_eq!(undeclared, failed(C::Unconfirmed));
    let mut out_of_bounds = response(request_id(1), None, None);
    out_of_bounds.result = Err(InvalidResult("exit_code".into()));
    assert_eq!(
        read_answer(Command, &here, None, out_of_bounds.clone(), wall()),
        failed(C::CommandUnconfirmed)
    );
    out_of_bounds.error_code = Some("exists".into());
    assert_eq!(
        read_answer(Create, &here, None, out_of_bounds, wall()),
        failed(C::Exists)
    );
}

#[test]
fn telemetry_from_the_future_of_cores_clock_is_unavailable() {
    let here = reference(0);
    for (observed, expected) in [
        (wall(), true),
        ("2026-01-01T00:00:00.001Z".parse().unwrap(), false),
    ] {
        let sample = Some(ResponseResult::Sample(sample(observed)));
        let answer = read_answer(
            Operation::Observe,
            &here,
            None,
            response(request_id(1), None, sample.clone()),
            wall(),
        );
        let taken = Outcome::Success(sample);
        let refused = Outcome::failed(FailureCode::ObservationUnavailable);
        assert_eq!(answer, if expected { taken } else { refused });
    }
}
