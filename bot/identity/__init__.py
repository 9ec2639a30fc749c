"""Who a message is from, which conversation it belongs to, and what is allowed there. Pure.

`resolve` works all of it out once, into one frozen `Conversation` that everything later takes.
"""

from bot.identity.access import AccessDecision
from bot.identity.conversation import Conversation, Directory, resolve
from bot.identity.message import Parsed
from bot.identity.policy import Generation, Policy
from bot.identity.values import MANY, Activation, Books, Link, MessageOrigin, Place, Seat, Spot

__all__ = [
    "MANY",
    "AccessDecision",
    "Activation",
    "Books",
    "Conversation",
    "Directory",
    "Generation",
    "Link",
    "MessageOrigin",
    "Parsed",
    "Place",
    "Policy",
    "Seat",
    "Spot",
    "resolve",
]
