"""Who may talk to the bot, and how newcomers are let in."""

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.channel import ChannelConfig, GroupConfig, Inbound
from bot.identity.access import AccessDecision, decide
from bot.sessions import pairing
from bot.storage.sqlite_sql import SqliteTransaction
from tests.support import NOON, changed_anywhere, in_memory

MINUTE = 60_000


def who(sender: str, channel: str = "telegram", account: str = "default") -> Inbound:
    return Inbound(channel, account, f"chat-{sender}", "direct", sender, "1", "hi", 0, locale="zh")


def ask(tx, sender: str, now: int = NOON, **place: str) -> pairing.PairingReply:
    return pairing.ask(tx, who(sender, **place), pairing.new_code(), now)


def test_codes_are_eight_letters_nobody_can_misread_and_never_the_same():
    made = {pairing.new_code() for _ in range(500)}
    assert len(made) == 500
    assert all(len(code) == 8 and set(code) <= set(pairing.ALPHABET) for code in made)
    assert len(set(pairing.ALPHABET)) == 32
    assert not set(pairing.ALPHABET) & set("IO01")


def test_a_stranger_gets_a_code_and_a_repeat_gets_silence(tx):
    first = ask(tx, "1")
    assert not first.approved
    assert first.code
    assert ask(tx, "1", NOON + 59 * MINUTE) == pairing.PairingReply(approved=False)


@pytest.mark.parametrize("spelling", [str.lower, str.upper, str.title, lambda c: f"  {c}\n"])
def test_a_code_is_approved_in_any_spelling_and_only_once(tx, spelling):
    code = ask(tx, "1").code
    found = pairing.approve(tx, "telegram", spelling(code), NOON)
    assert found is not None
    assert (found.sender, found.locale) == ("1", "zh")
    assert found.address.chat == "chat-1"
    assert ask(tx, "1").approved
    assert pairing.approve(tx, "telegram", code, NOON) is None


def test_a_code_counts_in_every_place():
    assert pairing.is_same_code("ABCDEFGH", "ABCDEFGH")
    assert not any(
        pairing.is_same_code("ABCDEFGH", other) for other in changed_anywhere("ABCDEFGH")[:8]
    )
    assert not any(
        pairing.is_same_code("ABCDEFGH", other) for other in ("ABCDEFG", "ABCDEFGHJ", "")
    )


def test_a_code_is_good_for_its_own_channel_and_account_only(tx):
    code = ask(tx, "1", account="work").code
    assert pairing.approve(tx, "discord", code, NOON) is None
    assert pairing.approve(tx, "telegram", code, NOON) is not None
    assert ask(tx, "1", account="work").approved
    assert not ask(tx, "1").approved
    assert not ask(tx, "2", account="work").approved


@pytest.mark.parametrize("wrong", ["", " ", "AAAAAAAA", "ⅠⅠⅠⅠⅠⅠⅠⅠ", "ß", "\x00", "%", "'"])
def test_what_is_no_code_approves_nobody(tx, wrong):
    ask(tx, "1")
    pairing.approve(tx, "telegram", ask(tx, "2").code, NOON)  # leaves a row with an empty code
    assert pairing.approve(tx, "telegram", wrong, NOON) is None


def test_a_code_is_valid_for_an_hour_and_the_next_question_gets_a_new_one(tx):
    code = ask(tx, "1").code
    assert pairing.pending(tx, NOON + 60 * MINUTE - 1)
    assert not pairing.pending(tx, NOON + 60 * MINUTE)
    assert pairing.approve(tx, "telegram", code, NOON + 60 * MINUTE) is None
    again = ask(tx, "1", NOON + 60 * MINUTE)
    assert again.code not in ("", code)
    assert pairing.approve(tx, "telegram", code, NOON + 60 * MINUTE) is None
    assert pairing.approve(tx, "telegram", again.code, NOON + 60 * MINUTE) is not None


def test_strangers_who_ask_keep_no_newcomer_out_and_the_oldest_code_gives_way(tx):
    given = [ask(tx, str(n), NOON + n).code for n in range(pairing.MAX_PENDING + 5)]
    assert all(given)
    late = NOON + pairing.MAX_PENDING + 5
    newest = pairing.pending(tx, late)
    assert [int(each.sender) for each in newest] == [*range(5, pairing.MAX_PENDING + 5)][::-1]
    newcomer = ask(tx, "newcomer", late)
    assert pairing.approve(tx, "telegram", given[5], late) is None
    found = pairing.approve(tx, "telegram", newcomer.code, late)
    assert found is not None
    assert found.sender == "newcomer"


def test_the_places_of_one_account_are_not_those_of_another(tx):
    first = [ask(tx, "1", **place).code for place in ({}, {"account": "work"})]
    for number in range(pairing.MAX_PENDING):
        ask(tx, f"x{number}", NOON + 1 + number, channel="discord")
        ask(tx, f"x{number}", NOON + 1 + number, account="other")
    assert all(pairing.approve(tx, "telegram", code, NOON + 1000) for code in first)


def test_an_approval_never_expires(tx):
    pairing.approve(tx, "telegram", ask(tx, "1").code, NOON)
    for number in range(pairing.MAX_PENDING + 5):
        ask(tx, f"x{number}", NOON + number)
    assert ask(tx, "1", NOON + 10**11).approved


def test_who_asked_long_ago_is_forgotten(tx):
    for number in range(20):
        ask(tx, str(number))
    ask(tx, "new", NOON + 60 * MINUTE)
    assert tx.execute("SELECT sender FROM pairing") == [("new",)]


def test_a_code_that_was_typed_in_a_chat_is_void_and_the_next_question_gets_a_new_one(tx):
    first, other = ask(tx, "1").code, ask(tx, "2").code
    (found,) = pairing.void(tx, {first, "ABCDEFGH", ""}, NOON)
    assert found.sender == "1"
    assert pairing.void(tx, {first, ""}, NOON) == []
    assert pairing.approve(tx, "telegram", first, NOON) is None
    assert pairing.approve(tx, "telegram", "", NOON) is None
    again = ask(tx, "1", NOON + 1).code
    assert again not in ("", first)
    assert pairing.approve(tx, "telegram", again, NOON + 1) is not None
    assert pairing.approve(tx, "telegram", other, NOON + 1) is not None


def test_nobody_gets_any_number_of_codes(tx):
    for _ in range(pairing.MAX_CODES):
        code = ask(tx, "1").code
        assert code
        pairing.void(tx, {code}, NOON)
    assert ask(tx, "1", NOON + 59 * MINUTE) == pairing.PairingReply(approved=False)
    assert ask(tx, "1", NOON + 60 * MINUTE).code


STEPS = st.lists(
    st.tuples(
        st.sampled_from("abcdefgh"),
        st.sampled_from(["ask", "ask", "ask", "void", "approve", "revoke"]),
        st.sampled_from([1, 2, 20 * MINUTE, 61 * MINUTE]),
    ),
    max_size=40,
)


@given(STEPS)
def test_whatever_strangers_do_a_newcomer_gets_a_code_that_is_good_for_an_hour(steps):
    connection = in_memory()
    with pytest.MonkeyPatch.context() as patch, contextlib.closing(connection):
        patch.setattr(pairing, "MAX_PENDING", 3)
        tx = SqliteTransaction(connection)
        now, approved, good = NOON, set(), []  # good: who, code and when, the newest first
        given: dict[str, list[int]] = {}
        for sender, step, later in steps:
            now += later
            good = [each for each in good if now - each[2] < pairing.VALID_MS]
            held = {each[0]: each[1] for each in good}
            if step == "ask":
                asked = ask(tx, sender, now)
                lately = [at for at in given.get(sender, []) if now - at < pairing.VALID_MS]
                assert asked.approved == (sender in approved)
                assert not (asked.code and sender in held)
                assert bool(asked.code) or sender in approved or sender in held or lately
                assert len(lately) + bool(asked.code) <= pairing.MAX_CODES
                if asked.code:
                    given[sender] = [*given.get(sender, []), now]
                    good = [(sender, asked.code, now), *good][:3]
            elif step == "void":
                pairing.void(tx, {held.get(sender, "")}, now)
                good = [each for each in good if each[0] != sender]
            elif step == "approve" and sender in held:
                assert pairing.approve(tx, "telegram", held[sender], now) is not None
                approved.add(sender)
                good = [each for each in good if each[0] != sender]
            elif step == "revoke":
                pairing.revoke(tx, "telegram", sender)
                approved.discard(sender)
                given.pop(sender, None)
                good = [each for each in good if each[0] != sender]
            # Each code that was given is good until it is used, too old, or too many came since.
            waiting = {(each.sender, each.code) for each in pairing.pending(tx, now)}
            assert waiting == {each[:2] for each in good}


@given(st.text(), st.text(alphabet=pairing.ALPHABET, min_size=8, max_size=8), st.text())
def test_a_code_is_seen_wherever_it_stands_as_a_word(before, code, after):
    frame = (before + " ", " " + after)
    for typed in (code, code.lower(), code.title(), f"`{code}`", f"/link {code}", f"是{code}吗"):
        assert code in pairing.typed_code(typed.join(frame))
    assert code not in pairing.typed_code(f"x{code}")
    assert code not in pairing.typed_code(f"{code}9")


def test_whoever_is_revoked_must_ask_again(tx):
    for account in ("default", "work"):
        code = ask(tx, "1", account=account).code
        pairing.approve(tx, "telegram", code, NOON)
    assert pairing.revoke(tx, "discord", "1") == 0
    assert pairing.revoke(tx, "telegram", "1") == 2
    assert pairing.approved(tx) == []
    assert ask(tx, "1").code


def test_a_clock_set_back_a_little_keeps_codes_good(tx):
    code = ask(tx, "1").code
    assert ask(tx, "1", NOON - 30 * MINUTE) == pairing.PairingReply(approved=False)
    assert pairing.approve(tx, "telegram", code, NOON - 30 * MINUTE) is not None


def test_codes_from_a_clock_that_was_years_ahead_neither_last_nor_take_up_room(tx):
    codes = [ask(tx, sender, NOON + 10**11).code for sender in "123"]
    assert pairing.approve(tx, "telegram", codes[0], NOON) is None
    assert pairing.pending(tx, NOON) == []
    assert ask(tx, "4").code
    assert ask(tx, "1").code


@given(st.lists(st.tuples(st.sampled_from("12345"), st.integers(-120, 120)), max_size=30))
def test_however_the_clock_jumps_three_codes_are_valid_at_most(steps):
    connection = in_memory()
    with pytest.MonkeyPatch.context() as patch, contextlib.closing(connection):
        patch.setattr(pairing, "MAX_PENDING", 3)
        tx = SqliteTransaction(connection)
        now = NOON
        for sender, minutes in steps:
            now += minutes * MINUTE
            asked = ask(tx, sender, now)
            waiting = pairing.pending(tx, now)
            assert not asked.approved
            assert all(abs(now - each.asked_at) < 60 * MINUTE for each in waiting)
            if asked.code:
                assert len(waiting) <= 3


def test_a_name_is_kept_for_the_operator_only(tx):
    inbound = replace(who("1"), sender_name="Eve'); DROP TABLE pairing; --")
    pairing.ask(tx, inbound, pairing.new_code(), NOON)
    assert pairing.pending(tx, NOON)[0].name == inbound.sender_name


@pytest.mark.parametrize("is_in", [False, True])
def test_whoever_is_blocked_is_let_in_by_nothing_until_that_is_undone(tx, is_in):
    code = ask(tx, "1").code
    if is_in:
        pairing.approve(tx, "telegram", code, NOON)
    found = pairing.block(tx, ("telegram", "1"), NOON)
    assert found is not None
    assert (found.chat, found.locale, pairing.blocked(tx)) == ("chat-1", "zh", [found])
    silent = pairing.PairingReply(approved=False)
    assert ask(tx, "1") == ask(tx, "1", NOON + 300 * MINUTE) == silent
    assert ask(tx, "1", account="work") == silent  # nor by another account of the bot
    assert pairing.approve(tx, "telegram", code, NOON) is None
    assert pairing.approved(tx) == pairing.pending(tx, NOON) == []
    assert ask(tx, "1", channel="discord").code
    assert pairing.let_in_again(tx, ("telegram", "1"), NOON) is not None
    assert ask(tx, "1").approved
    assert pairing.let_in_again(tx, ("telegram", "1"), NOON) is None


def test_whoever_is_unblocked_asks_as_a_stranger_does(tx):
    pairing.approve(tx, "telegram", ask(tx, "1").code, NOON)
    pairing.block(tx, ("telegram", "1"), NOON)
    assert pairing.unblock(tx, ("telegram", "1")) is not None
    assert ask(tx, "1").code
    assert pairing.unblock(tx, ("telegram", "1")) is None


def test_nobody_is_blocked_who_never_asked(tx):
    assert pairing.block(tx, ("telegram", "1"), NOON) is None
    assert pairing.blocked(tx) == []


def test_those_who_are_blocked_take_no_place_of_those_who_ask(tx):
    for number in range(pairing.MAX_PENDING + 5):
        ask(tx, str(number))
        pairing.block(tx, ("telegram", str(number)), NOON)
    assert ask(tx, "new").code
    assert len(pairing.pending(tx, NOON)) == 1
    assert len(pairing.blocked(tx)) == pairing.MAX_PENDING + 5


ADA = Inbound("telegram", "default", "42", "direct", "42", "1", "hi", 0, sender_name="Ada")
POLICIES = ["pairing", "allowlist", "open", "disabled"]


def config(policy: str, *allowed: str) -> ChannelConfig:
    # Built without its own check of "open", so that the decision is tested alone.
    return ChannelConfig.model_construct(dm_policy=policy, allow_from=allowed)


def test_by_default_nobody_is_let_in_without_a_code_and_no_room_is():
    assert decide(ChannelConfig(), ADA, is_owner=False) is AccessDecision.PAIR
    for is_owner in (False, True):
        assert decide(ChannelConfig(), DEN, is_owner=is_owner) is AccessDecision.DECLINE


@pytest.mark.parametrize(
    ("policy", "allowed", "verdict"),
    [
        ("pairing", (), AccessDecision.PAIR),
        ("pairing", ("42",), AccessDecision.ALLOW),
        ("pairing", ("telegram:42",), AccessDecision.ALLOW),
        ("pairing", ("discord:42",), AccessDecision.PAIR),
        ("pairing", ("*",), AccessDecision.PAIR),
        ("allowlist", (), AccessDecision.DENY),
        ("allowlist", ("42",), AccessDecision.ALLOW),
        ("allowlist", ("*",), AccessDecision.DENY),
        ("open", ("*",), AccessDecision.ALLOW),
        ("open", (), AccessDecision.DENY),
        ("open", ("7",), AccessDecision.DENY),
        ("open", ("42",), AccessDecision.ALLOW),
        ("disabled", ("42", "*"), AccessDecision.DENY),
    ],
)
def test_the_policy_decides_in_direct_chats(policy, allowed, verdict):
    assert decide(config(policy, *allowed), ADA, is_owner=False) is verdict


@pytest.mark.parametrize("policy", POLICIES)
def test_the_owner_is_let_in_unless_the_channel_is_closed(policy):
    wanted = AccessDecision.DENY if policy == "disabled" else AccessDecision.ALLOW
    assert decide(config(policy), ADA, is_owner=True) is wanted


@pytest.mark.parametrize("policy", POLICIES)
def test_without_ids_nobody_is_let_in(policy):
    nobody = decide(config(policy, "*", ""), replace(ADA, sender=""), is_owner=True)
    assert nobody is AccessDecision.DENY
    there = rooms(policy if policy == "open" else "allowlist", groups={"den": {}})
    overheard = decide(there, replace(DEN, sender=""), is_owner=True)
    assert overheard is AccessDecision.LISTEN
    assert decide(rooms("open"), replace(DEN, chat=""), is_owner=True) is AccessDecision.DENY


@pytest.mark.parametrize(
    ("policy", "verdict"), [("pairing", AccessDecision.PAIR), ("allowlist", AccessDecision.DENY)]
)
def test_a_star_names_nobody_not_even_who_is_called_so(policy, verdict):
    assert decide(config(policy, "*"), replace(ADA, sender="*"), is_owner=False) is verdict


@given(st.text(max_size=20), st.text(max_size=20), st.sampled_from(POLICIES[:2]))
def test_names_decide_nothing(name, text, policy):
    named = replace(ADA, sender_name=name, text=text, chat="someone", mentions_bot=True)
    allowed = tuple(entry for entry in (name, text, f"telegram:{name}", "someone") if entry != "42")
    strangers = tuple(entry for entry in allowed if entry != "telegram:42")
    assert decide(config(policy, *strangers), named, is_owner=False) is not AccessDecision.ALLOW


@given(st.text(min_size=1, max_size=8), st.text(min_size=1, max_size=8))
def test_an_id_lets_in_only_itself(listed, sender):
    found = decide(config("allowlist", listed), replace(ADA, sender=sender), is_owner=False)
    same = listed != "*" and listed in (sender, f"telegram:{sender}")
    assert (found is AccessDecision.ALLOW) == same


# --- rooms ---------------------------------------------------------------------------------------

KINDS = ["group", "channel", "thread", "", "dm", "DIRECT", "supergroup"]
DEN = replace(ADA, chat_type="group", chat="den", mentions_bot=True)
LISTS = st.lists(st.sampled_from(["*", "42", "telegram:42", "7", "discord:42", "Ada", "den"]))


def rooms(policy: str = "allowlist", **fields: object) -> ChannelConfig:
    return ChannelConfig(group_policy=policy, **fields)


@pytest.mark.parametrize(
    ("policy", "groups", "verdict"),
    [
        ("allowlist", {}, AccessDecision.DECLINE),
        ("allowlist", {"den": {}}, AccessDecision.ALLOW),
        ("allowlist", {"*": {}}, AccessDecision.ALLOW),
        ("allowlist", {"other": {}}, AccessDecision.DECLINE),
        ("allowlist", {"parent": {}}, AccessDecision.ALLOW),
        ("allowlist", {"den": {"enabled": False}, "*": {}}, AccessDecision.DECLINE),
        ("allowlist", {"den": {"enabled": False}, "parent": {}}, AccessDecision.DECLINE),
        ("open", {}, AccessDecision.ALLOW),
        ("open", {"den": {"enabled": False}}, AccessDecision.DECLINE),
        ("open", {"*": {"enabled": False}}, AccessDecision.DECLINE),
        ("open", {"*": {"enabled": False}, "den": {}}, AccessDecision.ALLOW),
        ("disabled", {"den": {}, "*": {}}, AccessDecision.DENY),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_the_policy_decides_about_rooms_of_any_kind(policy, groups, verdict, kind):
    there = replace(DEN, chat_type=kind, parent="parent")
    assert decide(rooms(policy, groups=groups), there, is_owner=False) is verdict


@pytest.mark.parametrize(
    ("own", "general", "verdict"),
    [
        (None, (), AccessDecision.ALLOW),
        (None, ("7",), AccessDecision.LISTEN),
        (None, ("42",), AccessDecision.ALLOW),
        (None, ("telegram:42",), AccessDecision.ALLOW),
        (None, ("discord:42",), AccessDecision.LISTEN),
        (None, ("*",), AccessDecision.ALLOW),
        (("7",), ("42",), AccessDecision.LISTEN),
        (("42",), ("7",), AccessDecision.ALLOW),
        (("*",), ("7",), AccessDecision.ALLOW),
        ((), ("42",), AccessDecision.LISTEN),
    ],
)
def test_who_may_talk_is_the_rooms_own_list_then_the_channels_then_everyone(own, general, verdict):
    group = GroupConfig() if own is None else GroupConfig(allow_from=own)
    config = rooms(groups={"den": group}, group_allow_from=general)
    assert decide(config, DEN, is_owner=False) is verdict
    assert decide(config, DEN, is_owner=True) is AccessDecision.ALLOW


@given(
    st.sampled_from(POLICIES),
    LISTS,
    st.sampled_from(["allowlist", "open", "disabled"]),
    LISTS,
    st.none() | LISTS,
    st.sampled_from(KINDS),
    st.booleans(),
)
def test_what_lets_in_to_a_direct_chat_means_nothing_in_a_room(  # noqa: PLR0917
    dm_policy, allowed, policy, general, own, kind, is_owner
):
    group = GroupConfig() if own is None else GroupConfig(allow_from=tuple(own))
    fields = {"group_policy": policy, "group_allow_from": tuple(general), "groups": {"den": group}}
    there = replace(DEN, chat_type=kind)
    found = {
        decide(
            ChannelConfig.model_construct(**fields, dm_policy=dm, allow_from=tuple(allow)),
            there,
            is_owner=is_owner,
        )
        for dm in (dm_policy, "disabled")
        for allow in (allowed, ())
    }
    assert len(found) == 1
    assert AccessDecision.PAIR not in found


@given(st.text(max_size=20), LISTS)
def test_names_decide_nothing_in_rooms(name, general):
    config = rooms(groups={"den": {}}, group_allow_from=tuple(general) or ("7",))
    named = replace(DEN, sender_name=name, text=name, server=name)
    assert decide(config, named, is_owner=False) is decide(config, DEN, is_owner=False)
