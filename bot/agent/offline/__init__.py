"""The model that needs no service: what it understands of a message, and what it answers."""
