"""What OpenClaw wrote, and what anybody may have made of it: read without an error, and at once."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.importing import marking
from bot.importing.openclaw import events, home, proposal

NAMES = st.sampled_from(
    [
        *("agents", "defaults", "model", "primary", "session", "dmScope", "identityLinks", "reset"),
        *("mode", "atHour", "idleMinutes", "channels", "telegram", "discord", "nextcloud-talk"),
        *("nextcloud_talk", "botToken", "dmPolicy", "allowFrom", "groups", "requireMention", "dm"),
        *("policy", "commands", "ownerAllowFrom", "enabled", "*", "a b", 'q"\n]', "userTimezone"),
        *("type", "message", "role", "content", "text", "timestamp", "id", "-1001", "\ud83d"),
    ]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=6)
    | st.sampled_from(["open", "main", "daily", "telegram:42", "user", "assistant", "message"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=25,
)
SETTINGS = st.dictionaries(NAMES, VALUES, max_size=6)


@given(SETTINGS)
def test_whatever_stands_in_its_settings_the_proposal_is_toml(settings):
    tomllib.loads(proposal.proposed(settings))


@given(st.lists(VALUES, max_size=6))
def test_whatever_stands_in_a_transcript_is_read(found):
    for said in events.said_in(found):
        assert said is None or said.text


@given(st.text(alphabet="{}[]:,'\"/*\\ \n ab1", max_size=60))
def test_whatever_stands_in_a_settings_file_is_read(text):
    home.parse(text)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("part", [",/*", '\\"', "'", "/*", ", ", '",', ",//\n"])
def test_a_settings_file_that_nothing_closes_is_read_at_once(part):
    text = "{" + part * (home.MAX_SETTINGS // len(part))
    assert home.parse(text) is None
    assert home.parse('"' + text) is None


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "part", ["<!-- ow", "<!--", "- x <!-- owner ", "```\n", "| a\n", "# h\na\n"]
)
def test_a_note_of_a_megabyte_of_anything_is_marked_at_once(part):
    text = part * (1_000_000 // len(part))
    assert marking.merged("", marking.pieces(text), (), "2026-01-09")
