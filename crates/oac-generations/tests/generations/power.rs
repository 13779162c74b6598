//! Cut off from power at every step, and before every deed that something on the disk has to justify.

use std::{
    cell::{Cell, RefCell},
    path::PathBuf,
    rc::Rc,
};

use oac_generations::{
    State,
    recovery::{self, Standing},
};
use oac_records::steps::{Step, Verdict, watched};

use crate::{
    base,
    loss::{Disk, Left, state},
    proof,
    scenario::Scenario,
    scene::{Scene, content, generation, source},
};

/// Follows the disk, and judges each deed before it is done: what justifies it must survive a loss at that moment.
pub(crate) struct Judge {
    scenario: Scenario,
    scene: Scene,
    disk: Disk,
    deeds: Vec<&'static str>,
    left: usize,
    dead: bool,
    /// Syncs that this disk never made: a planted mistake.
    blind: fn(&Step) -> bool,
    /// A deed that nothing durable justified.
    unjustified: Option<String>,
}

impl Judge {
    fn of(scenario: Scenario, scene: &Scene, left: usize) -> Self {
        Self {
            scenario,
            scene: scene.clone(),
            disk: Disk::of(&scene.base),
            deeds: Vec::new(),
            left,
            dead: false,
            blind: |_| false,
            unjustified: None,
        }
    }

    fn step(&mut self, step: &Step) -> Verdict {
        if self.left == 0 || self.dead {
            self.dead = true;
            return Verdict::Fail;
        }
        self.left -= 1;
        if let Some((deed, justified)) = self.deed(step) {
            for left in self.disk.losses() {
                let state = state(&left, &self.scene.generations(), self.scenario.generation());
                if !justified(self, &left, state) {
                    self.unjustified = Some(format!("{deed} in {state:?}"));
                    self.dead = true;
                    return Verdict::Fail;
                }
            }
            self.deeds.push(deed);
        }
        if !(self.blind)(step) {
            self.disk.apply(step);
        }
        Verdict::Go
    }

    #[allow(clippy::type_complexity, reason = "a table of deeds and what justifies them")]
    fn deed(&self, step: &Step) -> Option<(&'static str, fn(&Self, &Left, State) -> bool)> {
        let n = self.scenario.generation();
        let names = |path: &PathBuf, suffix: &str| path.ends_with(format!("{n}.{suffix}"));
        let payload = |path: &PathBuf| {
            let releases = path.starts_with(self.scene.root().join("releases"));
            releases || path.starts_with(self.scene.root().join("native"))
        };
        match step {
            Step::Outside { what } if what.starts_with("fetch") => Some(("fetch", |_, _, state| {
                (State::Planned..=State::Published).contains(&state)
            })),
            Step::Outside { what } if what == "import" => Some(("import", |_, _, state| {
                matches!(state, State::Importing | State::Published)
            })),
            Step::Rename { to, .. } if names(to, "json") => Some(("publish", Self::files_are_whole)),
            Step::Unlink { path } if names(path, "preparing") => {
                Some(("remove the journal", |_, _, state| state == State::Publishing))
            }
            Step::Outside { what } if what == "remove image" => {
                Some(("remove the image", |_, _, state| state == State::Collecting))
            }
            Step::Unlink { path } if !self.scenario.prepares() && payload(path) => {
                Some(("remove a file", |_, _, state| state == State::Purging))
            }
            Step::Rename { to, .. } if names(to, "dropped") => Some(("drop", Self::files_are_gone)),
            _ => None,
        }
    }

    fn files_are_whole(&self, left: &Left, _: State) -> bool {
        let release = self
            .scene
            .root()
            .join("releases")
            .join(source(self.scenario.generation()).to_string());
        let keys: &[&str] = match self.scenario {
            Scenario::PrepareDocker => &["runtime/seccomp.json"],
            _ => &["native/bin/oac-microsandbox-helper", "native/microsandbox/msb"],
        };
        keys.iter().all(|key| {
            let found = left.get(&release.join(key)).and_then(|content| content.as_ref());
            found.is_some_and(|(_, bytes)| *bytes == content(source(self.scenario.generation()), key))
        })
    }

    fn files_are_gone(&self, left: &Left, state: State) -> bool {
        let release = self
            .scene
            .root()
            .join("releases")
            .join(source(self.scenario.generation()).to_string());
        let shared = self.scenario == Scenario::CollectShared;
        let original = match self.scenario {
            Scenario::CollectEnrolled => self.scene.files(self.scenario.generation()),
            _ => Vec::new(),
        };
        let gone = |key: &str| !left.contains_key(&self.scene.root().join(key));
        state == State::Purging
            && (shared || !left.contains_key(&release))
            && original.iter().all(|(artifact, _)| gone(&artifact.key))
    }
}

/// How a run under a judge ended.
pub(crate) enum Found {
    Done,
    /// By the number of its steps.
    Killed(Judge),
    Unjustified(String),
}

/// Runs the scenario to `at` steps, behind what `before` saw, while syncs of a kind are not made.
pub(crate) fn judged_blind(
    scenario: Scenario,
    scene: &Scene,
    before: Option<Judge>,
    at: usize,
    blind: fn(&Step) -> bool,
) -> Found {
    let mut judge = before.unwrap_or_else(|| Judge::of(scenario, scene, at));
    (judge.left, judge.dead, judge.blind) = (at, false, blind);
    let (mut judge, done) = watch(scenario, scene, judge);
    match (judge.unjustified.take(), done) {
        (Some(deed), _) => Found::Unjustified(deed),
        (None, true) => Found::Done,
        (None, false) => Found::Killed(judge),
    }
}

/// Runs the scenario under a judge, who finds nothing.
fn judged(scenario: Scenario, scene: &Scene, judge: Judge) -> (Judge, bool) {
    let (judge, done) = watch(scenario, scene, judge);
    assert_eq!(judge.unjustified, None, "{scenario:?}");
    (judge, done)
}

fn watch(scenario: Scenario, scene: &Scene, judge: Judge) -> (Judge, bool) {
    let judge = Rc::new(RefCell::new(judge));
    let seat = judge.clone();
    let result = watched(move |step| seat.borrow_mut().step(step), || scenario.act(scene));
    let judge = Rc::into_inner(judge).expect("the run is over").into_inner();
    if !judge.dead {
        result
            .as_ref()
            .unwrap_or_else(|error| panic!("{scenario:?}: {error:?}"));
    }
    (judge, result.is_ok())
}

// req: P-146, P-147, P-153, P-156, P-159, P-160
// inv: INV-N6, INV-N7, INV-N13
#[test]
fn every_deed_is_justified_by_what_a_power_loss_at_that_moment_would_leave() {
    let expected = |scenario| -> &[&str] {
        match scenario {
            Scenario::PrepareDocker | Scenario::PrepareMicrosandbox => {
                &["fetch", "import", "publish", "remove the journal"]
            }
            Scenario::PrepareByReuse => &["publish"],
            Scenario::Repair => &["fetch", "import"],
            Scenario::CollectMicrosandbox | Scenario::CollectEnrolled => {
                &["remove the image", "remove a file", "drop"]
            }
            Scenario::CollectDocker | Scenario::CollectPlan => &["remove a file", "drop"],
            Scenario::CollectShared => &["drop"],
        }
    };
    for scenario in Scenario::ALL {
        let base = base();
        let scene = scenario.arrange(base.path());
        let (judge, done) = judged(scenario, &scene, Judge::of(scenario, &scene, usize::MAX));
        assert!(done);
        let mut deeds = judge.deeds;
        deeds.dedup();
        assert_eq!(deeds, expected(scenario), "{scenario:?}");
    }
}

// inv: INV-N44
#[test]
fn a_successor_of_a_killed_process_decides_from_nothing_that_a_power_loss_could_take_back() {
    for scenario in Scenario::ALL {
        let mut windows = 0;
        for at in 0.. {
            let base = base();
            let scene = scenario.arrange(base.path());
            let (mut judge, done) = judged(scenario, &scene, Judge::of(scenario, &scene, at));
            if done {
                break;
            }
            // Only killed: what was not synced is still seen, and the successor must not believe it.
            windows += usize::from(judge.disk.losses().len() > 1);
            if proof::refused_as_bare(scenario, &scene) {
                continue;
            }
            (judge.left, judge.dead) = (usize::MAX, false);
            let (_, done) = judged(scenario, &scene, judge);
            assert!(done, "{scenario:?} {at}");
            proof::finished(scenario, &scene);
        }
        assert!(
            windows > 3,
            "{scenario:?}: {windows} moments at which a loss would take something back"
        );
    }
}

/// Whether recovery calls a generation published whose files a power loss could take back, while it makes no sync of a
/// kind; and how often it met such files.
pub(crate) fn recovery_believes(blind: fn(&Step) -> bool) -> Result<usize, String> {
    let scenario = Scenario::Repair;
    let whole = |judge: &Judge| {
        let losses = judge.disk.losses();
        losses
            .iter()
            .all(|left| judge.files_are_whole(left, State::Published))
    };
    let mut windows = 0;
    for at in 0.. {
        let base = base();
        let scene = scenario.arrange(base.path());
        let (mut judge, done) = judged(scenario, &scene, Judge::of(scenario, &scene, at));
        if done {
            break;
        }
        let before = whole(&judge);
        (judge.left, judge.dead, judge.blind) = (usize::MAX, false, blind);
        let judge = Rc::new(RefCell::new(judge));
        let seat = judge.clone();
        let again = || recovery::again(&scene.store(), generation(scenario.generation()));
        let recovered = watched(move |step| seat.borrow_mut().step(step), again);
        let standing = recovered.expect("readable").expect("published").standing;
        if standing == Standing::Published {
            windows += usize::from(!before);
            if !whole(&judge.borrow()) {
                return Err(format!("cut off at {at}"));
            }
        }
    }
    Ok(windows)
}

// inv: INV-N44
#[test]
fn what_recovery_calls_published_has_files_that_no_power_loss_takes_back() {
    let windows = recovery_believes(|_| false);
    assert!(
        windows.as_ref().is_ok_and(|windows| *windows > 0),
        "moments at which a file was seen and not yet durable: {windows:?}"
    );
}

// inv: INV-N4
#[test]
fn whatever_a_power_loss_leaves_at_any_step_is_sound_and_is_completed_by_the_next_run() {
    for scenario in Scenario::ALL {
        let (ended, mut bare, mut all) = (Cell::new(false), 0, 0);
        for at in 0.. {
            let base = base();
            let scene = scenario.arrange(base.path());
            let (judge, done) = judged(scenario, &scene, Judge::of(scenario, &scene, at));
            if done {
                ended.set(true);
                break;
            }
            let engine = scene.outside().held();
            for left in judge.disk.losses() {
                all += 1;
                judge.disk.leave(&left);
                scene.outside().set_images(&engine);
                proof::sound(scenario, &scene);
                if proof::refused_as_bare(scenario, &scene) {
                    bare += 1;
                    continue;
                }
                let again = scenario.act(&scene);
                again.unwrap_or_else(|error| panic!("{scenario:?} cut off at {at}: {error:?}\n{left:#?}"));
                proof::finished(scenario, &scene);
            }
        }
        assert!(ended.get() && all > 20, "{scenario:?}: {all}");
        let makes_a_lease = scenario.prepares() && scenario != Scenario::Repair;
        assert_eq!(bare > 0, makes_a_lease, "{scenario:?}");
    }
}
