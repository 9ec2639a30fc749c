"""The scope of a session: pure rules, and the `MemoryView` they build.

Everything that reads memory, notes or past conversations takes a `MemoryView`; there is no other
way in. The default is to see nothing, and only direct chats are let in.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from bot.channel import DEFAULT_ACCOUNT, RecallMode, Rule, ScopeConfig
from bot.config import MAIN_AGENT, AgentsConfig, BindRule, FolderConfig, SendPolicyConfig

MAIN_SPACE = "main"
SHARED_SPACE = "shared"
PRIVATE = "#private"  # the partition of a space's MEMORY.md and USER.md
AGENTS = "agents"  # begins the spaces of an agent with memory of its own, before its name
FOLDERS = "folders/"  # begins the partition of a folder of documents, before its name
TALK = "talk:"  # the partition of what was said in a room, or by a person in direct chats
_UNSAFE = re.compile(r"[^a-z0-9_.-]+")
DIGEST = 32  # hexadecimal digits: 128 bits, so that nobody finds two ids with the same
_LIKE_DIGEST = re.compile(rf"-[0-9a-f]{{{DIGEST}}}$")


@dataclass(frozen=True, slots=True)
class MemoryView:
    """The memory one session may read, and where it writes.

    `space` is the folder of Markdown it owns ("main", "people/<id>", "rooms/<channel>-<id>"), or
    empty when the session may see none. `keys` are the session keys whose conversations it may
    search, `people` the identities whose direct conversations it may search. `private` is true in
    direct chats only: it is what lets MEMORY.md and USER.md load. `recall` is how often memory is
    searched for it unasked, where its rule says so. `folders` are the names of the folders of
    documents it may search. `agent` is the name of the agent whose session it is, and `agents` are
    those whose direct conversations with these people it may search.
    """

    space: str
    keys: tuple[str, ...]
    private: bool
    people: tuple[str, ...] = ()
    recall: RecallMode = ""
    folders: tuple[str, ...] = ()
    agent: str = MAIN_AGENT
    agents: tuple[str, ...] = (MAIN_AGENT,)

    @property
    def begins(self) -> tuple[str, ...]:
        """The prefixes of the keys of direct conversations that it may search."""
        return tuple(f"agent:{agent}:" for agent in self.agents)

    @property
    def spaces(self) -> tuple[str, ...]:
        """The spaces it may read: its own, and what the operator gives to everyone."""
        return (self.space, SHARED_SPACE) if self.space else ()

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions of the memory index it may search."""
        if not self.space:
            return ()
        private = (f"{self.space}{PRIVATE}",) if self.private else ()
        theirs = (talk_of(agent, who) for agent in self.agents for who in self.people)
        talk = (*(f"{TALK}{key}" for key in self.keys), *theirs)
        return (*self.spaces, *private, *talk, *(f"{FOLDERS}{name}" for name in self.folders))


@dataclass(frozen=True, slots=True)
class Subject:
    """The facts rules look at; `also` are other ids the chat has or had (a moved group)."""

    channel: str
    account: str
    chat_type: str
    chat: str
    sender: str
    key: str
    also: tuple[str, ...] = ()
    thread: str = ""


def talk_of(agent: str, person: str) -> str:
    """The partition of what somebody said to an agent in direct chats.

    No person's name begins with "agents/": one of identity_links has no "/", others begin with a
    channel and ":".
    """
    return f"{TALK}{person}" if agent == MAIN_AGENT else f"{TALK}{AGENTS}/{agent}/{person}"


def agents_space(agent: str, space: str) -> str:
    """The space of an agent with memory of its own that is what `space` is in the main memory."""
    return f"{AGENTS}/{agent}" if space == MAIN_SPACE else f"{AGENTS}/{agent}/{space}"


def main_space(space: str) -> str:
    """The space of the main memory that a space of any agent is like."""
    first, _, rest = space.partition("/")
    return rest.partition("/")[2] or MAIN_SPACE if first == AGENTS else space


def is_owners_own(view: MemoryView) -> bool:
    """True for the view of a direct chat of the owner's, with the main memory."""
    return view.private and view.space == MAIN_SPACE


def permits(config: SendPolicyConfig, subject: Subject) -> bool:
    """True if a subject is answered: any matching deny wins, then any allow, then the default."""
    actions = {rule.action for rule in config.rules if matches(rule, subject)}
    if "deny" in actions:
        return False
    return "allow" in actions or config.default == "allow"


def matches(rule: Rule, subject: Subject) -> bool:
    """True if everything that a rule names applies; case does not count."""
    return (
        _is(rule.channel, subject.channel)
        and _is(rule.account, subject.account)
        and _is(rule.chat_type, subject.chat_type)
        and _is(rule.chat, subject.chat, *subject.also)
        and _is(rule.sender, subject.sender)
        and subject.key.startswith(rule.key_prefix.lower())
    )


def agent_for(agents: AgentsConfig, subject: Subject, people: Collection[str]) -> str:
    """The agent that answers: the first with a rule that matches, else that of `[agent]`.

    `people` are the names of whoever speaks, as the configuration writes them. In a room it does
    not matter who that is: its conversation has one agent.
    """

    def is_bound(rule: BindRule) -> bool:
        is_ones = rule.sender or rule.person
        return (
            matches(rule, subject)
            and _is(rule.thread, subject.thread)
            and _is(rule.person, *people)
            and (subject.chat_type == "direct" or not is_ones)
        )

    named = agents.named.items()
    return next((name for name, each in named if any(map(is_bound, each.bind))), MAIN_AGENT)


def may_bind(rule: BindRule, seats: Collection[str], people: Collection[str]) -> bool:
    """True if a rule may have an agent answer somebody in a direct chat of one of their seats.

    `seats` are as the configuration writes them, "telegram:42", and `people` all of their names.
    The chat of a direct chat is taken to have the id of the seat.
    """
    return (
        rule.chat_type in {"", "direct"}
        and _is(rule.person, *people)
        and any(
            _is(rule.channel, channel) and _is(rule.sender, id_) and _is(rule.chat, id_)
            for channel, _, id_ in (seat.partition(":") for seat in seats)
        )
    )


def _is(wanted: str, *have: str) -> bool:
    return not wanted or wanted.lower() in map(str.lower, have)


def view_for(
    config: ScopeConfig,
    subject: Subject,
    *,
    people: tuple[str, ...],
    is_owner: bool,
    folders: Mapping[str, FolderConfig] = {},
    agent: str = MAIN_AGENT,
    agents: tuple[str, ...] = (MAIN_AGENT,),
) -> MemoryView:
    """The view of a session. Pure: the same session and configuration give the same view.

    `agent` is whose session it is, and `agents` share its memory; without `[agent]` among them it
    is one of their own.

    The first matching rule, or else the default, decides if it sees memory at all.
    `people` are the identities of whoever speaks, the canonical one first ("ada", then each
    "telegram:42" it links).
    """
    rule = next((rule for rule in config.rules if matches(rule, subject)), None)
    if (rule.action if rule else config.default) != "allow":
        return MemoryView(space="", keys=(), private=False, agent=agent)
    recall = rule.recall if rule else ""
    is_direct = subject.chat_type == "direct"
    server = "" if subject.account == DEFAULT_ACCOUNT else f"/{subject.account}"
    rooms = (f"{subject.channel}{server}:{chat}" for chat in (subject.chat, *subject.also))
    # As they are written: on some platforms "Ada" and "ada" are two people.
    names = {"everyone", *(people if is_direct else rooms)} - {"owner"}
    found = tuple(
        name
        for name, folder in folders.items()
        if (is_direct and is_owner) or not names.isdisjoint(folder.who)
    )
    if is_direct:
        space = MAIN_SPACE if is_owner else f"people/{folder_name(people[0])}"
    else:
        room = room_name(subject.channel, subject.account, subject.chat)
        space = f"rooms/{folder_name(room)}"
    return MemoryView(
        space if MAIN_AGENT in agents else agents_space(agent, space),
        (subject.key,),
        private=is_direct,
        people=people if is_direct else (),
        recall=recall,
        folders=found,
        agent=agent,
        agents=agents,
    )


def room_name(channel: str, account: str, chat: str) -> str:
    """The name of a room; servers that give the same id (by other accounts) never share it."""
    if account == DEFAULT_ACCOUNT:
        return f"{channel}-{chat}"
    # No id of the default account's can look like that: there is a "-" after the channel.
    return f"{channel}/{quote(account, safe='')}/{chat}"


def folder_name(identity: str) -> str:
    """A folder name for an id: two different ids never share one.

    Ids that are already safe (lower-case letters, digits, `_`, `-`, `.` inside) stay readable;
    others keep a readable part and get a digest of the exact id.
    """
    lowered = identity.lower()
    safe = _UNSAFE.sub("-", lowered).strip("-.")[:48]
    if safe and safe == identity and not _LIKE_DIGEST.search(safe):
        return safe
    return f"{safe or 'id'}-{hashlib.sha256(identity.encode()).hexdigest()[:DIGEST]}"
