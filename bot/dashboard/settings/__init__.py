"""Settings, for the owner: first steps on a fresh machine, what counts now, and changing it."""
