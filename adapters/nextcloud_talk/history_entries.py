"""A room's own record of what was said → the messages Talk would have brought: pure.

Talk tells the webhook of no threads, so none is read here either: a message that comes both ways
has to be the same one.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

from adapters.nextcloud_talk.inbound import Identity, Ignored, Membership, normalise
from bot.channel import Inbound
from bot.channel.kit.intake import MAX_MISSED
from bot.channel.kit.json_access import Json, child, identifier, mapping, number, text

# Talk's calls do not come in order, so what was said shortly before the newest message that was
# stored may not have arrived.
SHORTLY = 5_000  # ms; Talk waits as long for an answer
OVERLAP = 100  # ids of messages, the whole server's, among which that is looked for

_REACTIONS = ("reaction", "reaction_deleted", "reaction_revoked")
# How Talk tells words and files from what it says itself.
_SAID = ("", "comment", "voice-message", "record-audio", "record-video")


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a room's record: its id, its time (ms since the epoch), and what it says."""

    number: int
    sent_at: int
    content: Inbound | Ignored


def read(message: object, room: str, me: Identity, now: int) -> Entry:
    """Read one entry of a room's record; total over any JSON."""
    said = mapping(message)
    sent_at = min(number(said, "timestamp") * 1000, now)
    return Entry(number(said, "id"), sent_at, _content(said, room, me, sent_at))


def _content(said: Json, room: str, me: Identity, sent_at: int) -> Inbound | Ignored:
    kind, system = text(said, "messageType"), text(said, "systemMessage")
    if said.get("deleted") is True or kind == "comment_deleted":
        return Ignored("deleted")
    if system in _REACTIONS or kind in _REACTIONS:
        return Ignored("reaction")
    note = {**_note(said), "name": system or ("message" if kind in _SAID else kind)}
    answered = child(said, "parent")
    if identifier(answered, "id") and answered.get("deleted") is not True:
        note["inReplyTo"] = {"actor": _actor(answered), "object": _note(answered)}
    # What was shared with a room and is no file comes to the webhook as Talk's own words.
    is_shared = text(said, "message").strip() == "{object}"
    payload = {
        "type": "Activity" if system or is_shared else "Create",
        "actor": _actor(said),
        "object": note,
        "target": {"id": room},
    }
    found = normalise(payload, me, sent_at)
    return Ignored("malformed") if isinstance(found, Membership) else found


def _actor(said: Json) -> Json:
    return {
        "type": "Person",
        "id": f"{text(said, 'actorType')}/{text(said, 'actorId')}",
        "name": text(said, "actorDisplayName"),
    }


def _note(said: Json) -> Json:
    content = {"message": said.get("message"), "parameters": said.get("messageParameters")}
    return {"id": said.get("id"), "content": content}


class Missed:
    """Gathers, out of a room's record, what came after one message and is not too old."""

    def __init__(self, after: int, oldest: int) -> None:
        self.ignored: Counter[str] = Counter()  # what is no message, by reason
        self.cut = False  # whether there were more than are kept
        self._after = after
        self._oldest = oldest
        self._since = 0  # when the message `after` was said, or 0
        self._before: deque[Entry] = deque(maxlen=OVERLAP)
        self._newer: dict[int, Entry] = {}

    def add(self, entry: Entry) -> None:
        """Take one entry; the order does not matter."""
        if entry.number == self._after:
            self._since = entry.sent_at
        elif entry.sent_at < self._oldest:
            return
        elif isinstance(entry.content, Ignored):
            if entry.number > self._after:
                self.ignored[entry.content.reason] += 1
        elif entry.number < self._after:
            self._before.append(entry)
        else:
            self._newer[entry.number] = entry
            if len(self._newer) > MAX_MISSED:
                del self._newer[min(self._newer)]
                self.cut = True

    def messages(self) -> list[Inbound]:
        """What was missed, oldest first.

        That includes what was said shortly before the message `after`, if that is there.
        """
        edge = self._since - SHORTLY
        found = [e for e in self._before if self._since and e.sent_at >= edge]
        found += self._newer.values()
        found.sort(key=lambda entry: entry.number)
        return [entry.content for entry in found if isinstance(entry.content, Inbound)]
