"""Fail when a test report has a skipped test, an expected failure, or no test at all."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree as ET


def complaints(report: str) -> list[str]:
    """Complaints about a report in JUnit's XML, as pytest writes it."""
    root = ET.fromstring(report)  # noqa: S314  # written by our own run, just now
    cases = list(root.iter("testcase"))
    if not cases:
        return ["no test was run"]
    found: list[str] = []
    for case in cases:
        name = f"{case.get('classname')}::{case.get('name')}"
        for kind in ("skipped", "failure", "error"):
            outcome = case.find(kind)
            if outcome is not None:
                found.append(f"{kind}: {name}: {outcome.get('message', '')}")
    return found


def main() -> int:
    """Check the report named on the command line."""
    path = Path(sys.argv[1])
    if not path.is_file():
        sys.stderr.write("the tests left no report\n")
        return 1
    found = complaints(path.read_text("utf-8"))
    sys.stderr.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
