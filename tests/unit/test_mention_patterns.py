"""A mention pattern that is none is refused wherever it stands."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from adapters.discord import DiscordConfig
from bot.channel import ChannelConfig

BAD = {"mention_patterns": ("fine", "(")}


@pytest.mark.parametrize("section", [BAD, {"groups": {"7": BAD}}])
def test_in_a_channel_and_in_its_rooms(section):
    with pytest.raises(ValidationError, match=r"mention_patterns: '\(' is no pattern"):
        ChannelConfig.model_validate(section)


@pytest.mark.parametrize("place", ["guilds", "groups"])
def test_in_discords_servers_and_in_those_of_an_account(place):
    for section in ({place: {"7": BAD}}, {"accounts": {"work": {place: {"7": BAD}}}}):
        with pytest.raises(ValidationError, match=r"mention_patterns: '\(' is no pattern"):
            DiscordConfig.model_validate(section)


@pytest.mark.parametrize("pattern", ["0[[", "[[a]", "[a--b]"])
def test_what_will_mean_something_else_one_day_is_refused(pattern):
    with pytest.raises(ValidationError, match="is no pattern: "):
        ChannelConfig.model_validate({"mention_patterns": (pattern,)})
