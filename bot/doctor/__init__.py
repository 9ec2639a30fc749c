"""Checks of the set-up, repairs of what they find, and urgent messages to the owner.

`checks` has the one list; each module beside it looks at one thing and gives `Finding`s.
"""
