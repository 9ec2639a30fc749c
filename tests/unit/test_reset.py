from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from bot.config import ResetConfig, ResetPolicy
from bot.sessions.reset import (
    SessionTimes,
    cut,
    ends_at,
    expired,
    latest_boundary,
    next_boundary,
    policy_for,
)

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


@given(TIMES, HOURS)
def test_the_boundary_is_that_hour_unless_the_clock_skips_it(when, hour):
    now, zone = when
    boundary = latest_boundary(now, hour, zone)
    local = datetime.fromtimestamp(boundary / 1000, zone)
    wall = local.replace(hour=hour, minute=0, second=0, fold=0)
    skipped = wall.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != wall.replace(
        tzinfo=None
    )
    assert (local.hour, local.minute) == (hour, 0) or skipped or local.date() != wall.date()


@given(TIMES, HOURS, st.integers(0, 3 * DAY))
def test_boundaries_never_go_back_while_time_goes_on(when, hour, later):
    now, zone = when
    assert latest_boundary(now + later, hour, zone) >= latest_boundary(now, hour, zone)


@given(TIMES, HOURS)
def test_the_next_boundary_is_about_a_day_away(when, hour):
    now, zone = when
    assume(zone.key != "Pacific/Apia")
    boundary = latest_boundary(now, hour, zone)
    assert now - boundary < 26 * HOUR
    assert boundary < latest_boundary(boundary + 26 * HOUR, hour, zone)


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


@given(POLICIES, TIMES, st.integers(0, 40 * DAY), st.integers(0, 40 * DAY))
def test_once_over_a_conversation_stays_over_while_its_person_is_silent(policy, when, age, later):
    now, zone = when
    times = SessionTimes(started_at=now - age, last_user_at=now - age // 2)
    if expired(policy, times, now, zone):
        assert expired(policy, times, now + later, zone)


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
    ("now", "hour", "boundary"),
    [
        # Berlin skips 02:00 to 03:00 on 2026-03-29, and has it twice on 2026-10-25.
        ("2026-03-29T00:59:59+00:00", 2, "2026-03-28T01:00:00+00:00"),
        ("2026-03-29T01:00:00+00:00", 2, "2026-03-29T01:00:00+00:00"),
        ("2026-10-25T00:00:00+00:00", 2, "2026-10-25T00:00:00+00:00"),
        ("2026-10-25T01:30:00+00:00", 2, "2026-10-25T00:00:00+00:00"),
    ],
)
def test_where_the_clock_skips_or_repeats_the_hour(now, hour, boundary):
    found = latest_boundary(_ms(now), hour, ZoneInfo("Europe/Berlin"))
    assert found == _ms(boundary)


def test_midnight_that_comes_twice_does_not_bring_yesterday_back():
    # St. John's set its clocks back from 00:01 to 23:01 the day before.
    zone = ZoneInfo("America/St_Johns")
    first = _ms("2009-11-01T02:30:00+00:00")
    assert latest_boundary(first, 0, zone) == first
    assert latest_boundary(first + 30 * MINUTE, 0, zone) == first


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
        (
            ResetPolicy(at_hour=4, idle_minutes=120),
            FOUR - 3 * HOUR,
            FOUR - 3 * HOUR,
            (FOUR - HOUR, "idle"),
        ),
        (
            ResetPolicy(at_hour=4, idle_minutes=240),
            FOUR - 3 * HOUR,
            FOUR - 3 * HOUR,
            (FOUR, "daily"),
        ),
        (
            ResetPolicy(at_hour=4, idle_minutes=180),
            FOUR - 3 * HOUR,
            FOUR - 3 * HOUR,
            (FOUR, "idle"),
        ),
        (ResetPolicy(at_hour=6), FOUR, FOUR, (FOUR + 2 * HOUR, "daily")),
    ],
)
def test_a_conversation_ends_to_the_millisecond_and_for_what_came_first(
    policy, started, silent_since, end
):
    times = SessionTimes(started, silent_since)
    assert ends_at(policy, times, UTC_ZONE) == end
    at, why = end
    assert expired(policy, times, at - 1, UTC_ZONE) is None
    assert expired(policy, times, at, UTC_ZONE) == why
    assert expired(policy, times, at + 3 * DAY, UTC_ZONE) == why


def test_a_conversation_that_nothing_ends_goes_on():
    times = SessionTimes(FOUR, FOUR)
    assert ends_at(ResetPolicy(mode="none", idle_minutes=5), times, UTC_ZONE) is None
    assert expired(ResetPolicy(mode="none", idle_minutes=5), times, FOUR + DAY, UTC_ZONE) is None


@pytest.mark.parametrize(
    ("zone", "moment", "hour", "before", "after"),
    [
        # Far from the machine's own zone the day is another one.
        (
            "Pacific/Kiritimati",
            "2026-07-01T12:00:00+00:00",
            1,
            "2026-07-01T11:00:00+00:00",
            "2026-07-02T11:00:00+00:00",
        ),
        (
            "Pacific/Pago_Pago",
            "2026-07-01T12:00:00+00:00",
            2,
            "2026-06-30T13:00:00+00:00",
            "2026-07-01T13:00:00+00:00",
        ),
    ],
)
def test_the_hour_is_that_of_the_persons_zone(zone, moment, hour, before, after):
    where = ZoneInfo(zone)
    assert latest_boundary(_ms(moment), hour, where) == _ms(before)
    assert next_boundary(_ms(moment), hour, where) == _ms(after)
    assert next_boundary(_ms(before), hour, where) == _ms(after)
    times = SessionTimes(_ms(before), _ms(before))
    assert ends_at(ResetPolicy(at_hour=hour), times, where) == (_ms(after), "daily")
