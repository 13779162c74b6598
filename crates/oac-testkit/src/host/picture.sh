# What this host is: one fact per record, each ended by a NUL (`picture.rs` reads it).
LC_ALL=C
export LC_ALL

# Files: type, mode, owner, content; links by where they lead. The engine's own store is told by its objects. Below /usr,
# which is large and where nothing ever belongs, the time of the last change of any kind stands for the content.
find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /usr -o -path /var/lib/docker \
    -o -path /var/lib/containerd \) -prune -o ! -type f -printf 'file\t%p\t%y %m %U:%G %l\t%T@\0'
find /usr -xdev -printf 'file\t%p\t%y %m %U:%G %l%s %C@\t%T@\0'
find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /usr -o -path /var/lib/docker \
    -o -path /var/lib/containerd \) -prune -o -type f -print0 >/tmp/picture.files
xargs -0 -r -n 500 sha256sum -z -- </tmp/picture.files >/tmp/picture.sums
xargs -0 -r -n 500 stat --printf '%n\tf %a %u:%g\t%Y\0' -- </tmp/picture.files |
    awk 'BEGIN { RS = "\0"; ORS = "\0" }
        FILENAME != "-" { sum[substr($0, 67)] = substr($0, 1, 64); next }
        { split($0, part, "\t"); print "file\t" part[1] "\t" part[2] " " sum[part[1]] "\t" part[3] }' /tmp/picture.sums -
rm -f /tmp/picture.files /tmp/picture.sums

lines() { awk -v kind="$1" -v separator="$2" '{
    at = separator == "" ? 0 : index($0, separator)
    name = at ? substr($0, 1, at - 1) : $0
    printf "%s\t%s\t%s%c", kind, name, at ? substr($0, at + length(separator)) : "", 0 }'; }

getent passwd | lines user :
getent group | lines group :
systemctl list-unit-files --plain --no-legend --no-pager | awk '{ print $1 "=" $2 }' | lines unit-file =
systemctl list-units --all --plain --no-legend --no-pager --type=service,socket,timer,mount |
    awk '{ print $1 "=" $2 " " $3 }' | lines unit =
for table in iptables-save ip6tables-save; do
    "$table" 2>/dev/null | grep -v '^#' | sed 's/ \[[0-9]*:[0-9]*\]//' | sort | uniq -c | sed 's/^ *//' |
        sed "s/^/$table /" | lines firewall ''
done
sysctl -a 2>/dev/null | lines sysctl ' = '
# containerd takes any port each time it starts.
ss -H -l -t -u -n -p 2>/dev/null | sed 's/pid=[0-9]*//; s/fd=[0-9]*//; /containerd/s/127.0.0.1:[0-9]*/127.0.0.1:*/' |
    awk '{ print $1 " " $5 " " $7 }' | sort -u | lines port ''
ip -o addr show scope global 2>/dev/null | awk '{ print $2 " " $4 }' | lines address ''
docker ps --all --no-trunc --format '{{.ID}}={{.Names}} {{.State}}' | lines container =
docker image ls --all --no-trunc --format '{{.ID}}={{.Repository}}:{{.Tag}}' | lines image =
docker network ls --format '{{.Name}}={{.Driver}} {{.Labels}}' | lines network =
docker volume ls --format '{{.Name}}={{.Driver}} {{.Labels}}' | lines volume =
