"""Values to show; the page, commands, the command line and the doctor render them."""
