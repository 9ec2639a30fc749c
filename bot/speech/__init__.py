"""Speech in voice messages as words, by a service or on this machine."""
