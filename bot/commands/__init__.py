"""Slash commands: answered without the model, and never behind a turn."""
