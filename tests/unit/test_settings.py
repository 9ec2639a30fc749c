"""Where values come from, which wins, and what becomes of anything odd."""

import json
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import get_args

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel

from bot import settings
from bot.channel import ChannelConfig, reveal
from bot.config import Config
from bot.errors import ConfigError
from bot.settings import config_model, sources
from bot.settings.changes import MOST_KEPT, SettingsChange, SharedSettings, Step
from bot.settings.fields import env_name, is_live, is_shared, tables
from bot.settings.loader import FOLDERS, toml_value
from scripts.docs import reference
from tests.fakes.config_channels import CHANNELS, PigeonConfig, load
from tests.odd import json_of
from tests.support import write_file


def pigeon(loaded: settings.Loaded) -> PigeonConfig:
    section = loaded.config.channels.get("pigeon")
    assert isinstance(section, PigeonConfig)
    return section


def test_nothing_at_all_gives_the_defaults(tmp_path):
    loaded = load(tmp_path)
    assert loaded.file is None
    assert loaded.origins == {}
    assert loaded.warnings == ()
    assert loaded.config.dashboard.port == 8420
    assert pigeon(loaded).speed == 20.0
    assert isinstance(loaded.config, Config)


def test_channels_have_their_own_types_and_others_are_a_key_error(tmp_path):
    channels = load(tmp_path).config.channels
    assert type(channels.get("pigeon")) is PigeonConfig
    for name in ("discord", "get", "model_config", ""):
        with pytest.raises(KeyError):
            channels.get(name)


def test_each_source_overrides_the_one_before(tmp_path):
    toml = "[dashboard]\nport = 1\n"
    assert load(tmp_path, toml).config.dashboard.port == 1
    dotenv = "CONFIDANT_DASHBOARD__PORT=2\n"
    assert load(tmp_path, toml, dotenv=dotenv).config.dashboard.port == 2
    environ = {"CONFIDANT_DASHBOARD__PORT": "3"}
    loaded = load(tmp_path, toml, environ, dotenv)
    assert loaded.config.dashboard.port == 3
    assert loaded.origins["dashboard", "port"] == "CONFIDANT_DASHBOARD__PORT"


def test_origins_name_file_and_line_or_variable(tmp_path):
    loaded = load(
        tmp_path,
        "[agent]\n\nname = 'A'\n[channels.pigeon]\nspeed = 3.5",
        {"PIGEON_TOKEN": "x"},
        "\n# secrets\n\nCONFIDANT_LOG__LEVEL=debug\n",
    )
    assert loaded.origins == {
        ("agent", "name"): "confidant.toml:3",
        ("channels", "pigeon", "speed"): "confidant.toml:5",
        ("channels", "pigeon", "token"): "PIGEON_TOKEN",
        ("log", "level"): ".env:4: CONFIDANT_LOG__LEVEL",
    }


def test_the_file_is_looked_for_in_three_places(tmp_path):
    home, cwd = tmp_path / "home", tmp_path / "cwd"
    places = [
        home / ".confidant" / "confidant.toml",
        cwd / "config" / "confidant.toml",
        cwd / "confidant.toml",
    ]
    for number, place in enumerate(places, 1):
        write_file(place, f"[dashboard]\nport = {number}\n")
        loaded = settings.load(None, {"HOME": str(home)}, cwd, CHANNELS)
        assert loaded.config.dashboard.port == number
        assert loaded.file == place


def test_the_named_file_is_the_only_one_read(tmp_path):
    (tmp_path / "confidant.toml").write_text("[dashboard]\nport = 1\n")
    (tmp_path / "mine.toml").write_text("[dashboard]\nport = 2\n")
    loaded = settings.load(Path("mine.toml"), {}, tmp_path, CHANNELS)
    assert loaded.config.dashboard.port == 2
    with pytest.raises(ConfigError, match=r"^none\.toml: there is no such file$"):
        settings.load(Path("none.toml"), {}, tmp_path, CHANNELS)


def test_the_env_file_of_the_working_directory_beats_the_one_beside_the_file(tmp_path):
    cwd, etc = tmp_path / "cwd", tmp_path / "etc"
    for folder in (cwd, etc):
        folder.mkdir()
    (etc / "my.toml").write_text("[agent]\nname = 'A'\n")
    (etc / ".env").write_text("CONFIDANT_AGENT__NAME=B\nCONFIDANT_DASHBOARD__PORT=7\n")
    (cwd / ".env").write_text("CONFIDANT_AGENT__NAME=C\n")
    config = settings.load(etc / "my.toml", {}, cwd, CHANNELS).config
    assert (config.agent.name, config.dashboard.port) == ("C", 7)


def test_a_relative_working_directory_reads_one_env_file_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("CONFIDANT_DASHBOARD__PORT=7\n")
    (tmp_path / "my.toml").write_text("")
    loaded = settings.load(Path("my.toml"), {}, Path(), CHANNELS)
    assert loaded.origins == {("dashboard", "port"): ".env:1: CONFIDANT_DASHBOARD__PORT"}


def test_variables_are_read_in_any_case_and_reach_every_depth(tmp_path):
    loaded = load(
        tmp_path,
        environ={
            "confidant_session__reset__MODE": "none",
            "CONFIDANT_CHANNELS__PIGEON__ACCOUNTS__WORK__TOKEN": "secret",
            "CONFIDANT_SESSION__RESET__BY_TYPE__GROUP__AT_HOUR": "5",
            "CONFIDANT_SESSION__IDENTITY_LINKS__ADA": "pigeon:1, owl:2",
        },
    )
    session = loaded.config.session
    assert session.reset.mode == "none"
    assert session.reset.by_type["group"].at_hour == 5
    assert session.identity_links == {"ada": ("pigeon:1", "owl:2")}
    assert reveal(pigeon(loaded).accounts["work"].token) == "secret"


def test_lists_are_json_or_comma_separated_and_tables_json(tmp_path):
    config = load(
        tmp_path,
        environ={
            "CONFIDANT_SESSION__OWNER": '["pigeon:1", "owl:2"]',
            "CONFIDANT_CHANNELS__OWL__ALLOW_FROM": "1,2 ,, 3",
            "CONFIDANT_CHANNELS__PIGEON__ALLOW_FROM": "[42, 43]",
            "CONFIDANT_SCOPE__RULES": '[{"action": "deny", "sender": "7"}]',
            "CONFIDANT_LOG": '{"level": "debug", "format": "json"}',
            "CONFIDANT_LOG__FORMAT": "console",
        },
    ).config
    assert config.session.owner == ("pigeon:1", "owl:2")
    assert config.channels.get("owl").allow_from == ("1", "2", "3")
    assert config.channels.get("pigeon").allow_from == ("42", "43")
    assert [(rule.action, rule.sender) for rule in config.scope.rules] == [("deny", "7")]
    assert (config.log.level, config.log.format) == ("debug", "console")


def test_a_variable_meets_a_name_the_file_writes_in_capitals(tmp_path):
    toml = '[session.identity_links]\nAda = ["pigeon:1"]\n'
    environ = {"CONFIDANT_SESSION__IDENTITY_LINKS__ADA": "pigeon:2"}
    links = load(tmp_path, toml, environ).config.session.identity_links
    assert links == {"Ada": ("pigeon:2",)}


@pytest.mark.parametrize(
    ("text", "meant"), [("true", True), ("1", True), ("Yes", True), ("off", False), ("0", False)]
)
def test_booleans_are_written_as_people_do(tmp_path, text, meant):
    environ = {"CONFIDANT_CHANNELS__PIGEON__ENABLED": text}
    assert pigeon(load(tmp_path, environ=environ)).enabled is meant


@pytest.mark.parametrize("toml", ["", "[tools.mcp.my-files]\nenv = { Token = 'old' }\n"])
def test_the_secrets_of_tool_servers_may_stand_in_variables(tmp_path, toml):
    place = "CONFIDANT_TOOLS__MCP__MY-FILES"
    (tmp_path / "key").write_text("from-a-file\n")
    dotenv = (
        f"{place}__COMMAND=files\n{place}__ENV__API_KEY=k-1\n{place}__ENV__http_proxy=p-1\n"
        f"{place}__ENV__OTHER=file:key\n{place}__ENV__TOKEN=new\n"
        "CONFIDANT_TOOLS__MCP__FAR__URL=http://far.example\n"
        "CONFIDANT_TOOLS__MCP__FAR__HEADERS__X-Api-Key=h-1\n"
    )
    loaded = load(tmp_path, toml, dotenv=dotenv)
    servers = loaded.config.tools.mcp
    assert {name: reveal(value) for name, value in servers["my-files"].env.items()} == {
        "API_KEY": "k-1",
        "http_proxy": "p-1",
        "OTHER": "from-a-file",
        "Token" if toml else "TOKEN": "new",  # where the file has it, as the file writes it
    }
    assert {name: reveal(value) for name, value in servers["far"].headers.items()} == {
        "x-api-key": "h-1"  # whose case does not count
    }
    assert not any(secret in repr(loaded.config) for secret in ("k-1", "from-a-file", "h-1"))


@pytest.mark.parametrize("name", ["", "A B", "1A", "A=B", "A-B"])
def test_a_variable_of_a_tool_server_is_called_as_one_can_be(tmp_path, name):
    with pytest.raises(ConfigError, match="env"):
        load(tmp_path, f'[tools.mcp.a]\ncommand = "a"\nenv = {{ "{name}" = "b" }}\n')


def test_the_keys_of_models_may_stand_in_variables(tmp_path):
    (tmp_path / "key").write_text("k-file\n")
    toml = "".join(
        f'[models.{name}]\nkind = "openai"\nbase_url = "http://{name}.example/v1"\n'
        for name in ("router", "my-llm")
    )
    dotenv = "CONFIDANT_MODELS__ROUTER__API_KEY=k-1\nCONFIDANT_MODELS__MY-LLM__API_KEY_FILE=key\n"
    services = load(tmp_path, toml, dotenv=dotenv).config.models.services
    assert reveal(services["router"].api_key) == "k-1"
    assert reveal(services["my-llm"].api_key) == "k-file"


def test_empty_variables_count_as_not_set(tmp_path):
    loaded = load(
        tmp_path,
        "[dashboard]\nport = 5\n",
        {"CONFIDANT_DASHBOARD__PORT": "", "PIGEON_TOKEN": "  ", "ANTHROPIC_API_KEY_FILE": ""},
        "ANTHROPIC_API_KEY=\nCONFIDANT_DASHBOARD__TOKEN=\n",
    )
    assert loaded.config.dashboard.port == 5
    assert loaded.config.dashboard.token is None
    assert loaded.config.models.anthropic.api_key is None
    assert pigeon(loaded).token is None


def test_empty_text_leaves_an_optional_option_unset(tmp_path):
    config = load(tmp_path, '[memory]\nworkspace = ""\n[dashboard]\ntoken = ""\n').config
    assert config.memory.workspace is None
    assert config.dashboard.token is None


def test_the_long_name_of_a_secret_beats_the_plain_one(tmp_path):
    environ = {"PIGEON_TOKEN": "plain", "CONFIDANT_CHANNELS__PIGEON__TOKEN": "long"}
    assert reveal(pigeon(load(tmp_path, environ=environ)).token) == "long"


@pytest.mark.parametrize(
    "environ",
    [
        {"PIGEON_TOKEN": "file:ring"},
        {"PIGEON_TOKEN_FILE": "ring"},
        {"CONFIDANT_CHANNELS__PIGEON__TOKEN": "file:ring"},
        {"CONFIDANT_CHANNELS__PIGEON__TOKEN_FILE": "ring"},
        {"CONFIDANT_CHANNELS__PIGEON": '{"token": "file:ring"}'},
    ],
)
def test_a_secret_is_read_from_its_file(tmp_path, environ):
    (tmp_path / "ring").write_text("\n s3cret \n")
    assert reveal(pigeon(load(tmp_path, environ=environ)).token) == "s3cret"


def test_a_secret_file_named_in_toml_lies_beside_it_and_is_no_warning(tmp_path):
    write_file(tmp_path / "etc" / "ring", "s3cret")
    path = tmp_path / "etc" / "my.toml"
    path.write_text('[channels.pigeon]\ntoken = "file:ring"\n')
    loaded = settings.load(path, {}, tmp_path, CHANNELS)
    assert reveal(pigeon(loaded).token) == "s3cret"
    assert loaded.warnings == ()


def test_a_secret_written_out_in_toml_is_used_with_a_warning(tmp_path):
    toml = '[channels.pigeon]\ntoken = "s3cret"\n'
    loaded = load(tmp_path, toml)
    assert reveal(pigeon(loaded).token) == "s3cret"
    (warning,) = loaded.warnings
    assert warning.startswith("confidant.toml:2: channels.pigeon.token: a secret is better kept")
    (tmp_path / "confidant.toml").chmod(0o644)
    (warning,) = settings.load(None, {}, tmp_path, CHANNELS).warnings
    assert "other users of this machine can read this secret (chmod 600" in warning
    assert "s3cret" not in warning


def test_other_warnings(tmp_path):
    warnings = load(
        tmp_path,
        """
        [channels.pigeon]
        allow_from = ["*"]
        [session]
        owner = ["pidgeon:1"]
        reset.by_channel.owll = { mode = "none" }
        reset.by_chat."pidgeon:7" = { mode = "none" }
        """,
    ).warnings
    assert [line.split(": ", 2)[0] for line in warnings] == [
        "confidant.toml:3",
        "confidant.toml:5",
        "confidant.toml:6",
        "confidant.toml:7",
    ]
    assert '"pigeon"?' in warnings[1]
    assert '"pigeon"?' in warnings[3]


def test_a_token_opens_the_page_to_other_machines(tmp_path):
    environ = {
        "CONFIDANT_DASHBOARD__HOST": "0.0.0.0",
        "CONFIDANT_DASHBOARD__TOKEN": "0123456789abcdef",
    }
    assert load(tmp_path, environ=environ).config.dashboard.host == "0.0.0.0"
    for host in ("localhost", "127.0.0.2", "::1"):
        assert load(tmp_path, environ={"CONFIDANT_DASHBOARD__HOST": host}).warnings == ()


def test_other_programs_variables_are_no_concern(tmp_path):
    environ = {"PATH": "/bin", "CONFIDANTE": "1", "\udcff": "\udcff", "TOKEN": "x"}
    assert load(tmp_path, environ=environ, dotenv="DB_URL=x\nexport A='b'\nC\n").origins == {}


def test_windows_line_ends_and_a_byte_order_mark_are_fine(tmp_path):
    toml = b"\xef\xbb\xbf[agent]\r\n# hm\r\nname = 'A'\r\n[log]\r\nlevel = 'debug'\r\n"
    loaded = load(tmp_path, toml, dotenv="\ufeffCONFIDANT_DASHBOARD__PORT=7\r\n")
    assert loaded.config.agent.name == "A"
    assert loaded.config.dashboard.port == 7
    assert loaded.origins["log", "level"] == "confidant.toml:5"


def test_open_counts_for_an_account_only_where_it_says_so(tmp_path):
    section = pigeon(
        load(
            tmp_path,
            """
            [channels.pigeon]
            dm_policy = "open"
            allow_from = ["*"]
            accounts.work = { dm_policy = "allowlist", allow_from = ["1"] }
            accounts.home = {}
            """,
        )
    )
    assert section.account("work").dm_policy == "allowlist"
    assert isinstance(section.account("home"), ChannelConfig)
    assert section.account("home").dm_policy == "open"


def test_a_channel_that_is_set_up_without_its_token_is_said(tmp_path):
    def told(toml="", **environ):
        (tmp_path / "confidant.toml").write_text(toml)
        return settings.load(None, environ, tmp_path).warnings

    missing = "telegram is set up but cannot run, so it stays off: set TELEGRAM_BOT_TOKEN"
    disabled = told("[channels.telegram]\ndm_policy = 'disabled'\n")
    assert disabled == (f"confidant.toml:2: {missing}",)
    assert told("[channels.telegram]\nenabled = false\n") == ()
    assert told("[channels.telegram]\n[channels.discord]\n") == ()
    assert told("[channels.telegram]\nmode = 'polling'\n", TELEGRAM_BOT_TOKEN="1:token") == ()


def test_options_for_rooms_are_not_offered_where_there_are_none(tmp_path):
    toml = """
        [channels.web]
        group_policy = "open"
        groups."7" = { enabled = false }
        language = "zh"
        [channels.console]
        require_mention = "perhaps"
        """
    environ = {
        "CONFIDANT_CHANNELS__WEB__MENTION_PATTERNS": "bot",
        "CONFIDANT_CHANNELS__CONSOLE__GROUPS__A__ENABLED": "true",
        "CONFIDANT_CHANNELS__CONSOLE__GROUPS__B__ENABLED": "true",
        "CONFIDANT_CHANNELS__WEB": '{"group_allow_from": ["*"]}',
    }
    (tmp_path / "confidant.toml").write_text(toml)
    loaded = settings.load(None, environ, tmp_path)
    web = loaded.config.channels.get("web")
    assert (web.group_policy, web.groups, web.language) == ("disabled", {}, "zh")
    console = "CONFIDANT_CHANNELS__CONSOLE"
    assert loaded.warnings == tuple(
        f'{where}: [channels.{channel}] has no rooms, so "{option}" does nothing: remove it'
        for where, channel, option in (
            ("confidant.toml:3", "web", "group_policy"),
            ("confidant.toml:4", "web", "groups"),
            ("confidant.toml:7", "console", "require_mention"),
            ("CONFIDANT_CHANNELS__WEB", "web", "group_allow_from"),
            ("CONFIDANT_CHANNELS__WEB__MENTION_PATTERNS", "web", "mention_patterns"),
            (f"{console}__GROUPS__A__ENABLED", "console", "groups"),
            (f"{console}__GROUPS__B__ENABLED", "console", "groups"),
        )
    )
    assert "group" not in settings.show(loaded).partition("[channels.web]")[2].partition("[")[0]
    (tmp_path / "confidant.toml").write_text("[channels.web]\ngroup_polcy = 'open'\n")
    with pytest.raises(ConfigError, match='unknown option "group_polcy"'):
        settings.load(None, {}, tmp_path)


@pytest.mark.parametrize(
    ("model", "environ", "is_said"),
    [
        ("claude-opus-5-5", {}, True),
        ("claude-opus-5-5", {"ANTHROPIC_API_KEY": "sk-1"}, False),
        ("llama", {"CONFIDANT_MODELS__ANTHROPIC__BASE_URL": "http://127.0.0.1:1"}, False),
        ("offline", {}, False),
    ],
)
def test_a_model_that_is_named_without_its_key_is_said(tmp_path, model, environ, is_said):
    warnings = load(tmp_path, f"[agent]\nmodel = '{model}'\n", environ).warnings
    said = f'"{model}" has no key, so the offline model answers: set ANTHROPIC_API_KEY'
    assert (f"confidant.toml:2: agent.model: {said}" in warnings) == is_said
    assert len(warnings) == is_said


def test_a_relative_folder_begins_at_the_file_that_names_it_wherever_it_is_started(
    tmp_path, monkeypatch
):
    place, elsewhere = tmp_path / "srv", tmp_path / "elsewhere"
    for folder in (place, elsewhere):
        folder.mkdir()
    (place / "confidant.toml").write_text(
        '[storage]\ndir = "./data"\n[memory]\nworkspace = "../notes"\n'
    )
    (place / ".env").write_text("CONFIDANT_BACKUP__FOLDER=copies\n")
    for config_file, cwd in ((None, place), (place / "confidant.toml", elsewhere)):
        config = settings.load(config_file, {}, cwd, CHANNELS).config
        assert config.storage.folder == place / "data"
        assert config.workspace == place / "../notes"
        assert config.backup.folder == place / "copies"
    monkeypatch.chdir(tmp_path)
    named = settings.load(Path("srv/confidant.toml"), {}, tmp_path, CHANNELS).config
    assert named.storage.folder == place / "data"
    environ = {"CONFIDANT_STORAGE__DIR": "data"}
    config = settings.load(place / "confidant.toml", environ, elsewhere, CHANNELS).config
    assert config.storage.folder == elsewhere / "data"
    for absolute in ("/var/lib/confidant", "~/bot"):
        environ = {"CONFIDANT_STORAGE__DIR": absolute}
        config = settings.load(None, environ, elsewhere, CHANNELS).config
        assert str(config.storage.dir) == absolute


def test_every_folder_of_the_configuration_is_known_as_one():
    def folders(model: type[BaseModel], place: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
        for name, field in model.model_fields.items():
            kind = field.annotation
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from folders(kind, (*place, name))
            elif Path in {kind, *get_args(kind)}:
                yield (*place, name)

    assert set(folders(Config)) == FOLDERS


FILE = "# first\nA=1\nexport B='two' # why\n\nC=\"x\\ny\"\nA=3\nlast=end"


def test_a_value_takes_its_lines_place_and_all_others_stay():
    assert sources.edited_dotenv(FILE, {"B": "new"}) == FILE.replace(
        "export B='two' # why", "B=new"
    )
    once = FILE.replace("A=1", "A=9").replace("A=3\n", "")
    assert sources.edited_dotenv(FILE, {"A": "9"}) == once
    assert sources.edited_dotenv(FILE, {"D": "4"}) == f"{FILE}\nD=4\n"
    assert sources.edited_dotenv("", {"D": None}) == ""
    assert sources.dotenv_values(sources.edited_dotenv(FILE, {"A": None, "C": None})) == {
        "B": "two",
        "last": "end",
    }


def test_other_names_of_the_same_thing_go():
    text = "PLAIN=1\nX=2\n"
    meaning = {"PLAIN": "thing", "LONG__NAME": "thing"}.get
    assert sources.edited_dotenv(text, {"LONG__NAME": "3"}, meaning) == "LONG__NAME=3\nX=2\n"
    assert sources.edited_dotenv(text, {"LONG__NAME": None}, meaning) == "X=2\n"


@given(st.text(max_size=60), st.text(max_size=60))
def test_whatever_is_set_is_read_back_or_refused_and_adds_nothing(first: str, second: str):
    text = FILE
    for name, value in (("A", first), ("NEW", second)):
        try:
            changed = sources.edited_dotenv(text, {name: value})
        except ValueError:
            continue
        expected = {**sources.dotenv_values(text), name: value}
        assert sources.dotenv_values(changed) == expected
        text = changed
    assert {"B": "two", "last": "end"}.items() <= sources.dotenv_values(text).items()


@pytest.mark.parametrize("value", ["a\nB=1", "a\rB=1", "a\0", "a\x1b[0m", "a\u2028b", "k" * 5_000])
def test_what_is_no_line_of_text_is_refused(value: str):
    with pytest.raises(ValueError, match=r"one line|too long"):
        sources.edited_dotenv(FILE, {"A": value})


def test_a_file_with_a_quote_left_open_is_not_made_worse():
    with pytest.raises(ValueError, match="NAME=value"):
        sources.edited_dotenv("A='open\nB=1\n", {"C": "it's"})


def test_a_file_is_private_whole_and_a_link_stays_one(tmp_path: Path):
    real, link = tmp_path / "real", tmp_path / ".env"
    real.write_text("A=1\n")
    real.chmod(0o644)
    link.symlink_to(real)
    sources.write_dotenv(link, "A=2\n")
    assert (link.is_symlink(), real.read_text()) == (True, "A=2\n")
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert sorted(each.name for each in tmp_path.iterdir()) == [".env", "real"]
    with pytest.raises(ConfigError, match="cannot be written"):
        sources.write_dotenv(tmp_path / "real" / "below" / ".env", "A=secret\n")


NAME = ("agent", "name")
OWNER = ("session", "owner_name")


def change(number: int, *steps: Step) -> SettingsChange:
    return SettingsChange(f"{number:016x}", number, steps)


@given(st.lists(st.tuples(st.sampled_from([NAME, OWNER]), st.none() | st.text(min_size=1))))
def test_what_is_kept_is_read_back_and_every_last_change_can_be_taken_back(wanted):
    shared = SharedSettings()
    for number, (key, value) in enumerate(wanted):
        before = shared
        shared = shared.changed(change(number, shared.step(key, value)))
        assert shared.values.get(key) == value
        assert shared.may_take_back(shared.changes[0])
        (step,) = shared.changes[0].steps
        undone = shared.changed(change(number, shared.step(key, step.before)))
        assert undone.values == before.values
        assert SharedSettings.from_json(shared.to_json()) == shared
    assert len(shared.changes) == min(len(wanted), MOST_KEPT)


def test_what_was_changed_again_is_not_taken_back():
    one = SharedSettings().changed(change(1, Step(NAME, None, "Heron")))
    two = one.changed(change(2, Step(NAME, "Heron", "Crane")))
    assert [two.may_take_back(each) for each in two.changes] == [True, False]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{",
        '{"values": 7, "changes": []}',
        '{"values": {}}',
        "[" * 10_000,
        '{"values": {}, "changes": [{}]}',
        '{"values": {}, "changes": 7}',
    ],
)
def test_what_cannot_be_read_counts_as_nothing(text: str):
    assert SharedSettings.from_json(text) == SharedSettings()


def test_only_what_may_be_shared_is_taken_from_the_database():
    values = {
        "agent.name": "Heron",
        "models.openai.base_url": "http://thief.example",
        "models.openai.api_key": "sk-1",
        "dashboard.token": "x" * 20,
        "tools.web.fetch": "true",
        "session.owner": "telegram:666",
        "agent": "{}",
        "agent.nothing": "1",
        "limits.people": "{}",
        "": "",
    }
    text = orjson.dumps({"values": values, "changes": []}).decode()
    assert SharedSettings.from_json(text).values == {NAME: "Heron"}


def test_nothing_with_an_address_or_a_secret_is_shared():
    own = {key[0] for key in OPTIONS if is_live(key) and not is_shared(key)}
    assert own == {"models", "channels", "dashboard"}
    assert not [each.key for each in LISTED if each.shape.kind == "secret" and is_shared(each.key)]


LISTED = [option for _, _, options in tables(config_model(CHANNELS)) for option in options]
OPTIONS = [option.key for option in LISTED]
NAMES = st.sampled_from([part for key in OPTIONS for part in key] + ["x", "", "Ä", "a.b", "0"])
SCALARS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.sampled_from(["", "*", "open", "file:/dev/null", "telegram:42", "~x", "0.0.0.0", "idle"]),
    st.text(max_size=20),
)


VALUES = json_of(SCALARS, NAMES, 10)


def attempt(raw: bytes, environ: Mapping[str, str], dotenv: bytes = b"") -> None:
    """Load, and use the result in every way; nothing but ConfigError may come out."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "confidant.toml").write_bytes(raw)
        (folder / ".env").write_bytes(dotenv)
        try:
            loaded = settings.load(None, environ, folder, CHANNELS)
        except ConfigError as error:
            lines = str(error).split("\n")
            assert all(line and line.isprintable() for line in lines)
            return
        assert isinstance(loaded.config, Config)
        assert loaded.config.workspace
        assert settings.show(loaded)


def as_toml(value: object) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{json.dumps(name)} = {as_toml(each)}" for name, each in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(as_toml, value))}]"
    return toml_value(value)


@given(
    st.lists(
        st.tuples(st.sampled_from(OPTIONS) | NAMES.map(lambda name: (name,)), VALUES),
        max_size=4,
        unique_by=lambda line: line[0],
    )
)
@example([(("dashboard", "port"), 2**64)])
@example([(("channels", "pigeon", "accounts"), {"a": {"dm_policy": "open"}})])
def test_any_values_in_any_places_of_the_file(lines):
    file = [f"{'.'.join(map(json.dumps, key))} = {as_toml(value)}" for key, value in lines]
    attempt("\n".join(file).encode("utf-8", "surrogatepass"), {})


@given(
    st.sampled_from(OPTIONS).map(env_name) | st.text(max_size=20).map("CONFIDANT_{}".format),
    st.one_of(st.text(max_size=20), VALUES.map(json.dumps)),
)
@example(env_name(("storage", "dir")), "a" * 300)
def test_any_value_in_any_variable(name, value):
    attempt(b"", {name: value})


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_any_bytes(raw, dotenv):
    attempt(raw, {}, dotenv)


REFERENCE = reference(config_model(CHANNELS)).replace("\n#", "\n").encode()


@given(st.integers(0, len(REFERENCE)), st.binary(max_size=4), st.integers(0, 6))
def test_the_reference_file_with_a_few_bytes_changed(at, new, removed):
    attempt(REFERENCE[:at] + new + REFERENCE[at + removed :], {})
