use super::*;

fn marks(source: &str) -> Vec<(String, String)> {
    let file = parse(source);
    assert_eq!(file.problems, []);
    let shown = |found: &Found| {
        let item = match &found.item {
            Item::Test(name) => format!("test {name}"),
            Item::Case {
                test,
                number,
                description,
            } => format!("case {test} {number} {}", description.as_deref().unwrap_or("-")),
            Item::Named(name) => format!("named {name}"),
        };
        (
            found.id.clone(),
            [found.inside.join("::"), item].join(" ").trim().to_owned(),
        )
    };
    file.marks.iter().map(shown).collect()
}

fn pair(id: &str, item: &str) -> (String, String) {
    (id.to_owned(), item.to_owned())
}

#[test]
fn a_mark_belongs_to_the_next_test_through_comments_and_attributes() {
    let source = "
        mod tests {
            fn helper() { if true { } }
            // req: P-001, P-002
            // inv: INV-P1
            /// What this is about.
            #[tokio::test(flavor = \"multi_thread\")]
            async fn one() { let _ = \"{\"; }
            #[test]
            fn unmarked() {}
            mod deeper { // req: P-003
                #[test] fn two() {} }
        }";
    let expected = [
        pair("P-001", "tests test one"),
        pair("P-002", "tests test one"),
        pair("INV-P1", "tests test one"),
        pair("P-003", "tests::deeper test two"),
    ];
    assert_eq!(marks(source), expected);
}

#[test]
fn a_mark_in_a_tests_body_is_the_tests_and_one_above_a_case_is_that_cases() {
    let source = "
        #[test]
        fn table(_: [u8; 3]) {
            for case in [
                // req: P-004
                (\"a\", 1),
            ] { assert!(true); }
        }
        // req: P-005
        #[rstest]
        #[case(1)]
        // req: P-006
        #[case::second(2)]
        fn cases(#[case] n: u8) {}";
    let found = parse(source);
    assert_eq!(found.problems, []);
    let items: Vec<_> = found
        .marks
        .iter()
        .map(|found| (found.id.as_str(), found.item.clone()))
        .collect();
    assert_eq!(
        items,
        [
            ("P-004", Item::Test("table".into())),
            ("P-005", Item::Test("cases".into())),
            (
                "P-006",
                Item::Case {
                    test: "cases".into(),
                    number: 2,
                    description: Some("second".into())
                }
            ),
        ]
    );
}

#[test]
fn suite_functions_and_names_in_macro_calls_are_known_by_name() {
    let source = "
        // inv: INV-V3
        pub async fn create_twice(w: &World) {}
        suite! {
            // inv: INV-V4
            kill_on_nothing,
            other,
        }
        proptest! {
            // req: P-007
            #[test]
            fn any_bytes(x in 0..9u8) { }
        }";
    let expected = [
        pair("INV-V3", "named create_twice"),
        pair("INV-V4", "named kill_on_nothing"),
        pair("P-007", "test any_bytes"),
    ];
    assert_eq!(marks(source), expected);
}

#[test]
fn a_mark_above_nothing_that_tests_is_refused() {
    for source in [
        "// req: P-001\nstruct S;\n#[test] fn t() {}",
        "// req: P-001\nmod tests { #[test] fn t() {} }",
        "mod tests { #[test] fn t() {}\n// req: P-001\n }\n#[test] fn u() {}",
        "#[test] fn t() {}\n// req: P-001",
        "macro_rules! m { () => {\n// req: P-001\n#[test] fn $name() {} } }",
        "/// req: P-001\n#[test] fn t() {}",
    ] {
        let file = parse(source);
        assert_eq!((file.problems.len(), file.marks.len()), (1, 0), "{source}");
    }
}

#[test]
fn modules_and_ignored_tests_are_reported() {
    let source = "mod a; #[path = \"other.rs\"] mod b; mod c { mod d; #[test] #[ignore = \"needs a browser\"] fn t() {} }";
    let file = parse(source);
    let modules: Vec<_> = file
        .modules
        .iter()
        .map(|module| {
            (
                module.inside.join("::"),
                module.name.as_str(),
                module.path.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        modules,
        [
            (String::new(), "a", None),
            (String::new(), "b", Some("other.rs")),
            ("c".into(), "d", None)
        ]
    );
    assert_eq!(
        file.ignored,
        [(vec!["c".into()], "t".into(), "needs a browser".into())]
    );
}
