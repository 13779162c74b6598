//! The program `oac-wire-check`, run as a person runs it.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
};

fn start(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_oac-wire-check"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn check(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = start(arguments);
    let mut stdin = child.stdin.take().unwrap();
    thread::scope(|scope| {
        // The program may be done before it has read everything.
        scope.spawn(move || stdin.write_all(input).unwrap_or_default());
        child.wait_with_output().unwrap()
    })
}

fn lines(bytes: &[u8]) -> Vec<String> {
    String::from_utf8(bytes.to_vec())
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_row_of_the_corpora_gets_its_verdict() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut files = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        let output = check(&[], text.as_bytes());
        assert!(output.status.success());
        assert!(output.stderr.is_empty(), "notes are on demand");
        let verdicts = lines(&output.stdout);
        assert_eq!(verdicts.len(), text.lines().count());
        for (row, verdict) in text.lines().zip(verdicts) {
            let row: serde_json::Value = serde_json::from_str(row).unwrap();
            let start = match row["expect"].as_str().unwrap() {
                "accept" | "unconfirmed" => {
                    assert_eq!(verdict, "accept", "{}", row["name"]);
                    continue;
                }
                "frame" => "reject frame ",
                _ => "reject request ",
            };
            assert!(
                verdict.len() > start.len() && verdict.starts_with(start),
                "{}: {verdict}",
                row["name"]
            );
            assert!(
                !verdict.contains("text("),
                "words, not the notation of the protocol: {verdict}"
            );
        }
        files += 1;
    }
    assert!(files >= 8);
}

#[test]
fn a_line_that_is_no_input_is_reported_without_its_content_and_stops_nothing() {
    let good = r#"{"direction":"core->node","frame":"{}"}"#;
    let bad = [
        r#"{"direction":"core->node","frame":"sesame"#,
        r#"{"direction":"sesame","frame":"{}"}"#,
        r#"{"direction":"core->node","frame":{"credential":"sesame"}}"#,
        r#"{"frame":"sesame"}"#,
        r#"{"direction":"core->node"}"#,
        r#"{"direction":"core->node","frame":"{}"} sesame"#,
        "sesame",
        "[]",
    ];
    for line in bad {
        let output = check(&[], format!("{good}\n{line}\n\n{good}").as_bytes());
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert_eq!(
            lines(&output.stdout),
            ["reject frame type is missing"; 2],
            "{line}"
        );
        let said = lines(&output.stderr);
        assert!(said.len() == 1 && said[0].starts_with("line 2: "), "{said:?}");
        assert!(!said[0].contains("sesame"), "{said:?}");
    }
    let output = check(&[], format!("{good}\r\n{good}").as_bytes());
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(lines(&output.stdout).len(), 2);
}

#[test]
fn each_line_is_answered_before_the_next_is_given() {
    let mut child = start(&[]);
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..3 {
        stdin
            .write_all(b"{\"direction\":\"node->core\",\"frame\":\"[]\"}\n")
            .unwrap();
        let mut answer = String::new();
        stdout.read_line(&mut answer).unwrap();
        assert_eq!(
            answer,
            "reject frame the document has the wrong JSON type (expected: an object)\n"
        );
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_frame_that_is_no_unicode_text_is_judged_and_not_taken_for_a_bad_line() {
    let output = check(
        &[],
        br#"{"direction":"node->core","frame":"{\"version\":1,\"type\":\"he\ud800llo\"}"}"#,
    );
    assert_eq!(output.status.code(), Some(0));
    assert!(
        output
            .stdout
            .starts_with(b"reject frame not one valid JSON document"),
        "{output:?}"
    );
}

#[test]
fn a_frame_above_every_limit_is_refused_and_the_next_line_is_read() {
    let mut input = br#"{"direction":"core->node","frame":""#.to_vec();
    let spaces = oac_wire::limits::REQUEST_FRAME_BYTES + 1;
    input.resize(input.len() + spaces, b' ');
    input.extend_from_slice(b"\"}\n{\"direction\":\"core->node\",\"frame\":\"{}\"}\n");
    let output = check(&[], &input);
    assert!(output.status.success());
    let said = lines(&output.stdout);
    assert_eq!(
        said[0],
        "reject frame frame of 75497473 bytes is over the limit of 75497472"
    );
    assert_eq!(said.len(), 2);
}

#[test]
fn notes_say_why_core_will_read_an_operation_as_unconfirmed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/responses.jsonl");
    let rows = fs::read_to_string(path).unwrap();
    let row = rows
        .lines()
        .find(|row| row.contains(r#""expect": "unconfirmed""#))
        .unwrap();
    let output = check(&["--notes"], row.as_bytes());
    assert_eq!(lines(&output.stdout), ["accept"]);
    assert!(
        output
            .stderr
            .starts_with(b"line 1: Core reads the operation as unconfirmed: ")
    );
}

#[test]
fn help_shows_the_usage_and_an_unknown_argument_does_not_read() {
    let help = check(&["--help"], b"");
    assert!(help.status.success());
    assert!(
        String::from_utf8(help.stdout)
            .unwrap()
            .contains("reject request <reason>")
    );
    assert_eq!(check(&["--version"], b"").status.code(), Some(2));
}

/// A peer chooses how many members and how much depth a frame has, and each of its bytes may stand for a value. The
/// limit on the program's address space would stop a reader that makes a value of each.
#[test]
fn a_large_frame_of_nothing_but_small_pieces_is_judged_in_little_memory() {
    let bytes = 6 << 20;
    let request = |operation: &str, member: &str| {
        let id = "22222222-2222-4222-8222-222222222222";
        let reference = format!(r#"{{"tenant_id":"{id}","environment_id":"{id}","allocation_id":"{id}"}}"#);
        format!(
            r#"{{"version":1,"type":"request","id":"77777777-7777-4777-8777-777777777777","sequence":1,"connection_id":"88888888-8888-4888-8888-888888888888","owner_epoch":1,"deployment_generation":1,"operation":"{operation}","timeout_ms":1,"reference":{reference},{member}}}"#
        )
    };
    let filled = |start: &str, piece: &str, end: &str| {
        let times = (bytes - start.len() - end.len()) / piece.len();
        format!("{start}{}{end}", piece.repeat(times))
    };
    let args = request("command", r#""command":{"args":["",@""],"directory":""}"#);
    let (args_start, args_end) = args.split_once('@').unwrap();
    let id = "99999999-9999-4999-8999-999999999999";
    let hex = "ab".repeat(32);
    let data = format!(
        r#""retained":{{"operation_id":"{id}","source_generation":0,"source_name":"x","source_id":"x","store_id":"{id}","execution_class":"{hex}","digest":"{hex}","size_bytes":0,"data":{{"a":[1,@1]}}}}"#
    );
    let data = request("delete_retained", &data);
    let (data_start, data_end) = data.split_once('@').unwrap();
    for (frame, expected) in [
        (filled(args_start, "\"\",", args_end), "reject request "),
        (filled(data_start, "[],", data_end), "reject request "),
        (filled(data_start, "{\"\":0},", data_end), "reject request "),
        (filled("", "[", ""), "reject frame "),
        (filled("", "{\"a\":", ""), "reject frame "),
        (filled("{\"version\":", "[", ""), "reject frame "),
        (filled("{\"x\":[1", ",[]", ""), "reject frame "),
    ] {
        let line = serde_json::json!({ "direction": "core->node", "frame": frame }).to_string();
        let limited = format!("ulimit -v 49152; exec {}", env!("CARGO_BIN_EXE_oac-wire-check"));
        let mut child = Command::new("sh")
            .args(["-c", &limited])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let output = thread::scope(|scope| {
            scope.spawn(move || stdin.write_all(line.as_bytes()).unwrap_or_default());
            child.wait_with_output().unwrap()
        });
        let said = String::from_utf8(output.stdout).unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            said.starts_with(expected),
            "{said:?} {error}, for {}",
            &frame[..40]
        );
    }
}
