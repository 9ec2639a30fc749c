"""Moving in: what was said to other programs, and their notes, brought here from what they wrote.

Reading is pure and believes nothing; storing goes by ids made of the content, so it can be done
again, and gone on with after a kill.
"""
