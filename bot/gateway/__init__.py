"""From a message to its turn: store, dedupe, access, routing, lanes."""
