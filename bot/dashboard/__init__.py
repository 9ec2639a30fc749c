"""The HTTP side: health, metrics, the login page, and the pages channels bring along.

`DashboardServer` is the only listener; who may ask it what is decided in `guard`.
"""

from bot.dashboard.server import DashboardServer, Listening
from bot.health import Check, CheckState, Readiness

__all__ = ["Check", "CheckState", "DashboardServer", "Listening", "Readiness"]
