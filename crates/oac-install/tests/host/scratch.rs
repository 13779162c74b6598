//! A host below a scratch folder: an account data base, a service manager and the tools that change them as small
//! scripts, and a node program that says what the real one says.

use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    io::Write as _,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use crate::engine::real_socket;

pub(crate) struct Scratch {
    folder: tempfile::TempDir,
    pub(crate) socket: PathBuf,
    pub(crate) commit: String,
}

/// What one run did.
pub(crate) struct Ran {
    pub(crate) status: Option<i32>,
    pub(crate) out: String,
    pub(crate) error: String,
}

fn script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

impl Scratch {
    pub(crate) fn new(commit: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::set_permissions(root, Permissions::from_mode(0o755)).unwrap();
        for inner in [
            "tools",
            "db",
            "state",
            "etc/systemd/system",
            "run/systemd/system",
            "var/lib",
            "lib64",
            "dev",
        ] {
            fs::create_dir_all(root.join(inner)).unwrap();
        }
        let docker = fs::metadata(real_socket()).unwrap().gid();
        fs::write(
            root.join("db/passwd"),
            "root:x:0:0:root:/root:/bin/sh\nwww:x:33:33::/:/bin/sh\n",
        )
        .unwrap();
        fs::write(
            root.join("db/group"),
            format!("root:x:0:\ndocker:x:{docker}:\nkvm:x:36:\nvideo:x:44:\n"),
        )
        .unwrap();
        let db = root.join("db");
        let (db, state) = (db.display(), root.join("state"));
        let tool = |name: &str, text: &str| {
            script(
                &root.join("tools").join(name),
                &format!("#!/bin/sh\nset -e\n{text}"),
            )
        };
        tool(
            "getent",
            &format!(
                r#"awk -F: -v k="$2" '$1==k || $3==k {{print; found=1; exit}} END {{exit found ? 0 : 2}}' {db}/$1"#
            ),
        );
        tool(
            "useradd",
            &format!(
                r#"while [ $# -gt 1 ]; do case $1 in --uid) uid=$2; shift;; --home-dir) home=$2; shift;; --shell) shell=$2; shift;; esac; shift; done
echo "$1:x:64999:" >> {db}/group
echo "$1:x:$uid:64999::$home:$shell" >> {db}/passwd"#
            ),
        );
        tool(
            "usermod",
            &format!(
                r#"[ "$1 $2" = "--append --groups" ]; awk -F: -v OFS=: -v g="$3" -v u="$4" '$1==g {{ $4 = $4 == "" ? u : $4 "," u }} {{print}}' {db}/group > {db}/group.new && mv {db}/group.new {db}/group"#
            ),
        );
        tool(
            "gpasswd",
            &format!(
                r#"[ "$1" = -d ]; awk -F: -v OFS=: -v g="$3" -v u="$2" '$1==g {{ n=split($4,m,","); $4=""; for(i=1;i<=n;i++) if(m[i]!=u) $4=$4==""?m[i]:$4 "," m[i] }} {{print}}' {db}/group > {db}/group.new && mv {db}/group.new {db}/group"#
            ),
        );
        tool(
            "userdel",
            &format!(
                r#"[ ! -e {db}/busy ]; sed -i "/^$1:/d" {db}/passwd {db}/group; sed -i "s/\([:,]\)$1,/\1/; s/,$1\$//; s/:$1\$/:/" {db}/group"#
            ),
        );
        tool("groupdel", &format!(r#"sed -i "/^$1:/d" {db}/group"#));
        let state = state.display();
        tool(
            "systemctl",
            &format!(
                r#"echo "$*" >> {state}/calls
for unit; do :; done
case $1 in
is-enabled) [ -e {state}/enabled ];;
is-active) [ -e {state}/active ];;
enable) touch {state}/enabled; [ "$2" != --now ] || [ -e {state}/broken ] || touch {state}/active;;
restart) [ -e {state}/broken ] || touch {state}/active;;
disable) rm -f {state}/enabled {state}/active;;
stop) rm -f {state}/active;;
esac"#
            ),
        );
        let socket = PathBuf::from(real_socket());
        Self {
            folder,
            socket,
            commit: commit.to_owned(),
        }
    }

    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self, inner: &str) -> PathBuf {
        self.root().join(inner)
    }

    pub(crate) fn write(&self, inner: &str, text: &str) {
        let path = self.path(inner);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, inner: &str) -> String {
        fs::read_to_string(self.path(inner)).unwrap_or_default()
    }

    /// Adds lines to the account data base.
    pub(crate) fn has(&self, base: &str, line: &str) {
        let text = self.read(&format!("db/{base}"));
        self.write(&format!("db/{base}"), &format!("{text}{line}\n"));
    }

    fn command(&self, end_at: &str, arguments: &[String]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oac-install-rig"));
        command
            .arg(self.root())
            .arg(&self.socket)
            .args([&self.commit, end_at, "--"])
            .args(arguments)
            .env_clear()
            .env("HOME", "/root")
            .env("PATH", "/usr/bin:/bin");
        command
    }

    pub(crate) fn run(&self, arguments: &[String], input: &str) -> Ran {
        self.run_with(arguments, input, "", &[])
    }

    /// One run with more in the environment, ended at a point if one is named.
    pub(crate) fn run_with(
        &self,
        arguments: &[String],
        input: &str,
        end_at: &str,
        environment: &[(&str, &str)],
    ) -> Ran {
        let mut command = self.command(end_at, arguments);
        command.envs(environment.iter().copied());
        finish(command, input)
    }

    /// One run whose output and input are a terminal. Its words hold no quotes.
    pub(crate) fn run_at_a_terminal(&self, arguments: &[String], environment: &[(&str, &str)]) -> Ran {
        let own = self.command("", arguments);
        let words = std::iter::once(own.get_program()).chain(own.get_args());
        let line: Vec<String> = words
            .map(|word| format!("'{}'", word.to_str().unwrap()))
            .collect();
        let mut command = Command::new("script");
        command
            .args(["--quiet", "--return", "--command", &line.join(" "), "/dev/null"])
            .env_clear()
            .env("HOME", "/root")
            .env("PATH", "/usr/bin:/bin")
            .envs(environment.iter().copied());
        finish(command, "")
    }

    /// Starts one, its input given.
    pub(crate) fn start(&self, arguments: &[String], input: &str) -> Child {
        let mut command = self.command("", arguments);
        let pipes = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = pipes.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child
    }

    /// As an ordinary user.
    pub(crate) fn run_as_user(&self, arguments: &[String], input: Stdio) -> Output {
        let own = self.command("", arguments);
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=1000", "--regid=1000", "--clear-groups", "--"])
            .arg(own.get_program())
            .args(own.get_args());
        command.stdin(input).output().unwrap()
    }

    /// Every file with its mode, owner, time and content, but the lock and what stands in for the host's own parts.
    pub(crate) fn picture(&self) -> BTreeMap<PathBuf, String> {
        let mut picture = BTreeMap::new();
        self.draw(self.root(), &mut picture);
        picture
    }

    fn draw(&self, folder: &Path, picture: &mut BTreeMap<PathBuf, String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(self.root()).unwrap().to_owned();
            if name == Path::new("run/oac-node.lock") || name == Path::new("state/calls") {
                continue;
            }
            let meta = fs::symlink_metadata(&path).unwrap();
            let content = if meta.is_file() {
                format!("{:?}", fs::read(&path).unwrap())
            } else {
                String::new()
            };
            let times = if meta.is_file() {
                (meta.mtime(), meta.mtime_nsec())
            } else {
                (0, 0)
            };
            picture.insert(
                name,
                format!(
                    "{:o} {} {} {times:?} {content}",
                    meta.mode(),
                    meta.uid(),
                    meta.gid()
                ),
            );
            if meta.is_dir() {
                self.draw(&path, picture);
            }
        }
    }

    /// A file that only names something else.
    pub(crate) fn link(&self, inner: &str, target: &Path) {
        symlink(target, self.path(inner)).unwrap();
    }
}

fn finish(mut command: Command, input: &str) -> Ran {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Who refuses early does not read.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    Ran {
        status: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        error: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Ran {
    /// The hint that it ended with.
    pub(crate) fn hint(&self) -> &str {
        self.error.trim_end()
    }

    #[track_caller]
    pub(crate) fn ready(&self) {
        assert_eq!(self.status, Some(0), "out:\n{}\nerror:\n{}", self.out, self.error);
    }

    #[track_caller]
    pub(crate) fn stopped(&self, hint: &str) {
        assert_eq!((self.status, self.hint()), (Some(1), hint), "out:\n{}", self.out);
    }
}
