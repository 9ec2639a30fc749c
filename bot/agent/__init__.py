"""The turn: one message in, one reply out, with tools in between.

`models` is the seam to whatever writes the reply; `tools` is what it may use.
"""
