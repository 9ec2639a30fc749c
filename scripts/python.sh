#!/bin/sh
# Prints the Python to set up .venv with: the newest on PATH that every pinned package is built for;
# where there is none of these, a newer one, and says what is missing then; else python3.
set -eu

# fits PROGRAM CONDITION: it runs, can make a virtual environment, and the condition holds.
fits() {
    "$1" -c "import ensurepip, sys, venv; sys.exit(not ($2))" >/dev/null 2>&1
}

for version in 3.13 3.12 3.11; do
    for name in "python$version" python3; do
        if fits "$name" "'%d.%d' % sys.version_info[:2] == '$version'"; then
            echo "$name"
            exit 0
        fi
    done
done

for name in python3.14 python3; do
    if fits "$name" 'sys.version_info > (3, 13)'; then
        echo "$("$name" -V 2>&1) is newer than some packages are built for: memory will be searched" \
            'by the multilingual model, which is slower. Or install Python 3.13, then: make clean run' >&2
        echo "$name"
        exit 0
    fi
done

echo python3
