"""What the model sees: the prompt, the window, and how much of it is used."""
