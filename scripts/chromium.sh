#!/bin/sh
# Prints the path of a Chromium for the browser tests, installing one where that is possible.
#   scripts/chromium.sh          find or install
#   scripts/chromium.sh --find   only find; fails when there is none
set -eu
cd "$(dirname "$0")/.."

find_browser() {
    for name in "${CHROMIUM:-}" chromium chromium-browser google-chrome google-chrome-stable \
        '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome' \
        '/Applications/Chromium.app/Contents/MacOS/Chromium'; do
        # A package can leave a command behind that only says how to install it: ask for a version.
        if [ -n "$name" ] && path=$(command -v "$name") && "$path" --version >/dev/null 2>&1; then
            printf '%s\n' "$path"
            return 0
        fi
    done
    return 1
}

playwright_browser() {
    path=$(.venv/bin/python -c 'from playwright.sync_api import sync_playwright
with sync_playwright() as playwright:
    print(playwright.chromium.executable_path)' 2>/dev/null) || return 1
    "$path" --version >/dev/null 2>&1 || return 1
    printf '%s\n' "$path"
}

if [ -n "${CHROMIUM:-}" ] && ! command -v "$CHROMIUM" >/dev/null; then
    echo "CHROMIUM is set to $CHROMIUM, and there is no such program." >&2
    exit 1
fi
find_browser && exit 0
[ "${1:-}" = --find ] && exit 1

playwright_browser && exit 0
echo 'The browser tests need Chromium; trying to install one …' >&2
PLAYWRIGHT_DOWNLOAD_CONNECTION_TIMEOUT=15000 \
    .venv/bin/playwright install chromium >&2 </dev/null && playwright_browser && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq >&2 </dev/null &&
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium \
            >&2 </dev/null
    find_browser && exit 0
fi
echo 'The browser tests need Chromium or Chrome, and installing it did not work here.' >&2
echo 'Install it with your system'\''s package manager, or name it: make test CHROMIUM=/path/to/it' >&2
exit 1
