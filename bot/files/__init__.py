"""What strangers' files hold, found out in a process of their own: pictures, documents.

`reading` is what the rest of the program uses; `program` runs in that process, and so does all it
imports: none of that is imported anywhere else.
"""
