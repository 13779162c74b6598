# Keeps one test host: sets up what it needs, boots it, powers it off, and takes everything back when its standard input
# ends, which is also what the death of the test does to it, however it died.
#
#   keeper.sh ROOTFS FOLDER HOSTNAME MEMORY_BYTES
#
# One request per line, one answer each: `boot` -> `up LEADER_PID`, `off` (clean) and `crash` (the power fails) -> `off`.
# Before the first request it says `net N`: the host's number, which names its bridge and its addresses, 10.77.N.1 for
# this machine and 10.77.N.2 for the host. Anything that fails is `failed WHY`, and the end.
#
# It runs in a mount namespace of its own, so the host's root disappears with the last process that uses it.
set -u
root=$1 folder=$2 name=$3 memory=$4
nspawn='' leader='' number=''

hierarchies() { awk '$3 == "cgroup" || $3 == "cgroup2" { print $2 }' /proc/self/mounts; }

fail() { echo "failed $*"; exit 1; }

# Whatever happened before: kills what runs, and removes what was made.
clean() {
    local at try
    trap '' TERM INT HUP
    power_off KILL
    for at in $(hierarchies); do
        # What was killed leaves its group in a moment.
        for try in $(seq 100); do
            [ -d "$at/oac-hosts/$number" ] || break
            find "$at/oac-hosts/$number" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.05
        done
        rmdir "$at/oac-hosts" 2>/dev/null
    done
    [ -n "$number" ] && ip link del "oac-h$number" 2>/dev/null
    umount "$folder/root" 2>/dev/null
    rm -rf "$folder"
}
trap clean EXIT
trap 'exit 1' TERM INT HUP
# An answer that nobody reads any more must not end it before it has cleaned up.
trap '' PIPE

# The bridge is also the lock on its number.
claim_number() {
    local try
    for try in $(seq 0 199); do
        number=$((($$ + try) % 200 + 20))
        ip link add "oac-h$number" type bridge 2>/dev/null && break
        number=''
    done
    [ -n "$number" ] || fail "no network is free"
    ip addr add "10.77.$number.1/24" dev "oac-h$number" && ip link set "oac-h$number" up || fail "no network"
}

# A cgroup of its own in every hierarchy, before systemd-nspawn starts: the host's cgroup namespace begins there.
make_cgroups() {
    local at own
    for at in $(hierarchies); do
        own=$at/oac-hosts/$number
        mkdir -p "$own" || fail "no cgroup below $at"
        if [ -e "$at/cpuset.cpus" ]; then
            local group
            for group in "$at/oac-hosts" "$own"; do
                cat "$at/cpuset.cpus" >"$group/cpuset.cpus" && cat "$at/cpuset.mems" >"$group/cpuset.mems"
            done
        fi
        if [ -e "$at/cgroup.controllers" ]; then
            local group
            for group in "$at" "$at/oac-hosts"; do
                echo "+cpu +memory +pids +io" >"$group/cgroup.subtree_control" 2>/dev/null
            done
        fi
        [ -e "$own/memory.limit_in_bytes" ] && echo "$memory" >"$own/memory.limit_in_bytes"
        [ -e "$own/memory.max" ] && echo "$memory" >"$own/memory.max"
    done
    return 0
}

join_cgroups() {
    local at
    for at in $(hierarchies); do echo "$BASHPID" >"$at/oac-hosts/$number/cgroup.procs"; done
}

make_root() {
    mkdir -p "$folder/upper" "$folder/work" "$folder/root" "$folder/docker"
    mount -t overlay overlay -o "lowerdir=$root,upperdir=$folder/upper,workdir=$folder/work" "$folder/root" ||
        fail "no overlay in $folder"
    echo "$name" >"$folder/root/etc/hostname"
    # Its own name, else sudo waits for a name server.
    printf '127.0.0.1 localhost %s\n' "$name" >"$folder/root/etc/hosts"
    printf 'address=10.77.%s.2/24 gateway=10.77.%s.1\n' "$number" "$number" >"$folder/root/etc/test-host"
}

boot() {
    make_cgroups
    (
        join_cgroups
        # All of a real machine's power but what the machine itself has not. A plain directory for the engine, which
        # cannot stack an overlay on an overlay.
        exec setsid systemd-nspawn --quiet --register=no --keep-unit --kill-signal=SIGRTMIN+3 \
            --directory="$folder/root" --machine="oac-h$number" --hostname="$name" --network-bridge="oac-h$number" \
            --bind="$folder/docker:/var/lib/docker" --capability=all --system-call-filter='@keyring bpf' \
            --resolv-conf=off --console=read-only /sbin/test-host-init >>"$folder/console.log" 2>&1 </dev/null
    ) &
    nspawn=$!
    # The first child may be a short-lived one of nspawn's own.
    local child try
    for try in $(seq 600); do
        kill -0 "$nspawn" 2>/dev/null || fail "it did not start: $(tail -n 3 "$folder/console.log" | tr '\n' ' ')"
        for child in $(cat "/proc/$nspawn/task/$nspawn/children" 2>/dev/null); do
            [ "$(cat "/proc/$child/comm" 2>/dev/null)" = systemd ] && leader=$child
        done
        [ -n "$leader" ] && break
        sleep 0.05
    done
    [ -n "$leader" ] || fail "systemd did not start"
    for try in $(seq 1200); do
        case $(nsenter -t "$leader" -a systemctl is-system-running 2>/dev/null) in
            running | degraded) echo "up $leader"; return ;;
        esac
        sleep 0.05
    done
    fail "it did not come up: $(tail -n 3 "$folder/console.log" | tr '\n' ' ')"
}

power_off() {
    [ -n "$nspawn" ] || return 0
    [ -n "$leader" ] && kill -s "$1" "$leader" 2>/dev/null
    local try
    for try in $(seq 600); do
        kill -0 "$nspawn" 2>/dev/null || break
        [ "$1" = KILL ] && kill -s KILL "$nspawn" 2>/dev/null
        sleep 0.05
    done
    kill -s KILL "$nspawn" 2>/dev/null
    wait "$nspawn" 2>/dev/null
    # The kernel removes it in its own time, and the next boot needs the name.
    ip link del "vb-oac-h$number" 2>/dev/null
    nspawn='' leader=''
}

claim_number
make_root
echo "net $number"
while read -r request; do
    case $request in
        boot) boot ;;
        # SIGRTMIN+4 is systemd's "power off".
        off) power_off RTMIN+4; echo off ;;
        crash) power_off KILL; echo off ;;
    esac
done
