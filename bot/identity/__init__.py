"""Who a message is from, which conversation it belongs to, and what is allowed there. Pure.

`resolve` works all of it out once, into one frozen `Conversation` that everything later takes.
"""

from bot.identity.access import AccessDecision
from bot.identity.conversation import Conversation, ConversationResolver, resolve
from bot.identity.message import Parsed
from bot.identity.policy import Policy, PolicySnapshot
from bot.identity.values import (
    MANY,
    ORIGIN,
    Activation,
    Books,
    ChatRef,
    Link,
    MessageOrigin,
    Place,
    Seat,
)

__all__ = [
    "MANY",
    "ORIGIN",
    "AccessDecision",
    "Activation",
    "Books",
    "ChatRef",
    "Conversation",
    "ConversationResolver",
    "Link",
    "MessageOrigin",
    "Parsed",
    "Place",
    "Policy",
    "PolicySnapshot",
    "Seat",
    "resolve",
]
