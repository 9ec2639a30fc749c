"""Connections to addresses that others name: which may be opened, and that they go there."""
