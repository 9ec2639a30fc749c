"""When a conversation ends, and whose clock counts."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bot.channel import Address, Inbound
from bot.config import Config, ResetConfig, ResetPolicy
from bot.identity import Books, ConversationResolver, Link, Policy
from bot.sessions import zones
from bot.sessions.reset import (
    SessionTimes,
    cut,
    ends_at,
    expired,
    latest_boundary,
    next_boundary,
    policy_for,
)
from bot.sessions.zones import meant, spoken, zone_named
from bot.storage import Database
from tests.fakes.config_channels import load, problems
from tests.support import FakeClock, running

HOUR = 3_600_000
MINUTE = 60_000
DAY = 24 * HOUR

ZONES = st.sampled_from(
    [
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "America/St_Johns",  # set its clocks at one minute past midnight
        "America/Sao_Paulo",  # skipped midnight itself
        "Asia/Kathmandu",
        "Australia/Lord_Howe",  # half an hour of summer time
        "Pacific/Apia",  # skipped a whole day
        "Pacific/Kiritimati",
        "Africa/Casablanca",
        "Asia/Gaza",
    ]
).map(ZoneInfo)
MOMENTS = st.integers(
    int(datetime(1990, 1, 1, tzinfo=UTC).timestamp() * 1000),
    int(datetime(2037, 1, 1, tzinfo=UTC).timestamp() * 1000),
)
HOURS = st.integers(0, 23)
POLICIES = st.one_of(
    st.builds(ResetPolicy, mode=st.just("daily"), at_hour=HOURS, idle_minutes=st.integers(0, 3000)),
    st.builds(ResetPolicy, mode=st.just("idle"), idle_minutes=st.integers(1, 3000)),
    st.builds(ResetPolicy, mode=st.just("none"), idle_minutes=st.integers(0, 3000)),
)


@st.composite
def near_changes(draw: st.DrawFn) -> tuple[int, ZoneInfo]:
    """A moment within hours of a change of the zone's clocks, where mistakes would be."""
    zone = draw(ZONES)
    start = draw(MOMENTS)
    offset = datetime.fromtimestamp(start / 1000, zone).utcoffset()
    for day in range(370):
        later = start + day * DAY
        if datetime.fromtimestamp(later / 1000, zone).utcoffset() != offset:
            return later + draw(st.integers(-DAY, DAY)), zone
    return start, zone


TIMES = near_changes() | st.tuples(MOMENTS, ZONES)


@given(TIMES, HOURS)
def test_the_latest_boundary_is_past_and_no_later_one_is(when, hour):
    now, zone = when
    boundary = latest_boundary(now, hour, zone)
    assert boundary <= now
    # The boundaries of the days around, each the first instant of that wall clock time.
    day = datetime.fromtimestamp(now / 1000, zone).date() - timedelta(days=3)
    walls = [datetime.combine(day + timedelta(days=n), datetime.min.time()) for n in range(7)]
    instants = [
        int(wall.replace(hour=hour, tzinfo=zone).astimezone(UTC).timestamp() * 1000)
        for wall in walls
    ]
    assert boundary == max(instant for instant in instants if instant <= now)


@given(TIMES, HOURS, st.integers(0, 40 * DAY))
def test_the_next_boundary_is_the_first_that_is_later(when, hour, ago):
    now, zone = when
    following = next_boundary(now - ago, hour, zone)
    assert following > now - ago
    assert (following <= now) == (latest_boundary(now, hour, zone) > now - ago)
    assert latest_boundary(following - 1, hour, zone) <= now - ago


@given(POLICIES, TIMES, st.integers(0, 40 * DAY), st.integers(0, 40 * DAY))
def test_the_reason_does_not_depend_on_when_it_is_asked(policy, when, age, later):
    now, zone = when
    times = SessionTimes(started_at=now - age, last_user_at=now - age // 3)
    reason = expired(policy, times, now, zone)
    if reason is not None:
        assert expired(policy, times, now + later, zone) == reason


@given(st.lists(POLICIES, min_size=1, max_size=3), TIMES, st.data())
def test_the_cut_leaves_out_nothing_that_is_over(policies, when, data):
    now, zone = when
    default, *others = policies
    config = ResetConfig(
        **default.model_dump(),
        by_channel={f"c{n}": each for n, each in enumerate(others[::2])},
        by_chat={f"c:{n}": each for n, each in enumerate(others[1::2])},
    )
    zones = [zone, ZoneInfo("Asia/Kathmandu"), ZoneInfo("America/New_York")]
    taken_up = now - data.draw(st.integers(0, 5 * DAY))
    times = SessionTimes(taken_up, taken_up + data.draw(st.integers(0, now - taken_up)))
    found = cut(config, now, zones)
    is_over = [expired(policy, times, now, each) for policy in policies for each in zones]
    if any(is_over):
        assert found is not None
        quiet = times.last_user_at <= found.quiet_since and times.started_at < found.boundary
        assert quiet or times.last_user_at <= found.idle_since
    if all(policy.mode == "none" for policy in policies):
        assert found is None


@given(POLICIES, TIMES, st.integers(0, 400 * DAY), st.integers(0, 60 * MINUTE - 1))
def test_a_daily_reset_never_comes_within_an_hour_of_the_last_message(policy, when, age, silent):
    now, zone = when
    times = SessionTimes(now - silent - age, now - silent)
    assert expired(policy, times, now, zone) != "daily"


@given(TIMES, st.integers(-(10**12), 10**12), st.integers(-(10**12), 10**12))
def test_a_policy_of_none_never_ends_anything(when, started, last):
    now, zone = when
    policy = ResetPolicy(mode="none", idle_minutes=1)
    assert expired(policy, SessionTimes(started, last), now, zone) is None
    assert ends_at(policy, SessionTimes(started, last), zone) is None


@given(POLICIES, TIMES, st.integers(0, 400 * DAY), st.integers(1, 400 * DAY))
def test_a_clock_that_went_back_ends_nothing(policy, when, age, ahead):
    now, zone = when
    times = SessionTimes(now - age, now + ahead)
    assert expired(policy, times, now, zone) is None


@given(TIMES, st.integers(1, 3000), st.integers(0, 10 * DAY))
def test_idle_ends_after_its_minutes_and_not_before(when, minutes, silent):
    now, zone = when
    policy = ResetPolicy(mode="idle", idle_minutes=minutes)
    found = expired(policy, SessionTimes(now - 10 * DAY, now - silent), now, zone)
    assert found == ("idle" if silent >= minutes * MINUTE else None)


@given(TIMES, HOURS)
@example((int(datetime(2026, 3, 29, 1, tzinfo=UTC).timestamp() * 1000), ZoneInfo("UTC")), 2)
def test_a_conversation_begun_at_the_boundary_belongs_to_the_new_day(when, hour):
    now, zone = when
    policy = ResetPolicy(at_hour=hour)
    boundary = latest_boundary(now, hour, zone)
    late = boundary + HOUR
    before = SessionTimes(boundary - 1, boundary - 1)
    after = SessionTimes(boundary, boundary)
    assert expired(policy, before, late, zone) == "daily"
    assert expired(policy, after, late, zone) is None


@pytest.mark.parametrize(
    ("zone", "now", "hour", "boundary"),
    [
        # Berlin skips 02:00 to 03:00 on 2026-03-29, and has it twice on 2026-10-25.
        ("Europe/Berlin", "2026-03-29T00:59:59+00:00", 2, "2026-03-28T01:00:00+00:00"),
        ("Europe/Berlin", "2026-03-29T01:00:00+00:00", 2, "2026-03-29T01:00:00+00:00"),
        ("Europe/Berlin", "2026-10-25T00:00:00+00:00", 2, "2026-10-25T00:00:00+00:00"),
        ("Europe/Berlin", "2026-10-25T01:30:00+00:00", 2, "2026-10-25T00:00:00+00:00"),
        # St. John's set its clocks back from 00:01 to 23:01 the day before.
        ("America/St_Johns", "2009-11-01T02:30:00+00:00", 0, "2009-11-01T02:30:00+00:00"),
        ("America/St_Johns", "2009-11-01T03:00:00+00:00", 0, "2009-11-01T02:30:00+00:00"),
    ],
)
def test_where_the_clock_skips_or_repeats_the_hour(zone, now, hour, boundary):
    found = latest_boundary(_ms(now), hour, ZoneInfo(zone))
    assert found == _ms(boundary)


def _ms(moment: str) -> int:
    return int(datetime.fromisoformat(moment).timestamp() * 1000)


def test_the_channel_decides_before_the_type_and_the_type_before_the_rest():
    config = ResetConfig(
        at_hour=1,
        by_type={"direct": ResetPolicy(at_hour=2)},
        by_channel={"telegram": ResetPolicy(at_hour=3)},
        by_chat={"telegram:-42": ResetPolicy(mode="none")},
    )
    assert policy_for(config, "telegram", "direct").at_hour == 3
    assert policy_for(config, "telegram", "group", "-42").mode == "none"
    assert policy_for(config, "telegram", "group", "-43").at_hour == 3
    assert policy_for(config, "discord", "group", "-42").at_hour == 1
    assert policy_for(config, "web", "direct").at_hour == 2
    assert policy_for(config, "web", "group").at_hour == 1


@pytest.mark.parametrize(("minutes", "is_over"), [(0, False), (46, False), (59, False), (60, True)])
def test_a_day_ends_only_after_an_hour_of_silence(minutes, is_over):
    zone, policy = ZoneInfo("UTC"), ResetPolicy(mode="daily", at_hour=4)
    four = int(datetime(2026, 11, 21, 4, tzinfo=UTC).timestamp() * 1000)
    times = SessionTimes(started_at=four - DAY, last_user_at=four + HOUR)
    now = times.last_user_at + minutes * MINUTE
    assert (expired(policy, times, now, zone) == "daily") is is_over
    found = cut(ResetConfig(mode="daily", at_hour=4), now, [zone])
    assert (times.last_user_at <= found.quiet_since) is is_over


@given(policy=POLICIES, zone=ZONES, started=MOMENTS, silent=st.integers(0, 5 * DAY), data=st.data())
def test_a_session_is_over_from_the_moment_that_is_told(policy, zone, started, silent, data):
    times = SessionTimes(started, started + silent)
    told = ends_at(policy, times, zone)
    later = times.last_user_at + data.draw(st.integers(0, 5 * DAY))
    if told is None:
        assert expired(policy, times, later, zone) is None
        return
    at, why = told
    assert expired(policy, times, at - 1, zone) is None
    assert expired(policy, times, at, zone) == why
    assert (expired(policy, times, later, zone) is None) == (later < at)


UTC_ZONE = ZoneInfo("UTC")
FOUR = _ms("2026-11-21T04:00:00+00:00")
NOON = FOUR + 8 * HOUR
NEVER_MET = -(2**62)


@pytest.mark.parametrize(
    ("policies", "zones", "found"),
    [
        ([ResetPolicy(mode="none", idle_minutes=5)], ["UTC"], None),
        ([ResetPolicy(mode="idle", idle_minutes=5)], ["UTC"], (NOON - 5 * MINUTE, None, None)),
        ([ResetPolicy(mode="idle", idle_minutes=1)], ["UTC"], (NOON - MINUTE, None, None)),
        ([ResetPolicy(mode="daily", at_hour=4)], ["UTC"], (None, NOON - HOUR, FOUR)),
        # Without a zone there is no boundary that anything could be older than.
        ([ResetPolicy(mode="daily", at_hour=4)], [], (None, NOON - HOUR, None)),
        # It is 13:00 in Berlin: the boundary of its noon is the later one.
        (
            [ResetPolicy(mode="daily", at_hour=12)],
            ["America/New_York", "Europe/Berlin"],
            (None, NOON - HOUR, NOON - HOUR),
        ),
        (
            [
                ResetPolicy(mode="daily", at_hour=4, idle_minutes=600),
                ResetPolicy(mode="daily", at_hour=6),
                ResetPolicy(mode="idle", idle_minutes=90),
                ResetPolicy(mode="none", idle_minutes=1),
            ],
            ["UTC"],
            (NOON - 90 * MINUTE, NOON - HOUR, FOUR + 2 * HOUR),
        ),
    ],
)
def test_the_cut_is_as_tight_as_the_shortest_policies_allow(policies, zones, found):
    default, *others = policies
    config = ResetConfig(
        **default.model_dump(), by_channel={f"c{n}": each for n, each in enumerate(others)}
    )
    is_cut = cut(config, NOON, [*map(ZoneInfo, zones)])
    if found is None:
        assert is_cut is None
        return
    wanted = tuple(NEVER_MET if bound is None else bound for bound in found)
    assert (is_cut.idle_since, is_cut.quiet_since, is_cut.boundary) == wanted


@pytest.mark.parametrize(
    ("policy", "started", "silent_since", "end"),
    [
        # Idle ends on the millisecond.
        (ResetPolicy(mode="idle", idle_minutes=90), FOUR, FOUR, (FOUR + 90 * MINUTE, "idle")),
        (ResetPolicy(mode="idle", idle_minutes=1), FOUR, FOUR, (FOUR + MINUTE, "idle")),
        # A day ends at its boundary, or when the hour of silence is over.
        (ResetPolicy(at_hour=4), FOUR - DAY, FOUR - 2 * HOUR, (FOUR, "daily")),
        (ResetPolicy(at_hour=4), FOUR - DAY, FOUR, (FOUR + HOUR, "daily")),
        # What comes first is the reason; at the same moment, idle.
        (ResetPolicy(at_hour=4, idle_minutes=120), FOUR - 3 * HOUR, FOUR - 3 * HOUR,
         (FOUR - HOUR, "idle")),
        (ResetPolicy(at_hour=4, idle_minutes=240), FOUR - 3 * HOUR, FOUR - 3 * HOUR,
         (FOUR, "daily")),
        (ResetPolicy(at_hour=4, idle_minutes=180), FOUR - 3 * HOUR, FOUR - 3 * HOUR,
         (FOUR, "idle")),
        (ResetPolicy(at_hour=6), FOUR, FOUR, (FOUR + 2 * HOUR, "daily")),
    ],
)  # fmt: skip
def test_a_conversation_ends_to_the_millisecond_and_for_what_came_first(
    policy, started, silent_since, end
):
    times = SessionTimes(started, silent_since)
    assert ends_at(policy, times, UTC_ZONE) == end
    at, why = end
    assert expired(policy, times, at - 1, UTC_ZONE) is None
    assert expired(policy, times, at, UTC_ZONE) == why
    assert expired(policy, times, at + 3 * DAY, UTC_ZONE) == why


@pytest.mark.parametrize(
    ("zone", "moment", "hour", "before", "after"),
    [
        # Far from the machine's own zone the day is another one.
        ("Pacific/Kiritimati", "2026-07-01T12:00:00+00:00", 1, "2026-07-01T11:00:00+00:00",
         "2026-07-02T11:00:00+00:00"),
        ("Pacific/Pago_Pago", "2026-07-01T12:00:00+00:00", 2, "2026-06-30T13:00:00+00:00",
         "2026-07-01T13:00:00+00:00"),
    ],
)  # fmt: skip
def test_the_hour_is_that_of_the_persons_zone(zone, moment, hour, before, after):
    where = ZoneInfo(zone)
    assert latest_boundary(_ms(moment), hour, where) == _ms(before)
    assert next_boundary(_ms(moment), hour, where) == _ms(after)
    assert next_boundary(_ms(before), hour, where) == _ms(after)
    times = SessionTimes(_ms(before), _ms(before))
    assert ends_at(ResetPolicy(at_hour=hour), times, where) == (_ms(after), "daily")


HOME = ZoneInfo("Europe/Berlin")


def people(session: dict[str, object]) -> ConversationResolver:
    return ConversationResolver(Policy.of(Config.model_validate({"session": session}), HOME))


def message(channel: str, sender: str, chat_type: str = "direct") -> Inbound:
    return Inbound(channel, "default", "c", chat_type, sender, "1", "hi", 0)


def test_who_is_not_named_lives_where_the_program_does():
    assert people({}).resolve(message("telegram", "42")).zone == HOME
    named = people({"timezones": {"telegram:42": "Asia/Shanghai"}})
    assert named.resolve(message("telegram", "43")).zone == HOME
    assert named.now.zone_of("") == HOME
    assert named.now.zone_of("telegram:42") == ZoneInfo("Asia/Shanghai")
    assert named.now.zones == {HOME, ZoneInfo("Asia/Shanghai")}


def test_a_linked_person_takes_the_zone_along():
    links = {"ada": ["telegram:42", "discord:77"]}
    by_name = people({"identity_links": links, "timezones": {"ada": "Asia/Shanghai"}})
    by_place = people({"identity_links": links, "timezones": {"discord:77": "Asia/Shanghai"}})
    for known in (by_name, by_place):
        for channel, sender in (("telegram", "42"), ("discord", "77")):
            inbound = message(channel, sender)
            assert known.resolve(inbound).zone == ZoneInfo("Asia/Shanghai")
            assert known.now.zone_of(known.resolve(inbound).person) == ZoneInfo("Asia/Shanghai")
        assert known.resolve(message("discord", "42")).zone == HOME


@pytest.mark.parametrize("name", ["main", "ada", "telegram:42", "web:owner"])
def test_the_owner_is_found_under_every_name(name):
    session = {
        "owner": ["telegram:42"],
        "identity_links": {"ada": ["telegram:42", "discord:77"], "bob": ["telegram:43"]},
        "timezones": {name: "Asia/Shanghai"},
    }
    known = people(session)
    for inbound in (message("telegram", "42"), message("discord", "77"), message("web", "owner")):
        assert known.resolve(inbound).person == "main"
        assert known.resolve(inbound).zone == ZoneInfo("Asia/Shanghai")
    assert known.resolve(message("telegram", "43")).zone == HOME


def test_a_zone_that_is_none_stops_the_start_with_its_line(tmp_path: Path):
    toml = '[session]\n[session.timezones]\n"owl:1" = "UTC"\nada = "Asia/Shanghia"\n'
    (line,) = problems(tmp_path, toml)
    assert line == (
        'confidant.toml:4: session.timezones.ada: "Asia/Shanghia" is not a time zone; '
        'did you mean "Asia/Shanghai"?'
    )


@pytest.mark.parametrize("zone", ["", "../etc/passwd", "/etc/localtime", "Europe", "5" * 999])
def test_what_could_not_be_opened_is_no_zone_either(tmp_path: Path, zone: str):
    (line,) = problems(tmp_path, f'[session.timezones]\n"owl:1" = "{zone}"\n')
    assert line.startswith("confidant.toml:2: session.timezones.owl:1: ")
    assert "is not a time zone" in line


def test_a_zone_for_nobody_is_pointed_out(tmp_path: Path):
    toml = """
        [session.identity_links]
        ada = ["owl:1"]
        [session.timezones]
        adda = "UTC"
        ada = "UTC"
        main = "UTC"
        "owl:2" = "UTC"
    """
    (warning,) = load(tmp_path, toml).warnings
    assert warning == (
        'confidant.toml:5: session.timezones.adda: "adda" is nobody; did you mean "ada"?'
    )


TOKYO = ZoneInfo("Asia/Tokyo")
LIMA = ZoneInfo("America/Lima")


@pytest.mark.parametrize(
    ("said", "zone"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        ("europe/berlin", "Europe/Berlin"),
        (" new   york ", "America/New_York"),
        ("New_York", "America/New_York"),
        ("San Francisco", "America/Los_Angeles"),
        ("北京", "Asia/Shanghai"),
        ("香港", "Asia/Hong_Kong"),
        ("utc", "UTC"),
        ("UTC+8", "Etc/GMT-8"),
        ("gmt -3:00", "Etc/GMT+3"),
        ("UTC+0", "UTC"),
        ("buenos aires", "America/Buenos_Aires"),
    ],
)
def test_a_zone_is_known_by_what_people_call_it(said, zone):
    found = zone_named(said)
    assert found is not None
    assert found.key == zone


@pytest.mark.parametrize(
    "said",
    [
        *("", "/", "..", "../etc/passwd", "/etc/localtime", "Europe", "CST", "localtime", "GMT-8x"),
        *("UTC+15", "UTC-13", "UTC+99", "\0", "x" * 10_000, "posix/UTC", "Factory", "UTC+٣"),
    ],
)
def test_anything_else_is_no_zone(said):
    assert zone_named(said) is None
    meant(said)  # and guessing at it does no harm


@given(st.text(max_size=80))
def test_whatever_is_typed_is_a_zone_there_is_or_none(said):
    found = zone_named(said)
    assert found is None or found.key in available_timezones()


def test_hours_from_utc_are_shown_as_people_count_them():
    assert spoken(ZoneInfo("Etc/GMT-8")) == "UTC+8"
    assert spoken(ZoneInfo("Etc/UTC")) == "UTC"
    assert spoken(HOME) == "Europe/Berlin"


def test_a_slip_gets_a_guess():
    assert meant("Europe/Berln") == "Europe/Berlin"
    assert meant("Shanghia") == "Asia/Shanghai"
    assert meant("qqqqqq") == ""


# --- whose choice counts -------------------------------------------------------------------------


def resolver(session: dict[str, object], books: Books) -> ConversationResolver:
    policy = Policy.of(Config.model_validate({"session": session}), HOME)
    return ConversationResolver(policy, books)


def test_what_somebody_chose_is_theirs_alone_and_never_a_room_s():
    known = resolver({}, Books(zones={"telegram:42": TOKYO}))
    assert known.resolve(message("telegram", "42")).zone == TOKYO
    assert known.resolve(message("telegram", "43")).zone == HOME
    assert known.resolve(message("telegram", "42", "group")).zone == HOME
    assert known.now.zones == {HOME, TOKYO}


def test_what_the_configuration_says_of_somebody_counts_more():
    known = resolver(
        {"timezones": {"telegram:42": "America/Lima"}},
        Books(zones={"telegram:42": TOKYO, "telegram:43": TOKYO}),
    )
    assert known.resolve(message("telegram", "42")).zone == LIMA
    assert known.resolve(message("telegram", "43")).zone == TOKYO


def test_a_choice_is_taken_along_when_accounts_are_joined():
    chosen = {"discord:7": TOKYO}
    linked = {"identity_links": {"ada": ["telegram:42", "discord:7"]}}
    by_name = resolver(linked, Books(zones=chosen))
    seat, root = ("discord", "7"), ("telegram", "42")
    link = Link(seat, root, Address("discord", "default", "7"), "en")
    by_code = resolver({}, Books(zones=chosen, links=(link,)))
    for known in (by_name, by_code):
        for channel, sender in (root, seat):
            assert known.resolve(message(channel, sender)).zone == TOKYO
    # Of two choices that of the account all others count as.
    both = resolver({}, Books(zones={**chosen, "telegram:42": LIMA}, links=(link,)))
    assert both.resolve(message("discord", "7")).zone == LIMA


# --- kept ----------------------------------------------------------------------------------------


async def test_a_choice_is_kept_replaced_and_forgotten(each_database: Database):
    await each_database.write(lambda tx: zones.choose(tx, "ada", TOKYO, 1))
    await each_database.write(lambda tx: zones.choose(tx, "ada", LIMA, 2))
    await each_database.write(lambda tx: zones.choose(tx, "bob", TOKYO, 2))
    assert await each_database.read(zones.everything) == {"ada": LIMA, "bob": TOKYO}
    assert await each_database.write(lambda tx: zones.drop(tx, ("eve", "ada")))
    assert not await each_database.write(lambda tx: zones.drop(tx, ("eve", "ada")))
    assert await each_database.read(zones.everything) == {"bob": TOKYO}


async def test_a_zone_this_machine_does_not_know_is_as_if_none_was_chosen(each_database: Database):
    await each_database.write(
        lambda tx: tx.execute("INSERT INTO zones VALUES ('ada', 'Moon/Base', 1)")
    )
    assert await each_database.read(zones.everything) == {}


# --- the command ---------------------------------------------------------------------------------


async def test_a_zone_is_shown_chosen_and_forgotten(tmp_path: Path):
    async with running(tmp_path) as engine:
        assert "mine: UTC, where it is 12:00" in await engine.ask("/timezone")
        said = "It is 21:00 for you now: Asia/Tokyo."
        assert said in await engine.ask("/timezone tokyo")
        assert "It is 21:00 for you: Asia/Tokyo." in await engine.ask("/timezone")
        answer = await engine.ask("/remind tomorrow at 9 tea")
        assert answer == "I'll remind you on Sun 2026-11-22 09:00 (Asia/Tokyo): tea"
        assert "mine: UTC, where it is 12:00" in await engine.ask("/timezone auto")
        assert "(UTC)" in await engine.ask("/remind tomorrow at 9 coffee")
        assert "Did you mean “/timezone Asia/Tokyo”?" in await engine.ask("/timezone Asia/Tokio")
        assert "Name a large city" in await engine.ask("/timezone qqqqqq")
        assert "你那里是 20:00：Asia/Shanghai" in await engine.ask("/时区 北京", locale="zh-CN")


async def test_a_choice_outlives_a_restart_and_the_database(tmp_path: Path):
    clock = FakeClock()
    async with running(tmp_path, clock=clock) as engine:
        await engine.ask("/timezone tokyo")
    async with running(tmp_path, clock=clock) as engine:
        assert "Asia/Tokyo" in await engine.ask("/timezone")
    for part in ("", "-wal", "-shm"):
        (tmp_path / f"confidant.db{part}").unlink(missing_ok=True)
    async with running(tmp_path, clock=clock) as engine:
        assert "Asia/Tokyo" in await engine.ask("/timezone")


async def test_what_the_operator_set_is_told_and_stays(tmp_path: Path):
    named = {"session": {"timezones": {"memory:ada": "America/Lima"}}}
    async with running(tmp_path, **named) as engine:
        answer = await engine.ask("/timezone tokyo")
        assert "has set your time zone: America/Lima, where it is 07:00" in answer


async def test_a_room_is_not_told_where_somebody_lives(tmp_path: Path):
    rooms = {"channels": {"memory": {"group_policy": "open"}}}
    async with running(tmp_path, **rooms) as engine:
        await engine.ask("/timezone tokyo")
        for wish in ("/timezone", "/timezone lima"):
            await engine.say(wish, chat="den", chat_type="group", mentions_bot=True)
        await engine.channel.wait_until(lambda _: len(engine.sent_to("den")) == 2)
        assert all("in a direct chat" in said for said in engine.sent_to("den"))
        assert "Asia/Tokyo" in await engine.ask("/timezone")
