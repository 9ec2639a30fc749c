#!/bin/sh
# Prints the folder for what tests write: in memory where there is much of it, for tests store so
# much so safely that they would wait for a disk half of the time.
set -eu
memory=/dev/shm
gigabytes=8

enough() {
    [ -n "$1" ] && [ "$1" -ge $((gigabytes * 1024 * 1024)) ]
}

if [ -d "$memory" ] && [ -w "$memory" ] &&
    enough "$(df -Pk "$memory" | awk 'NR == 2 { print $4 }')" &&
    enough "$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo 2>/dev/null)"; then
    echo "$memory"
else
    echo "${TMPDIR:-/tmp}"
fi
