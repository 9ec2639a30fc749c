"""`/tools`: what the model may use here, and for the owner why something is missing."""

from __future__ import annotations

from collections.abc import Sequence

from bot.agent.models import ToolSpec
from bot.agent.tools.mcp.servers import McpServers, ServerState
from bot.agent.tools.toolbox import Toolbox
from bot.agent.turn import call_of
from bot.commands.base import Answer, Apply, Call, saying
from bot.i18n import catalog, text
from bot.identity.access import Permission
from bot.sessions import approvals
from bot.sessions.approvals import Question
from bot.sessions.store import Session
from bot.storage import Transaction
from bot.unit_of_work import UnitOfWork

MAX_SHOWN = 60  # tools that are named, of those that are there and of those that are not
MAX_DESCRIPTION = 100  # characters


class ToolCommands:
    """`/tools`."""

    def __init__(self, toolbox: Toolbox, servers: McpServers) -> None:
        self._toolbox = toolbox
        self._servers = servers

    async def tools(self, call: Call) -> Apply:
        """The tools whoever asks may use here.

        Only the owner is told of others: in a direct chat by name and with the rule that takes them
        away, in a room, where others read it, by their number.
        """
        rights = call.conversation.rights
        given: list[ToolSpec] = []
        refused: list[tuple[str, Permission]] = []
        for spec in self._toolbox.specs:
            found = rights.of(spec.name, built_in=spec.built_in)
            if found.is_given:
                given.append(spec)
            else:
                refused.append((spec.name, found))
        lines = [text(call.language, "command.tools.intro" if given else "command.tools.none")]
        lines += [_line(call.language, spec) for spec in given[:MAX_SHOWN]]
        lines += _more(call.language, given)
        if call.conversation.is_owner:
            missing = _missing(call, refused) if refused else []
            if call.is_direct:
                missing += [_server(call.language, each) for each in self._servers.states()]
                missing += _left_out(call.language, self._toolbox.left_out)
            lines += ["", *missing] if missing else []
        return saying("\n".join(lines))


def _line(language: str, spec: ToolSpec) -> str:
    """A tool with what it does: in the person's language if it is one of the program's own."""
    own = f"tool.{spec.name}"
    words = " ".join(spec.description.split())
    if own in catalog(language):
        words = text(language, own)
    elif len(words) > MAX_DESCRIPTION:
        words = f"{words[: MAX_DESCRIPTION - 1].rstrip()}…"
    return f"- `{spec.name}`: {words}" if words else f"- `{spec.name}`"


def _missing(call: Call, refused: Sequence[tuple[str, Permission]]) -> list[str]:
    """What the owner is told of tools that may not be used here."""
    if not call.is_direct:
        return [text(call.language, "command.tools.more_in_room", count=len(refused))]
    lines = [
        text(call.language, "command.tools.denied", name=name, rule=permission.rule)
        for name, permission in refused[:MAX_SHOWN]
    ]
    return [*lines, *_more(call.language, refused)]


def _server(language: str, server: ServerState) -> str:
    """How a tool server is doing, and what of it is not there."""
    lines = [text(language, f"tools.server.{server.state}", name=server.name, count=server.tools)]
    if server.unusable:
        lines.append(text(language, "tools.server.unusable", count=server.unusable))
    if server.left:
        lines.append(text(language, "tools.server.left", count=server.left))
    return f"- {' '.join(lines)}"


def _left_out(language: str, names: Sequence[str]) -> list[str]:
    """The tools that are not there because another one has their name."""
    if not names:
        return []
    shown = ", ".join(f"`{name}`" for name in names[:MAX_SHOWN])
    return [f"- {text(language, 'tools.left_out', names=shown)}", *_more(language, names)]


def _more(language: str, tools: Sequence[object]) -> list[str]:
    left = len(tools) - MAX_SHOWN
    return [text(language, "command.tools.more", count=left)] if left > 0 else []


class ApprovalCommands:
    """`/allow [ID]`, `/deny [ID]`: what the buttons of a question give."""

    async def allow(self, call: Call) -> Apply:
        """Let the call be made: it is begun by the turn of this message."""
        return self._decide(call, is_allowed=True)

    async def deny(self, call: Call) -> Apply:
        """Let it not be made; the model is told."""
        return self._decide(call, is_allowed=False)

    def _decide(self, call: Call, *, is_allowed: bool) -> Apply:
        inbound = call.inbound
        asker = (inbound.channel, inbound.account, inbound.sender)

        def apply(unit: UnitOfWork, session: Session) -> Answer:
            found = _question(unit.tx, call, session, asker)
            if isinstance(found, str):
                return Answer(text(call.language, found))
            use = call_of(unit.tx, found)
            if use is None:
                return Answer(text(call.language, "approval.closed"))
            approvals.answer(unit.tx, found, call.now, is_allowed=is_allowed)
            said = "allowed" if is_allowed else "denied"
            return Answer(
                text(call.language, f"approval.{said}", tool=use.name),
                message=text(call.language, f"approval.said_{said}", tool=use.name),
                question=found.id,
            )

        return apply


def _question(
    tx: Transaction, call: Call, session: Session, asker: approvals.Asker
) -> Question | str:
    """The question that is answered, or the key of why none is."""
    id_ = call.rest.strip().lower()
    if not id_:
        waiting = approvals.open_in(tx, session.id, asker, call.now)
        return waiting[0] if len(waiting) == 1 else f"approval.{'which' if waiting else 'none'}"
    found = approvals.of_id(tx, id_)
    if found is None or found.session_id != session.id:
        return "approval.closed"
    if found.asker != asker:
        return "approval.not_yours"
    return found if found.is_open(call.now) else "approval.closed"
