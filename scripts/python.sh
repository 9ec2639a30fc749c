#!/bin/sh
# Prints the Python to set up .venv with: the newest on PATH that every pinned package is built for;
# else python3. With a version, such as 3.12: one of that version, from PATH or pyenv, or nothing.
set -eu

# fits PROGRAM VERSION: it runs, can make a virtual environment, and is of this version.
fits() {
    "$1" -c "import ensurepip, sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != '$2')" \
        >/dev/null 2>&1
}

for version in ${1:-3.14 3.13 3.12 3.11}; do
    for name in "python$version" python3 \
        ${1:+"${PYENV_ROOT:-${HOME:-}/.pyenv}/versions/$version".*/bin/python}; do
        if fits "$name" "$version"; then
            echo "$name"
            exit 0
        fi
    done
done

[ $# -gt 0 ] || echo python3
