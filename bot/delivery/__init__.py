"""Outgoing messages: a durable outbox, cut into pieces, sent in order for each chat."""
