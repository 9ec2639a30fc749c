"""Any number of mutated updates: every one becomes a message or is left out and counted."""

import copy
import random
from collections import Counter

import pytest

from adapters.telegram.account import Pace
from adapters.telegram.inbound import Identity, Ignored, album_of, normalise, press_of
from adapters.telegram.presses import Presses
from adapters.telegram.updates import Updates
from bot.channel import Inbound
from bot.channel.kit.reassembly import Part, Pending, continues, merged
from bot.channel.kit.supervisor import Supervisor
from bot.testing import RecordingEngine
from tests.fakes.telegram_rooms import mentions_in
from tests.proofs.rounds import rounds

ME = Identity(123456789, "confidant_bot")
ADA = {"id": 7, "is_bot": False, "first_name": "Ada", "language_code": "de"}
GROUP = {"id": -1001, "type": "supergroup", "title": "Tea", "is_forum": True}
CHANNEL = {"id": -1002, "type": "channel", "title": "News"}
DIRECT = {"id": 7, "type": "private", "first_name": "Ada"}
TEXT = "@confidant_bot /new@confidant_bot 👩‍👩‍👧 مرحبا"
BASE = {"message_id": 5, "from": ADA, "date": 1_700_000_000}
SAID = BASE | {"chat": GROUP, "text": TEXT, "entities": mentions_in(TEXT)}
PHOTO = {"photo": [{"file_id": "p", "file_size": 5}], "caption": TEXT, "media_group_id": "a"}
SEEDS = [
    {"message": SAID},
    {"message": BASE | {"chat": DIRECT, "text": "x" * 4096}},
    {"message": BASE | {"chat": GROUP} | PHOTO | {"caption_entities": mentions_in(TEXT)}},
    {"message": SAID | {"message_thread_id": 8, "is_topic_message": True}},
    {"message": SAID | {"sender_chat": GROUP, "author_signature": "boss"}},
    {"message": SAID | {"sender_chat": CHANNEL, "is_automatic_forward": True}},
    {"message": SAID | {"reply_to_message": SAID, "quote": {"text": "x"}}},
    {"message": SAID | {"forward_origin": {"type": "user", "sender_user": ADA}}},
    {"message": BASE | {"chat": GROUP, "poll": {"question": "?", "options": [{"text": "a"}]}}},
    {"message": BASE | {"chat": GROUP, "new_chat_members": [ADA]}},
    {"message": BASE | {"chat": GROUP, "migrate_to_chat_id": -1003}},
    {"edited_message": SAID | {"edit_date": 1_700_000_009, "location": {"latitude": 1.5}}},
    {"channel_post": BASE | {"chat": CHANNEL, "sender_chat": CHANNEL, "text": "News"}},
    {"callback_query": {"id": "4", "from": ADA, "data": "/compact", "message": SAID}},
    {"my_chat_member": {"chat": GROUP, "from": ADA, "new_chat_member": {"status": "left"}}},
    {"message_reaction": {"chat": GROUP, "message_id": 5, "user": ADA, "new_reaction": []}},
]
ODD = [
    *(None, True, False, 0, -1, 1 << 70, 10**400, 1.5, float("nan"), float("inf"), "", "x", "\0"),
    *("\ud83d", "\u202e", "👩‍👩‍👧", "/new@other_bot", "@confidant_bot", "x" * 20_000, [], {}),
    *([None], [[[]]], [{}] * 300, {"id": 5}, {"id": -5, "type": "channel"}, "private", 4_000_000),
]


def places(value, found):
    """Every mapping and list inside a value."""
    if isinstance(value, dict | list):
        found.append(value)
        for inner in value.values() if isinstance(value, dict) else value:
            places(inner, found)
    return found


def mutated(chance, number):
    update = {"update_id": number, **copy.deepcopy(chance.choice(SEEDS))}
    for _ in range(chance.choice((0, 1, 1, 1, 2, 3, 5, 8))):
        where = chance.choice(places(update, []))
        if isinstance(where, list):
            where.append(copy.deepcopy(chance.choice(ODD)))
        elif where:
            key = chance.choice(list(where))
            if key == "update_id":
                continue
            match chance.randrange(4):
                case 0:
                    del where[key]
                case 1:  # something from elsewhere
                    donor = chance.choice(places(chance.choice(SEEDS), []))
                    items = list(donor.values()) if isinstance(donor, dict) else donor
                    where[key] = copy.deepcopy(chance.choice(items or [None]))
                case _:
                    where[key] = copy.deepcopy(chance.choice(ODD))
    return update


def check(inbound):
    for value in (inbound.text, inbound.sender_name, inbound.locale, inbound.message_id):
        value.encode()
        assert "\0" not in value
    assert inbound.text or inbound.media or inbound.foreign
    assert inbound.chat.removeprefix("-").isdecimal()
    assert len(inbound.text) < 25_000
    assert len(inbound.sender_name) < 300
    assert len(inbound.locale) <= 35
    assert len(inbound.thread) <= 20
    assert len(inbound.media) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(rounds(8, few=2)))
def test_any_update_becomes_a_message_or_says_why_not(seed):
    chance, seen = random.Random(seed), Counter()  # noqa: S311  # repeatable is what counts
    for number in range(10_000):
        update = mutated(chance, number)
        result = normalise(update, "default", ME, 5)
        press_of(update)
        album = album_of(update)
        seen[result.reason if isinstance(result, Ignored) else type(result).__name__] += 1
        if isinstance(result, Inbound):
            check(result)
            part = Part(result, album)
            assert Pending(result.chat, [number], [part], 0.0, 0.0).waits(0.0, Pace()) <= 1.5
            if continues([part], part):
                assert len(merged([part, part]).text) <= 2 * len(result.text) + 1
    assert seen["Inbound"] > 1000
    assert {"malformed", "service", "from_bot", "forged", "empty", "other_bot"} <= seen.keys()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_the_whole_intake_takes_any_batch_and_counts_what_it_drops(seed):
    async def call(method, parameters):
        return True

    chance = random.Random(100 + seed)  # noqa: S311  # repeatable is what counts
    engine, heard = RecordingEngine(), list[Inbound]()
    subject = Updates(
        Supervisor("telegram", "default", engine, waiting="they wait", first=0),
        me=ME,
        presses=Presses("default", call, lambda work: work.close()),
        hear=heard.append,
        member=lambda *_: None,
        patience=Pace(album=0, paste=0),
    )
    pushed = 0
    for batch in range(100):
        updates = [mutated(chance, pushed + n) for n in range(50)]
        pushed += len(updates)
        taken = await subject.take(updates)
        assert (taken.offset, taken.wait) == (pushed, 0), batch
        assert len(subject._done) == len(subject._seen) == 0
    assert heard == engine.received
    dropped, taken_in = sum(engine.drops.values()), len(engine.received) + len(engine.moved)
    # The rest are parts that were put together.
    assert pushed * 0.6 < dropped + taken_in <= pushed
    assert not engine.drops["unreadable"] + engine.drops["fault"]
