"""Whether everything can work as it is set up: what is looked at, what is mended, who is told.

`checks` has the one list; each module beside it looks at one thing and gives `Finding`s.
"""
