"""Numbers about the running program, for Prometheus: counts and times, never words or people."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """One registry for one program, so that tests can have several."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry, buckets=_SECONDS)
        self.received = counter(
            "confidant_received",
            "Messages offered by channels, by what became of them.",
            ("channel", "result"),
        )
        self.turns = counter("confidant_turns", "Finished turns, by how they ended.", ("end",))
        self.turn_seconds = histogram(
            "confidant_turn_seconds", "From the start of a turn to its commit."
        )
        self.outbox_seconds = histogram(
            "confidant_outbox_seconds", "From a text's commit until it was sent.", ("channel",)
        )
        self.parked = counter(
            "confidant_outbox_parked",
            'Texts taken out of the order: "again" is tried later, "refused" is not.',
            ("channel", "result"),
        )
        self.unsent = gauge("confidant_outbox_unsent", "Parked texts that are tried again later.")
        self.set_aside = counter(
            "confidant_messages_set_aside", "Messages whose turn failed every time.", ("channel",)
        )
        self.flushes = counter(
            "confidant_memory_flushes",
            "Times memory was saved from a conversation, by how it ended.",
            ("end",),
        )
        self.not_kept = counter(
            "confidant_memory_not_kept",
            "Entries that were refused as not worth keeping, by why.",
            ("reason",),
        )
        self.compactions = counter(
            "confidant_compactions",
            "Conversations whose older part became a summary, by how it ended.",
            ("end",),
        )
        self.tool_calls = counter(
            "confidant_tool_calls", "Calls of tools, by how they ended.", ("tool", "result")
        )
        self.tokens = counter(
            "confidant_tokens",
            "Tokens that models used, by what for and of which kind (input, output, …).",
            ("model", "purpose", "kind"),
        )
        self.cost = counter(
            "confidant_cost_dollars",
            "What they cost in US dollars, where the price of the model is known.",
            ("model", "purpose"),
        )
        self.voice = counter(
            "confidant_voice",
            'Voice messages that came ("in") and went ("out"), by what became of them.',
            ("direction", "result"),
        )
        self.job_errors = counter(
            "confidant_job_errors", "Scheduled jobs that ended in an error, by job.", ("job",)
        )
        self.backups = counter(
            "confidant_backups",
            'Backups of everything that were "made" and "tested", by how that ended.',
            ("what", "result"),
        )
        self.running = gauge("confidant_turns_running", "Turns running now.")
        self.loop_lag = gauge(
            "confidant_event_loop_lag_seconds", "How late the event loop was at its last check."
        )
        self.loop_held = histogram(
            "confidant_event_loop_held_seconds",
            "Times that nobody was answered because one step held the event loop.",
        )

    def follow(self, name: str, documentation: str, number: Callable[[], float]) -> None:
        """A gauge that asks for its number whenever it is looked at."""
        gauge = Gauge(f"confidant_{name}", documentation, registry=self.registry)
        gauge.set_function(number)
