"""What memory does at night: put together what says the same, strike what is over, move what lasts.

`statements` reads what an entry says, `rules` finds what may be changed, `edits` changes texts and
takes it back; all three are pure. `keeper` does it, space by space.
"""
