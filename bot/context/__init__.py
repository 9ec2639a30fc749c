"""The model's input: the prompt, the window, and how much of it is used."""
