"""Backups as one file: made while the program runs, checked whole before anything is restored.

An archive holds a storage folder as it was at one moment, whichever engine it came from.
"""
