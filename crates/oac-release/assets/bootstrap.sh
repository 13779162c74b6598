# shellcheck shell=sh
# The script of the commands that operators paste (installer.md section 1), as `sh -c` gets it: these lines without
# comments and indentation, in one. `$1` is the installer's SHA-256, `$2` its address; the rest is the installer's.
#
# It holds no secret, and no single quote, backslash or exclamation mark, so that every login shell passes it on as it
# is. It runs under dash, bash and busybox. Standard input is the installer's alone: it may carry the token.

umask 077
s=$1 u=$2; shift 2
die() { echo "$*" >&2; exit 1; }

# Platform and tools come before any download.
[ "$(uname -sm)" = "Linux x86_64" ] || die "Nodes need Linux amd64."
[ "$(id -u)" = 0 ] && r= || r=sudo
for c in curl sha256sum flock $r; do command -v "$c" >/dev/null || die "Install $c, then retry."; done

# Lower case wins even when it is empty, and nothing unset gets exported: without a proxy sudo needs no permission.
case ${http_proxy+l}${HTTP_PROXY+u} in u) export http_proxy="$HTTP_PROXY" ;; esac
case ${https_proxy+l}${HTTPS_PROXY+u} in u) export https_proxy="$HTTPS_PROXY" ;; esac
case ${no_proxy+l}${NO_PROXY+u} in u) export no_proxy="$NO_PROXY" ;; esac
unset HTTP_PROXY HTTPS_PROXY NO_PROXY all_proxy ALL_PROXY

# A root shell that kept another account's HOME writes nothing there.
[ -O "${HOME:?}" ] || die "HOME is another account: use sudo -i."; d=$HOME/.oac/node-bootstrap; f=$d/$s.run p=$d/download.partial
{ mkdir -p "$d" && chmod 700 "$d" && touch "$d/download.lock"; } || die "Cannot write $d."

# One download at a time; who waited finds the file.
exec 9>"$d/download.lock"
flock -n 9 || { echo "Waiting for another download." >&2; flock 9; } || exit 1
ok() { [ -f "$1" ] && [ "$(sha256sum <"$1")" = "$s  -" ]; }
n=1
until ok "$f"; do
    rm -f "$p"; e=0
    # No personal configuration, no redirects; under 64 KiB in a minute, 1,100 s or 64 MiB ends a try.
    h=$(curl -q -fsS --proto =http,https --connect-timeout 15 --speed-limit 1093 --speed-time 60 --max-time 1100 --max-filesize 67108864 -o "$p" -w "%{http_code}" --url "$u") || e=$?
    case $e/$h in
        0/200) ok "$p" || { rm -f "$p"; die "Checksum verification failed: copy a fresh command from Web and retry."; }
            # Only verified bytes get the final name.
            mv -f "$p" "$f" || exit 1; break ;;
        22/408|22/429|22/50[0234]|5/*|6/*|7/*|16/*|18/*|28/*|35/*|52/*|55/*|56/*|92/*) [ "$n" -lt 3 ] || die "Three downloads failed: check the network and retry."
            sleep "$n"; n=$((n+1)) ;;
        *) die "Download failed (curl $e, HTTP $h): check address and proxy." ;;
    esac
done

# The lock ends before the installer starts.
chmod 700 "$f"; exec 9>&-
[ -x "$f" ] || die "$d is mounted noexec: use another HOME."
[ -z "${NO_COLOR-}" ] || set -- "$@" --no-color
[ "$r" ] || exec "$f" "$@"
# Exactly these names cross sudo.
exec sudo --preserve-env=http_proxy,https_proxy,no_proxy,HTTP_PROXY,HTTPS_PROXY,NO_PROXY -- "$f" "$@"
