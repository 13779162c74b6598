//! Stopped at any system call that changes the disk, a record is wholly old or wholly new.

use std::cell::Cell;

use oac_records::{
    Directory, RecordError,
    steps::{Step, Verdict, watched},
};

const OLD: &[u8] = b"the old record";
const NEW: &[u8] = b"the new record, which is longer";

type Change = fn(&Directory) -> Result<(), RecordError>;

/// Name, the change, whether an old record is there before, what the name holds in the end.
const CHANGES: [(&str, Change, bool, Option<&[u8]>); 6] = [
    ("write", |d| d.write("r", NEW), true, Some(NEW)),
    ("first write", |d| d.write("r", NEW), false, Some(NEW)),
    ("publish", |d| d.publish("r", NEW), false, Some(NEW)),
    ("create", |d| d.create_new("r", NEW), false, Some(NEW)),
    ("remove", |d| d.remove("r"), true, None),
    ("refused", |d| d.create_new("r", NEW), true, Some(OLD)),
];

fn arranged(old: bool) -> (tempfile::TempDir, Directory) {
    let temp = tempfile::tempdir().unwrap();
    let directory = Directory::create(&temp.path().join("state")).unwrap();
    if old {
        directory.write("r", OLD).unwrap();
    }
    (temp, directory)
}

// inv: INV-N4
#[test]
fn a_record_whose_writer_is_stopped_at_any_step_is_wholly_old_or_wholly_new_and_the_next_writer_completes_it()
{
    for (name, change, old, end) in CHANGES {
        let before = old.then_some(OLD);
        let mut stops = 0;
        for at in 0.. {
            let (_temp, directory) = arranged(old);
            let left = Cell::new(at);
            let stopped = std::rc::Rc::new(Cell::new(false));
            let seen = stopped.clone();
            let watcher = move |_: &Step| {
                if left.get() == 0 {
                    seen.set(true);
                    return Verdict::Fail;
                }
                left.set(left.get() - 1);
                Verdict::Go
            };
            let result = watched(watcher, || change(&directory));
            let found = directory.read("r", 64).unwrap();
            if !stopped.get() {
                assert_eq!(result.is_ok(), name != "refused", "{result:?}");
                assert_eq!(found.as_deref(), end, "{name}");
                assert_eq!(
                    directory.names().unwrap().len(),
                    usize::from(end.is_some()),
                    "{name}: no partial is left"
                );
                break;
            }
            stops += 1;
            assert!(result.is_err(), "{name} {at}");
            assert!(
                found.as_deref() == before || found.as_deref() == end,
                "{name} {at}: {found:?}"
            );
            let again = change(&directory);
            if !matches!(again, Err(RecordError::Exists { .. })) {
                again.unwrap();
            }
            assert_eq!(directory.read("r", 64).unwrap().as_deref(), end, "{name} {at}");
        }
        assert!(stops >= 2, "{name}: {stops}");
    }
}

#[test]
fn what_a_change_made_visible_is_synced_before_it_returns() {
    for (name, change, old, _) in CHANGES {
        let (_temp, directory) = arranged(old);
        let steps = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let seen = steps.clone();
        let watcher = move |step: &Step| {
            seen.borrow_mut().push(step.clone());
            Verdict::Go
        };
        let _ = watched(watcher, || change(&directory));
        let steps = steps.take();
        let renamed = steps.iter().position(|step| matches!(step, Step::Rename { .. }));
        if let Some(renamed) = renamed {
            let synced = steps[..renamed]
                .iter()
                .position(|step| matches!(step, Step::SyncFile { .. }));
            let appended = steps.iter().rposition(|step| matches!(step, Step::Append { .. }));
            assert!(synced > appended, "{name}: {steps:?}");
        }
        assert!(
            matches!(steps.last(), Some(Step::SyncDirectory { .. })),
            "{name}: {steps:?}"
        );
    }
}
