#!/bin/sh
# Says which servers the tests look for and do not find, and how to get them; nothing when all are
# there. A variable of its name may name one: NGINX=/opt/nginx/sbin/nginx
set -eu

# As tests/fakes/programs.py: people's PATH often leaves these out.
PATH="$PATH:/usr/sbin:/usr/local/sbin:/sbin"
missing=
for name in nginx pgbouncer openssl; do
    variable=$(printf '%s' "$name" | tr '[:lower:]' '[:upper:]')
    eval "program=\${$variable:-$name}"
    command -v "$program" >/dev/null || missing="$missing $name"
done
[ -z "$missing" ] && exit 0
echo "Not found:$missing. The tests that need them are skipped; on Debian and Ubuntu:" \
    "apt install$missing; with Homebrew: brew install$missing"
