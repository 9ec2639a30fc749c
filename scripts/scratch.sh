#!/bin/sh
# Prints the folder for what tests write: in memory where there is much of it, for tests store so
# much so safely that they would wait for a disk half of the time.
set -eu
memory=/dev/shm
gigabytes=8

enough() {
    [ -n "$1" ] && [ "$1" -ge $((gigabytes * 1024 * 1024)) ]
}

# Tests write programs too, and containers often let none run from there.
runs() {
    probe=$(mktemp "$memory/confidant-XXXXXX") || return 1
    printf '#!/bin/sh\n' >"$probe" && chmod +x "$probe" && "$probe" 2>/dev/null
    ran=$?
    rm -f "$probe"
    return $ran
}

if [ -d "$memory" ] && [ -w "$memory" ] && runs &&
    enough "$(df -Pk "$memory" | awk 'NR == 2 { print $4 }')" &&
    enough "$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo 2>/dev/null)"; then
    echo "$memory"
else
    echo "${TMPDIR:-/tmp}"
fi
