"""OpenClaw: its folder, found and read as it was left; nothing in it is changed by a byte."""
