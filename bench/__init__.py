"""Benchmarks, each a module of its own: `python -m bench` runs all of them."""
