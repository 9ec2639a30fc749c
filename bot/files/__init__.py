"""Strangers' files, pictures and documents, read in a separate process.

`reading` is what the rest of the program uses; `program` runs in that process, and so does all it
imports: none of that is imported anywhere else.
"""
