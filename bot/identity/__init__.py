"""Identity: the sender of a message, its conversation, and what is allowed there. Pure.

`resolve` works all of it out once, into one frozen `Conversation` that everything later takes.
"""

from bot.identity.access import AccessDecision, Parsed
from bot.identity.conversation import (
    Conversation,
    ConversationResolver,
    Policy,
    PolicySnapshot,
    resolve,
)
from bot.identity.routing import (
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
