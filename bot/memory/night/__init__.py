"""What memory does at night: put together what says the same, strike what is over, move what lasts.

`rules` finds entries in the same words and, by `slots`, facts that are over; `proposals` reads what
a model finds beyond that; `edits` changes texts and takes it back. All of these are pure. `keeper`
does it, space by space.
"""
