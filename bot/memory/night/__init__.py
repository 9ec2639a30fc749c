"""The nightly tidy-up: merge what says the same, strike out what is over, move what lasts.

`rules` finds entries in the same words and, by `slots`, facts that are over; `proposals` reads what
a model finds beyond that; `edits` changes texts and takes it back. All of these are pure. `keeper`
does it, space by space.
"""
