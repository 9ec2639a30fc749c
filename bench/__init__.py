"""`python -m bench`: what the engine costs, next to bots that have none."""
