"""What a conversation needs beside its turns: saving memory, making room, saying so, ending it.

`policy` decides what is due, purely; the other modules do it.
"""
