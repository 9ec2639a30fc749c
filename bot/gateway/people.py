"""What the configuration says about whoever wrote a message. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from zoneinfo import ZoneInfo

from bot.channel import ChannelConfig, Inbound
from bot.config import Config
from bot.gateway import routing
from bot.i18n import language_of
from bot.scope import MemoryView, Subject, view_for
from bot.sessions.store import Place


@dataclass(frozen=True, slots=True)
class People:
    """The configuration's answers; `zone` is the time zone of whoever it names no other for."""

    config: Config
    zone: ZoneInfo

    def channel(self, inbound: Inbound) -> ChannelConfig:
        """The configuration of the account a message came in by."""
        return self.config.channels.get(inbound.channel).account(inbound.account)

    def place(self, inbound: Inbound) -> Place:
        """The conversation a message belongs to."""
        return routing.place_of(self.config.session, inbound)

    def is_owner(self, inbound: Inbound) -> bool:
        """Whether a message comes from the owner."""
        return routing.is_owner(self.config.session, inbound.channel, inbound.sender)

    def person(self, inbound: Inbound) -> str:
        """The canonical identity of whoever wrote it."""
        return routing.person_of(self.config.session, inbound.channel, inbound.sender)

    def language(self, inbound: Inbound) -> str:
        """The language to speak: the configured one, or that of the person's app."""
        configured = self.config.agent.language
        return language_of(inbound.locale if configured == "auto" else configured)

    def view(self, inbound: Inbound) -> MemoryView:
        """What the conversation of a message may see."""
        subject = Subject(
            channel=inbound.channel,
            account=inbound.account,
            chat_type=inbound.chat_type,
            chat=inbound.chat,
            sender=inbound.sender,
            key=self.place(inbound).key,
        )
        return view_for(
            self.channel(inbound).scope.within(self.config.scope),
            subject,
            people=routing.identities_of(self.config.session, inbound.channel, inbound.sender),
            is_owner=self.is_owner(inbound),
        )
