"""What is shown, as values: the page, commands, the command line and the doctor render it."""
