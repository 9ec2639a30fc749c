"""Numbers about the running program, for Prometheus: counts and times, never words or people."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """One registry for one program, so that tests can have several."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.received = Counter(
            "confidant_received",
            "Messages offered by channels, by what became of them.",
            ("channel", "result"),
            registry=self.registry,
        )
        self.turns = Counter(
            "confidant_turns",
            "Finished turns, by how they ended.",
            ("end",),
            registry=self.registry,
        )
        self.turn_seconds = Histogram(
            "confidant_turn_seconds",
            "From the start of a turn to its commit.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.outbox_seconds = Histogram(
            "confidant_outbox_seconds",
            "From a text's commit until it was sent.",
            ("channel",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.parked = Counter(
            "confidant_outbox_parked",
            'Texts taken out of the order: "again" is tried later, "refused" is not.',
            ("channel", "result"),
            registry=self.registry,
        )
        self.unsent = Gauge(
            "confidant_outbox_unsent",
            "Parked texts that are tried again later.",
            registry=self.registry,
        )
        self.set_aside = Counter(
            "confidant_messages_set_aside",
            "Messages whose turn failed every time.",
            ("channel",),
            registry=self.registry,
        )
        self.flushes = Counter(
            "confidant_memory_flushes",
            "Times memory was saved from a conversation, by how it ended.",
            ("end",),
            registry=self.registry,
        )
        self.compactions = Counter(
            "confidant_compactions",
            "Conversations whose older part became a summary, by how it ended.",
            ("end",),
            registry=self.registry,
        )
        self.job_errors = Counter(
            "confidant_job_errors",
            "Scheduled jobs that ended in an error, by job.",
            ("job",),
            registry=self.registry,
        )
        self.running = Gauge(
            "confidant_turns_running", "Turns running now.", registry=self.registry
        )
        self.loop_lag = Gauge(
            "confidant_event_loop_lag_seconds",
            "How late the event loop was at its last check.",
            registry=self.registry,
        )
