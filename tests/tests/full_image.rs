//! The full Runtime image, in sandboxes as nodes make them: its tools work for the account that commands run as, under
//! the sandbox's confinement.

use std::collections::HashSet;

use oac_testkit::{installation::Node, runtime_image::RuntimeImage};
use oac_tests::story::Story;
use serde_json::json;

/// What a Session's user would do with the image, one command each: a name, a script, what it must print last.
const TASKS: &[(&str, &str, &str)] = &[
    (
        "a C program",
        r#"printf '#include <stdio.h>\n#include <zlib.h>\nint main(void) { printf("%%s C\\n", zlibVersion()[0] ? "hello" : ""); }\n' > hello.c
           gcc -Wall -Werror -o hello hello.c -lz && ./hello && clang -fuse-ld=lld -o hello2 hello.c -lz && ./hello2"#,
        "hello C\nhello C\n",
    ),
    (
        "a C++ program, by make and by cmake with ninja",
        r#"printf '#include <iostream>\n#include <thread>\nint main() { std::thread t([] { std::cout << "hello C++" << std::endl; }); t.join(); }\n' > hello.cc
           printf 'hello: hello.cc\n\tg++ -pthread -o $@ $<\n' > Makefile
           printf 'cmake_minimum_required(VERSION 3.20)\nproject(hello CXX)\nfind_package(Threads REQUIRED)\nadd_executable(hi hello.cc)\ntarget_link_libraries(hi Threads::Threads)\n' > CMakeLists.txt
           make -s && ./hello && cmake -G Ninja -B build . > log && ninja -C build > log && build/hi"#,
        "hello C++\nhello C++\n",
    ),
    (
        "a Python environment",
        r#"python3 -m venv venv && . venv/bin/activate && pip --version | grep -o '^pip'
           mkdir -p package && printf 'from setuptools import setup\nsetup(name="mine", version="1.0", py_modules=["mine"])\n' > package/setup.py
           printf 'WORD = "installed"\n' > package/mine.py
           pip install --quiet --no-index --no-build-isolation --disable-pip-version-check ./package 2> log && cd / && python -c 'import mine, ssl, sqlite3; print(mine.WORD)'"#,
        "pip\ninstalled\n",
    ),
    (
        "the Python libraries of the image",
        "python -c 'import numpy, pandas, requests, yaml; print(numpy.arange(4).sum())'; printf 'def test_one():\\n    assert True\\n' > test_one.py; pytest -q test_one.py -p no:cacheprovider | grep -o '1 passed'",
        "6\n1 passed\n",
    ),
    (
        "Node and npm",
        r#"mkdir -p app/lib && cd app && printf '{"name":"lib","version":"1.0.0","main":"index.js"}' > lib/package.json
           echo 'module.exports = "from a module"' > lib/index.js
           printf '{"name":"app","version":"1.0.0","scripts":{"start":"node main.js"}}' > package.json
           echo 'console.log(require("lib"), typeof fetch)' > main.js
           npm --version | grep -c '^[0-9]' && npm install --offline --silent --no-audit ./lib > log && npm run --silent start"#,
        "1\nfrom a module function\n",
    ),
    (
        "a git repository, cloned",
        r#"git init -q -b main origin && cd origin && git config user.name me && git config user.email me@example.com
           echo one > file && git add file && git commit -qm first && cd .. && git clone -q origin copy && git -C copy log --format=%s"#,
        "first\n",
    ),
    (
        "HTTP to a server in the sandbox",
        r#"mkdir -p site && echo served > site/page && cd site
           python3 -m http.server --bind 127.0.0.1 8000 > log 2>&1 & server=$!
           curl -s --retry 50 --retry-connrefused --retry-delay 0 --retry-max-time 60 http://127.0.0.1:8000/page
           wget -qO- http://127.0.0.1:8000/page; kill $server"#,
        "served\nserved\n",
    ),
    (
        "archives",
        r#"mkdir -p pack && echo packed > pack/file
           for kind in gzip bzip2 xz zstd; do tar --$kind -cf pack.$kind pack && tar --$kind -xOf pack.$kind pack/file || exit 1; done
           zip -qr pack.zip pack && unzip -p pack.zip pack/file && 7z a -bso0 -bsp0 pack.7z pack && 7z x -so pack.7z pack/file"#,
        "packed\npacked\npacked\npacked\npacked\npacked\n",
    ),
    (
        "searching and structured data",
        r#"printf '{"a":[1,{"b":"x"}]}' | jq -c .a[1].b; echo needle > hay; rg -N needle hay; fdfind '^hay$'
           sqlite3 :memory: 'select 6 * 7'; printf '<a><b>in</b></a>' | xmlstarlet sel -t -v /a/b; echo"#,
        "\"x\"\nneedle\nhay\n42\nin\n",
    ),
    (
        "a patch, and a copy",
        r#"printf 'old\n' > text; printf 'new\n' > text2; diff -u text text2 > change; patch -s text < change; cat text; rsync -a text text3; cat text3"#,
        "new\nnew\n",
    ),
    (
        "the other interpreters",
        "perl -e 'print \"perl\\n\"'; ruby -e 'puts :ruby'; gawk 'BEGIN { print \"awk\" }'; echo 2^10 | bc",
        "perl\nruby\nawk\n1024\n",
    ),
    (
        "a debugger",
        "printf 'int main(void) { return 7; }' > seven.c; gcc -g -o seven seven.c; gdb -q -batch -ex run -ex quit ./seven 2>&1 | grep -o 'exited with code 07'; strace -o trace ./seven; grep -o 'exited with 7' trace",
        "exited with code 07\nexited with 7\n",
    ),
    (
        "the locale",
        "locale charmap; printf 'ä' | wc -m; python3 -c 'import sys; print(sys.stdout.encoding)'",
        "UTF-8\n1\nutf-8\n",
    ),
    (
        "who runs, and where writing works",
        r#"id -u; id -g; id -un; cd /workspace; pwd -P; touch /home/runtime/x /environment/x /tmp/x /workspace/x && echo writable; touch /usr/x /x 2>/dev/null || echo read-only"#,
        "1000\n1000\nruntime\n/environment/workspace\nwritable\nread-only\n",
    ),
    (
        "no program that changes who it runs as",
        "find / -xdev -type f -perm /6000 2>/dev/null | wc -l; python3 -c 'import os; print(sum(1 for d, _, fs in os.walk(\"/usr\") for f in fs if \"security.capability\" in os.listxattr(os.path.join(d, f), follow_symlinks=False)))'",
        "0\n0\n",
    ),
];

async fn finish(story: Story, node: Node, session: &str) {
    story
        .app("DELETE", &format!("/v1/sessions/{session}"), None)
        .await;
    story.until_empty().await;
    story.end(vec![node]).await;
}

#[tokio::test]
async fn docker_the_tools_of_the_full_image_work_in_a_sandbox() {
    let story = Story::begin_with(None, RuntimeImage::full_of_tests()).await;
    let node = story.add_node("one", 1).await;
    let session = story.new_session().await;
    let mut failed = Vec::new();
    for (name, script, says) in TASKS {
        let script = format!("mkdir -p /workspace/task && cd /workspace/task\n{script}");
        let (turn, output) = story.run(&session, &script).await;
        if turn["exit_code"] != json!(0) || output != *says {
            failed.push(format!("{name}: {turn}\n{output}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    finish(story, node, &session).await;
}

#[tokio::test]
async fn docker_every_listed_package_is_in_the_full_image_and_in_its_lock() {
    let image = RuntimeImage::full_of_tests();
    let lock = std::fs::read_to_string(image.archive.with_file_name("packages.lock")).unwrap();
    let locked: HashSet<&str> = lock
        .lines()
        .filter_map(|l| l.split_once('='))
        .map(|p| p.0)
        .collect();
    for package in oac_release::image::Variant::Full.packages() {
        assert!(locked.contains(package), "{package}");
    }
    let story = Story::begin_with(None, image).await;
    let node = story.add_node("one", 1).await;
    let session = story.new_session().await;
    let (_, output) = story
        .run(
            &session,
            "dpkg-query -W -f '${Package}=${Version} ${Status}\\n' | sort",
        )
        .await;
    let expected: String = lock
        .lines()
        .map(|l| format!("{l} install ok installed\n"))
        .collect();
    assert_eq!(output, expected);
    finish(story, node, &session).await;
}
