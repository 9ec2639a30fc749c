"""From a message to its turn: admission, storing, lanes, running and recording turns."""
