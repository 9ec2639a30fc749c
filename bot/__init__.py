"""Confidant's engine: everything between a channel's message and its reply.

Channels live in `adapters` and know only `bot.channel`; `bot.app` wires the two together.
"""

import os

__version__ = "0.1.0"

# The threads of numpy's BLAS wait by looking again and again: where others have work to do, what
# takes a fraction of a millisecond takes twenty. It reads this when it is loaded, later than this.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
