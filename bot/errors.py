"""Every error the engine raises: one root, one tree.

The docstring of a class is its default message, so a class that needs no details is raised bare.
An error a person will read names an i18n key in `key`; `bot.i18n` turns it into a sentence in
their language.
"""

from __future__ import annotations

import inspect


class ConfidantError(Exception):
    """Something in Confidant went wrong."""

    key = "error.unexpected"

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or inspect.cleandoc(self.__doc__ or ""))


class ConfigError(ConfidantError):
    """The configuration cannot be used."""


# --- storage -------------------------------------------------------------------------------------


class StorageError(ConfidantError):
    """The database could not store or read this."""

    key = "error.storage"


class StorageFull(StorageError):
    """The disk is full: nothing new can be stored until there is space again."""


class StorageCorrupt(StorageError):
    """The database is damaged."""


class StorageBusy(StorageError):
    """Another process is using this data directory."""


class StorageAway(StorageError):
    """The database server cannot be reached. It is tried again."""


class StorageNotMade(StorageError):
    """The tables are missing, or older than this version. Nothing was changed."""


class StorageClosed(StorageError):
    """The database is closed."""


class IndexElsewhere(StorageError):
    """Another program builds the index of memory."""


class ArchiveError(ConfidantError):
    """The backup could not be made, or not be restored."""


class ArchiveBusy(ArchiveError):
    """Another backup is being made, or tried, just now: wait for it."""


class ArchiveRefused(ArchiveError):
    """The file cannot be restored. Nothing was changed."""


class ImportRefused(ConfidantError):
    """The export of another program cannot be imported. Nothing was changed."""


class FenceLost(StorageError):
    """Another node has taken this over; nothing was changed."""


# --- channels ------------------------------------------------------------------------------------


class ChannelError(ConfidantError):
    """A channel could not do this."""


class SendTransient(ChannelError):
    """The platform could not be reached, or failed; the same send may work later."""


class SendLater(ChannelError):
    """The platform asks to wait before sending again.

    With `is_own` only what is for the same person in a room waits: others may be answered.
    """

    def __init__(self, seconds: float, *, is_own: bool = False) -> None:
        super().__init__(f"the platform asks to wait {seconds:g} s")
        self.seconds = seconds
        self.is_own = is_own


class SendRefused(ChannelError):
    """The platform will never accept this send: the chat is gone, or the bot is blocked."""


class SendUnreachable(SendRefused):
    """Nobody can be reached there now: they blocked the bot or left, or it was taken out."""


class OutOfSight(ChannelError):
    """The message is not in the conversation any more."""


class ChatMoved(ChannelError):
    """The chat has another id now; what was meant for it goes there."""

    def __init__(self, chat: str) -> None:
        super().__init__("the chat has another id now")
        self.chat = chat


class PoolFull(ConfidantError):
    """Too much of one person's work waits already; it is taken again when some of it is done."""


# --- models --------------------------------------------------------------------------------------


class ModelError(ConfidantError):
    """The model could not answer."""

    key = "error.model.unexpected"
    wait: float = 0.0  # seconds after which the service wants to be asked again, 0 if it told none
    again: bool | None = None  # whether the service said that asking again helps
    told: str = ""  # what the service itself said, cleaned: for the owner

    @property
    def reason(self) -> str:
        """The reason for an operator: the kind, and what the service said."""
        return f"{self}: “{self.told}”" if self.told else str(self)


class ModelAuth(ModelError):
    """The model's service does not accept the key."""

    key = "error.model.auth"


class ModelExpired(ModelAuth):
    """The key of the model's service has expired."""

    key = "error.model.expired"


class ModelRegion(ModelError):
    """The model's service refuses requests from this country."""

    key = "error.model.region"


class ModelNotFound(ModelError):
    """The model's service does not know this model."""

    key = "error.model.not_found"


class ModelBilling(ModelError):
    """The account at the model's service cannot pay for this request."""

    key = "error.model.billing"


class ModelRateLimited(ModelError):
    """The model's service asks to slow down."""

    key = "error.model.rate_limited"


class ModelFailed(ModelError):
    """The model's service failed."""

    key = "error.model.failed"


class ModelOverloaded(ModelFailed):
    """The model's service is overloaded."""

    key = "error.model.overloaded"


class ModelUnreachable(ModelError):
    """The model's service cannot be reached."""

    key = "error.model.unreachable"


class ModelTimeout(ModelUnreachable):
    """The model's service did not answer in time."""

    key = "error.model.timeout"


class ModelProxy(ModelUnreachable):
    """The proxy on the way to the model's service refuses the connection."""

    key = "error.model.proxy"


class ModelTooLarge(ModelError):
    """The request is larger than the model's service takes."""

    key = "error.model.too_large"


class ModelContextFull(ModelTooLarge):
    """The conversation no longer fits the model's window."""

    key = "error.model.context_full"


class ModelPutOff(ModelError):
    """The model's service takes one request at a time, and a person needed it: later."""

    key = "error.model.put_off"


class WindowTooSmall(ModelError):
    """The model's window is too small for a conversation with memory."""

    key = "error.model.window_small"


class ModelRefused(ModelError):
    """The model declined to answer."""

    key = "error.model.refused"


class ModelModerated(ModelRefused):
    """The model's service does not let this content through."""

    key = "error.model.moderated"


class ModelRejected(ModelError):
    """The model's service rejected the request as malformed."""

    key = "error.model.rejected"


class ModelBlind(ModelRejected):
    """The model takes no pictures, and another one may."""

    key = "error.model.blind"


class ModelBadReply(ModelError):
    """The model's reply could not be understood."""

    key = "error.model.bad_reply"


class ModelNoApi(ModelBadReply):
    """The server at this address is no model's service."""

    key = "error.model.no_api"


# --- context --------------------------------------------------------------------------------------


class CompactionFailed(ConfidantError):
    """The older part of a conversation could not be summarised; it stays as it was."""

    key = "error.compaction"


# --- tools ---------------------------------------------------------------------------------------


class ToolError(ConfidantError):
    """A tool could not do what the model asked; the model is told why."""


class NotVisible(ToolError):
    """Nothing by that name can be read here."""


class AddressRefused(ToolError):
    """That address is not public, so it is not opened."""


# --- memory --------------------------------------------------------------------------------------


class EmbedderError(ConfidantError):
    """Texts could not be turned into vectors; searches go by words alone meanwhile."""
