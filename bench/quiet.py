"""Keeps the program's log out of the tables."""

from __future__ import annotations

import logging
import sys

import structlog


def logs() -> None:
    """Let only warnings through, on standard error."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
