# Runs a command inside a test host, in all its namespaces and its cgroups: enter.sh NUMBER LEADER_PID COMMAND...
number=$1 leader=$2
shift 2
for at in $(awk '$3 == "cgroup" || $3 == "cgroup2" { print $2 }' /proc/self/mounts); do
    own=$at/oac-hosts/$number
    # Where systemd keeps its own tree, a group beside its units; a group with children takes no process.
    [ -d "$own/payload" ] && own=$own/payload/entered && mkdir -p "$own"
    echo $$ >"$own/cgroup.procs" 2>/dev/null
done
exec nsenter -t "$leader" -m -u -i -n -p -C -r -w -- env -i HOME=/root TERM=dumb LANG=C.UTF-8 \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
