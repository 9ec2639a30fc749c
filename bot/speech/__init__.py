"""What people say in voice messages, as words: asked of a service, or found out on this machine."""
