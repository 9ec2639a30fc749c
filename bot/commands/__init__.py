"""What people type to the bot itself: answered without the model, and never behind a turn."""
