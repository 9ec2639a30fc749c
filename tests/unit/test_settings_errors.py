"""What a person is told about each mistake: where it is, what is wrong, what was meant."""

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot import settings
from bot.errors import ConfigError
from bot.settings.sources import positions
from tests.fakes.config_channels import CHANNELS, load, problems

# ruff: noqa: E501, ISC004  (a message is easiest to compare when it is written as it is told)


SECRET = "4711:s3cr3t-t0ken"


@pytest.mark.parametrize(
    ("toml", "line"),
    [
        ("[channels.pigeon]\ntokn = 'x'",
         'confidant.toml:2: unknown option "tokn" in [channels.pigeon]; did you mean "token"?'),
        ("[agnet]\nname = 'A'", "confidant.toml:1: unknown section [agnet]; did you mean [agent]?"),
        ("port = 1", 'confidant.toml:1: unknown option "port" before the first section; '
         "it belongs to [dashboard]"),
        ("[channels.discord]",
         'confidant.toml:1: no channel "discord" is installed (installed: owl, pigeon)'),
        ("[channels]\npigen.speed = 1",
         'confidant.toml:2: no channel "pigen" is installed (installed: owl, pigeon); '
         "did you mean [channels.pigeon]?"),
        ("[dashboard]\nport = '8420'",
         'confidant.toml:2: dashboard.port: "8420" is not a whole number'),
        ("[dashboard]\nport = true",
         "confidant.toml:2: dashboard.port: true is not a whole number"),
        ("[dashboard]\nport = 70000",
         "confidant.toml:2: dashboard.port: 70000 is too large: it must be at most 65535"),
        ("[channels.pigeon]\nspeed = -1",
         "confidant.toml:2: channels.pigeon.speed: -1 is too small: it must be above 0"),
        ("[channels.pigeon]\nenabled = 1",
         "confidant.toml:2: channels.pigeon.enabled: 1 is not true or false"),
        ("[agent]\nname = 5", 'confidant.toml:2: agent.name: 5 is not text in quotes: write "5"'),
        ("[agent]\nname = ''",
         'confidant.toml:2: agent.name: "" is too short: it needs 1 or more characters'),
        ("agent = 5", "confidant.toml:1: agent: 5 is not a table of options"),
        ("[channels.owl]\nallow_from = 42",
         'confidant.toml:2: channels.owl.allow_from: 42 is not a list such as ["a", "b"]'),
        ("[channels.owl]\nallow_from = [\n  42,\n]",
         'confidant.toml:3: channels.owl.allow_from: 42 is not text in quotes: write "42"'),
        ("[channels.owl]\ndm_policy = 'opn'",
         'confidant.toml:2: channels.owl.dm_policy: "opn" is not one of "pairing", "allowlist", "open", "disabled"; did you mean "open"?'),
        ("[agent]\nlanguage = 'de'",
         'confidant.toml:2: agent.language: "de" is not one of "auto", "en", "zh"'),
        ("[[scope.rules]]\nchat = 'x'", 'confidant.toml:1: [scope.rules.1] needs "action"'),
        *(
            (
                f"[[{table}.rules]]\naction = 'deny'\nchannel = 'pigeom'",
                f'confidant.toml:3: {table}.rules.channel: no channel "pigeom" is installed; did you mean "pigeon"?',
            )
            for table in (
                "scope",
                "send_policy",
                "tools",
                "channels.pigeon.scope",
                "channels.pigeon.accounts.work.scope",
            )
        ),
        *(
            (
                f"[[{table}.rules]]\naction = 'deny'\nchat_type = 'grup'",
                f'confidant.toml:3: {table}.rules.chat_type: "grup" is not one of "", "direct", "group", "channel", "thread"; did you mean "group"?',
            )
            for table in ("scope", "send_policy", "tools")
        ),
        *(
            (
                f"[session.identity_links]\nada = ['pigeon:1']\n[channels.pigeon.accounts.work]\n[[{table}.rules]]\naction = 'deny'\n{rule}",
                f"confidant.toml:6: {table}.rules.{line}",
            )
            for table, rule, line in (
                ("scope", "account = 'wrok'", 'account: no account is called "wrok"; did you mean "work"?'),
                ("scope", "account = 'work'\nchannel = 'owl'", 'account: no account is called "work"; there is "default"'),
                ("scope", "key_prefix = 'agent:main:pigeom:dm:'", 'key_prefix: no session key begins with "agent:main:pigeom:dm:"; did you mean "agent:main:pigeon:"?'),
                ("send_policy", "sender = 'pigeon:1'", 'sender: "pigeon:1" is no id in that channel: write channel = "pigeon" and sender = "1"'),
                ("send_policy", "chat = 'owl:1'", 'chat: "owl:1" is no id in that channel: write channel = "owl" and chat = "1"'),
                ("tools", "person = 'adda'", 'person: "adda" is nobody; did you mean "ada"?'),
                ("tools", "person = 'pigeom:1'", 'person: no channel "pigeom" is installed; did you mean "pigeon"?'),
            )
        ),
        ("[[tools.rules]]\naction = 'deny'\ntools = ['memory_*', 'memory_wirte']",
         'confidant.toml:3: tools.rules.tools: no tool is called "memory_wirte"; did you mean "memory_write"?'),
        ("[tools.mcp.files]\ncommand = 'x'\n[[tools.rules]]\naction = 'allow'\ntools = ['fles_*']",
         'confidant.toml:5: tools.rules.tools: no tool is called "fles_*"; did you mean "files_*"?'),
        ("[agents.main]\nbind = [{ channel = 'owl' }]",
         'confidant.toml:1: agents.main: "main" is the agent of [agent]: choose another name'),
        ("[agents.'A b']\nbind = [{ channel = 'owl' }]",
         'confidant.toml:1: agents.A b: "A b" cannot be an agent\'s name: use small letters, digits, - and _, 32 at most'),
        ("[agents.cook]\nname = 'Coco'",
         'confidant.toml:1: agents.cook.bind: it would never answer: say where, as in bind = [{ channel = "telegram", chat = "-100123" }]'),
        ("[agents.cook]\nbind = [{ channel = 'owk' }]",
         'confidant.toml:2: agents.cook.bind.channel: no channel "owk" is installed; did you mean "owl"?'),
        ("[agents.cook]\nbind = [{ sender = '7', chat_type = 'group' }]",
         'confidant.toml:2: in a room one agent answers everybody: leave out sender and person, or set chat_type = "direct"'),
        ("[agents.cook]\nbind = [{ person = 'ada' }]",
         'confidant.toml:2: agents.cook.bind.person: "ada" is nobody; there is "main"'),
        ("[agents.cook]\nbind = [{ channel = 'owl' }]\nmodel = 'nowhere/small'",
         'confidant.toml:3: agents.cook.model: "nowhere/small": there is no [models.nowhere]; there is "anthropic", "openai"'),
        ("[agents.cook]\nbind = [{ channel = 'owl' }]\ntools = ['memory_serch']",
         'confidant.toml:3: agents.cook.tools: no tool is called "memory_serch"; did you mean "memory_search"?'),
        ("[agents.cook]\nbind = [{ channel = 'owl' }]\ntimezone = 'UTC'",
         'confidant.toml:3: unknown option "timezone" in [agents.cook]; there is "bind", "choices", "chores", "fallback", "language", "max_steps", "max_tokens", "memory", "model", "name", "tools", "turn_timeout"'),
        ("[session.reset.by_type.grup]\nmode = 'none'",
         'confidant.toml:1: session.reset.by_type.grup: "grup" cannot be a name in [session.reset.by_type]; did you mean "group"?'),
        ("[channels.pigeon.accounts.'A b']",
         'confidant.toml:1: channels.pigeon.accounts.A b: "A b" cannot be a name in '
         "[channels.pigeon.accounts]: use small letters, digits, - and _"),
        ("[session]\nreset.mode = 'idle'",
         'confidant.toml:2: mode = "idle" needs idle_minutes above 0'),
        ("[storage]\ndir = 2024-01-01",
         "confidant.toml:2: storage.dir: dates and times are not used here; if it is text, put it in quotes"),
        ("[agent]\nturn_timeout = inf",
         "confidant.toml:2: agent.turn_timeout: this must be a finite number"),
        ("[dashboard]\nport = 0xffffffffffffffffffff",
         "confidant.toml:2: dashboard.port: this number is too large"),
        ('[agent]\nname = "a\\u0000"',
         "confidant.toml:2: agent.name: this text has a NUL character in it"),
        ("[channels.owl]\ndm_policy = 'open'",
         'confidant.toml:2: dm_policy = "open" lets everyone talk to the bot, so it needs "*" in '
         "allow_from"),
        ("[channels.pigeon]\naccounts.work.allow_from = ['1']\naccounts.work.dm_policy = 'open'",
         'confidant.toml:3: dm_policy = "open" lets everyone talk to the bot, so it needs "*" in '
         "allow_from"),
        ("[channels.pigeon]\ndm_policy='open'\nallow_from=['*']\naccounts.a.allow_from = ['1']",
         'confidant.toml:4: dm_policy = "open" lets everyone talk to the bot, so it needs "*" in '
         "allow_from"),
        ("[agent]\ntimezone = 'Europe/Berln'",
         'confidant.toml:2: agent.timezone: "Europe/Berln" is not a time zone; did you mean "Europe/Berlin"?'),
        ("[session]\nowner = [\n  'pigeon:1',\n  'me']",
         'confidant.toml:4: session.owner: "me" does not say who: write "<channel>:<id>", e.g. "telegram:42"'),
        ("[session.identity_links]\nada = ['pigeon:1']\nbob = ['owl:1', 'pigeon:1']",
         'confidant.toml:3: session.identity_links.bob: "pigeon:1" is linked to two people, "ada" and "bob"'),
        ("[session.identity_links]\nada = ['pigeon:1']\nAda = ['owl:1']",
         'confidant.toml:3: session.identity_links.Ada: "Ada" and "ada" are the same name'),
        ("[session.identity_links]\n'../ada' = ['pigeon:1']",
         'confidant.toml:2: session.identity_links.../ada: "../ada" cannot be a name: use '
         "letters, digits, - and _"),
        ("[storage]\nuri = 'postgresql://localhost'",
         'confidant.toml:2: unknown option "uri" in [storage]; did you mean "url"?'),
        ("[storage]\ndir = '~nobody-here/x'",
         'confidant.toml:2: storage.dir: "~nobody-here/x": there is no such home folder'),
        ("[dashboard]\nhost = '0.0.0.0'",
         'confidant.toml:2: dashboard.host: "0.0.0.0" can be reached from other machines, so the '
         "page needs a token: set CONFIDANT_DASHBOARD__TOKEN"),
        ("[dashboard]\ntoken = 'fifteen letters'",
         "confidant.toml:2: the page's token has fewer than 16 characters and can be guessed: set CONFIDANT_DASHBOARD__TOKEN to what `openssl rand -hex 32` prints"),
        ("[dashboard]\nallowed_origins = ['https://a.example', 'https://b.example/chat']",
         'confidant.toml:2: dashboard.allowed_origins: "https://b.example/chat" is not an origin: write scheme and host only, e.g. "https://bot.example.org"'),
        ("[models.anthropic]\nbase_url = 'localhost:11434'",
         'confidant.toml:2: models.anthropic.base_url: "localhost:11434" is not an address: it '
         "begins with https:// or http://"),
        ("[agent]\nmodel = 'olama/qwen3'\n[models.ollama]\nkind = 'openai'",
         'confidant.toml:2: agent.model: "olama/qwen3": there is no [models.olama]; did you mean "ollama"?'),
        ("[models.anthropc]\ntimeout = 3",
         "confidant.toml:1: models.anthropc: [models.anthropc] does not say its kind: set kind = "
         '"anthropic" or kind = "openai"; did you mean [models.anthropic]?'),
        ("[models.x]\nkind = 'opnai'",
         'confidant.toml:2: models.x.kind: "opnai" is no kind of service; did you mean "openai"?'),
        ("[models.Own]\nkind = 'openai'",
         'confidant.toml:1: models.Own: "Own" cannot be a service\'s name: use small letters, '
         "digits, - and _"),
        ("[models.own]\nkind = 'openai'\ntmeout = 3",
         'confidant.toml:3: unknown option "tmeout" in [models.own]; did you mean "timeout"?'),
        ("[agent]\nfallback = ['openai/']\n[models.openai]\nbase_url = 'http://127.0.0.1:1'",
         'confidant.toml:2: agent.fallback: "openai/" names no model'),
        ("[agent]\nchores = 'openai/gpt-6'",
         'confidant.toml:2: agent.chores: "openai/gpt-6": [models.openai] has neither a key nor an '
         "address: set OPENAI_API_KEY"),
        ("[storage]\nkeep_months = 12",
         "confidant.toml:2: storage.keep_months: a storage folder keeps everything: only what is said in the database behind [storage] url can be dropped by month"),
    ],
)  # fmt: skip
def test_one_mistake_in_the_file(tmp_path, toml, line):
    assert problems(tmp_path, toml) == [line]


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("CONFIDANT_DASHBOARD__PORT", "abc", '"abc" is not a whole number'),
        ("CONFIDANT_DASHBOARD__PORT", "1e3", '"1e3" is not a whole number'),
        ("CONFIDANT_DASHBOARD__PORT", "-1", "-1 is too small: it must be at least 0"),
        ("CONFIDANT_AGENT__TURN_TIMEOUT", "nan", "this must be a finite number"),
        ("CONFIDANT_CHANNELS__OWL__ENABLED", "maybe", '"maybe" is not true or false'),
        ("CONFIDANT_LOG__LEVEL", "warn", '"warn" is not one of "debug", "info", "warning", "error"; '
            'did you mean "warning"?'),
        ("CONFIDANT_SESSION__OWNER", '["a"', 'this is not valid JSON for a list such as ["a", "b"]'),
        ("CONFIDANT_SCOPE__RULES", "allow", 'this must be a JSON list such as [{"action": "allow"}]'),
        ("CONFIDANT_LOG", "[1]", 'this must be a table such as {"name": …}'),
        ("CONFIDANT_LOG", "[" * 100_000, "this is nested too deeply"),
        ("CONFIDANT_LOG", '{"level": null}', 'None is not one of "debug", "info", '
            '"warning", "error"'),
        ("CONFIDANT_DASHBORD__PORT", "1", "no option has this name; did you mean "
            "CONFIDANT_DASHBOARD__PORT?"),
        ("CONFIDANT_CHANNELS__PIGEON__TOKN", SECRET, "no option has this name; did you mean "
            "CONFIDANT_CHANNELS__PIGEON__TOKEN?"),
        ("CONFIDANT_LOG__LEVEL_FILE", "x", "no option has this name; did you mean "
            "CONFIDANT_LOG__LEVEL?"),
        ("CONFIDANT_SCOPE__RULES__0__ACTION", "deny", "no option has this name; did you mean "
            "CONFIDANT_SCOPE__RULES?"),
        ("CONFIDANT_AGENT__NAME__", "x", "no option has this name; did you mean "
            "CONFIDANT_AGENT__NAME?"),
        ("CONFIDANT_CHANNELS__PIGEON__TOKEN_FILE", "/none", "the file /none cannot be read: No such "
            "file or directory"),
        ("PIGEON_TOKEN", "file:/none", "the file /none cannot be read: No such file or directory"),
        ("PIGEON_TOKEN", "file:.", "the file . cannot be read: Is a directory"),
        ("CONFIDANT_AGENT__NAME", "a\udcff", "this text is not valid UTF-8"),
    ],
)  # fmt: skip
def test_one_mistake_in_a_variable(tmp_path, name, value, line):
    assert problems(tmp_path, environ={name: value}) == [f"{name}: {line}"]
    if "\udcff" not in value:
        found = problems(tmp_path, dotenv=f"\n# one\n\n{name}='{value}'\n")
        assert found == [f".env:4: {name}: {line}"]


def test_a_mistake_in_a_table_that_only_variables_set_names_one_of_them(tmp_path):
    toml = "[channels.owl]\nenabled = true"
    environ = {
        "CONFIDANT_CHANNELS__PIGEON": '{"work": {"speed": 1}}',
        "CONFIDANT_SESSION__RESET__MODE": "idle",
    }
    assert problems(tmp_path, toml, environ) == [
        'CONFIDANT_CHANNELS__PIGEON: unknown option "work" in [channels.pigeon]',
        'CONFIDANT_SESSION__RESET__MODE: mode = "idle" needs idle_minutes above 0',
    ]


def test_every_mistake_is_told_in_the_order_of_the_file(tmp_path):
    found = problems(
        tmp_path,
        """
        [channels.pigeon]
        tokn = "x"
        dm_policy = "open"
        accounts.work.dm_policy = "open"
        [agent]
        max_tokens = "many"
        timezone = "Mars"
        [session]
        owner = ["me"]
        [dashboard]
        host = "0.0.0.0"
        port = -1
        """,
        {"CONFIDANT_AGENT__MAX_STEPS": "x", "CONFIDANT_STORAGE__BACKUPS_KEPT": "x"},
        "garbage here\n",
    )
    assert [line.partition(": ")[0] for line in found] == [
        *(f"confidant.toml:{line}" for line in (3, 4, 7, 8, 10, 12, 13)),
        ".env:1",
        "CONFIDANT_AGENT__MAX_STEPS",
        "CONFIDANT_STORAGE__BACKUPS_KEPT",
    ]


def test_a_mistake_hides_no_other_and_causes_none(tmp_path):
    toml = "[dashboard]\nhost = '0.0.0.0'\ntoken = 5\nport = 'x'"
    found = problems(tmp_path, toml)
    assert found == [
        "confidant.toml:3: dashboard.token: this must be text in quotes",
        'confidant.toml:4: dashboard.port: "x" is not a whole number',
    ]


@pytest.mark.parametrize(
    "rule",
    [
        "channel = 'Pigeon'\naccount = 'WORK'",
        "account = 'default'",
        "chat = '-100'\nsender = 'users:ada'",
        *(
            f"key_prefix = '{each}'"
            for each in ("agent:", "Agent:main:pigeon:dm:7", "agent:main:dm:@ada")
        ),
        *(f"person = '{each}'" for each in ("main", "Ada", "owl:7")),
    ],
)
def test_rules_may_name_whoever_is_known_and_any_id(tmp_path, rule):
    setup = "[session.identity_links]\nada = ['pigeon:1']\n[channels.pigeon.accounts.work]\n"
    found = load(tmp_path, f"{setup}[[tools.rules]]\naction = 'deny'\n{rule}\n")
    assert len(found.config.tools.rules) == 1
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b"[agent\n", "confidant.toml:1:7: not valid TOML: expected ']' at the end of a table"),
        (b"[agent]\nname = A", "confidant.toml:2:8: this value is not written as TOML wants it"),
        (b"[agent]\nname = 'a'\nname = 'b'\n", "confidant.toml:3:11: this option is set twice"),
        (b"log = {level='info',level='info'}", "confidant.toml:1:33: this option is set twice"),
        (b"[agent]\n[log]\n[agent]\n", "confidant.toml:3:7: this table stands twice in the file"),
        (b"[agent]\nname = 'a", 'confidant.toml:2: not valid TOML: expected "\'" at the end'),
        (b"a = 1\x00\n", "confidant.toml:1:6: not valid TOML"),
        (b"\x00", "confidant.toml:1:1: not valid TOML"),
        ("[agent]\nname = 'Zoë'".encode("latin-1"), "confidant.toml:2: the file is not UTF-8 text"),
        ("[agent]\nname = 'a'".encode("utf-16"), "confidant.toml:1: the file is not UTF-8 text"),
        (b"a = " + b"9" * 5000, "confidant.toml: there is a number that is too long"),
        (b"a = " + b"[" * 500_000, "confidant.toml: the file is nested too deeply"),
        (b"a = " + b"{a=" * 300_000, "confidant.toml: the file is nested too deeply"),
        (b"a." * 400_000 + b"a = 1", "confidant.toml:1: this line has too many dots"),
        (b"#" * 1_000_001, "confidant.toml: the file is larger than 1 MB"),
    ],
)
def test_a_file_that_is_no_toml(tmp_path, raw, line):
    (found,) = problems(tmp_path, raw)
    assert found.startswith(line)


def test_a_folder_or_an_unreadable_file_is_told(tmp_path):
    (tmp_path / "confidant.toml").mkdir()
    assert problems(tmp_path) == ["confidant.toml: this is not a file"]
    with pytest.raises(ConfigError, match="no such file"):
        settings.load(Path("a\0b"), {}, tmp_path, CHANNELS)
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(ConfigError, match="this is not a file"):
        settings.load(Path("pipe.toml"), {}, tmp_path, CHANNELS)


def test_a_thousand_mistakes_are_told_in_a_moment(tmp_path):
    found = problems(tmp_path, "\n".join(f"a{number} = 1" for number in range(5_000)))
    assert len(found) == 51
    assert found[0].startswith('confidant.toml:1: unknown option "a0"')
    assert found[-1].startswith("… and ")


def test_one_option_set_twice_in_the_environment(tmp_path):
    found = problems(tmp_path, environ={"PIGEON_TOKEN": "a", "PIGEON_TOKEN_FILE": "b"})
    assert found == ["PIGEON_TOKEN_FILE: PIGEON_TOKEN sets the same option: keep one of them"]
    both = {"CONFIDANT_LOG__LEVEL": "info", "confidant_log__level": "debug"}
    assert len(problems(tmp_path, environ=both)) == 1


@pytest.mark.parametrize(
    ("toml", "environ"),
    [
        (f"[channels.pigeon]\ntoken = ['{SECRET}']", {}),
        (f"[channels.pigeon]\ntoken = {{ a = '{SECRET}' }}", {}),
        (f"[channels.pigeon]\ntokn = '{SECRET}'", {}),
        (f"[dashboard]\nport = 'x'\ntoken = '{SECRET}'", {}),
        (f"[channels.pigeon]\ntoken = '{SECRET}", {}),
        (f"[channels.pigeon]\ntoken = {SECRET}", {}),
        ("", {"CONFIDANT_CHANNELS__PIGEON": f'{{"token": ["{SECRET}"]}}'}),
        ("", {"CONFIDANT_CHANNELS__PIGEON": f'{{"token": "{SECRET}"'}),
        ("", {"CONFIDANT_CHANNELS__PIGEON__TOKEN": f"a\0{SECRET}"}),
    ],
)
def test_secrets_are_never_repeated(tmp_path, toml, environ):
    told = "\n".join(problems(tmp_path, toml, environ))
    assert "s3cr3t" not in told
    assert "4711" not in told


def test_a_rule_about_an_unknown_channel_is_refused_while_running_too(tmp_path):
    sources = load(tmp_path, environ={"HOME": str(tmp_path)}).sources
    assert sources is not None
    rule = '[{"action": "deny", "channel": "pigeom"}]'
    with pytest.raises(ConfigError, match='did you mean "pigeon"'):
        sources.load(f"CONFIDANT_CHANNELS__PIGEON__SCOPE__RULES='{rule}'\n")


def test_a_secret_file_of_something_else_is_refused_without_its_content(tmp_path):
    ring = tmp_path / "ring"
    for content in (b"", b"  \n", b"top\nsecret\n", b"\xff\xfetop", b"top" * 50_000, b"a\0top"):
        ring.write_bytes(content)
        (found,) = problems(tmp_path, environ={"PIGEON_TOKEN_FILE": "ring"})
        assert found.startswith("PIGEON_TOKEN_FILE: the file ring ")
        assert "top" not in found


def test_names_from_the_file_cannot_write_to_the_terminal(tmp_path):
    (found,) = problems(tmp_path, f'"\\u001b[31m\\n{"x" * 500}" = 1')
    assert found.isprintable()
    assert len(found) < 250


def test_a_file_that_may_load_does(tmp_path):
    assert load(tmp_path, "[session.identity_links]\nada = ['pigeon:1', 'owl:1']").warnings == ()


LAYOUTS = {
    "plain": """a = 1
b = 2  # a = 9
[t]
c = 4
""",
    "dotted and quoted keys": """a.b.c = 1
a . d = 2
"a"."e f" = 3
'a'.'g.h' = 4
"\\u0061".i = 5
[ "t" . u ]
"x = 9" = 7
"" = 8
""",
    "dotted headers": """[a.b.c]
k = 2
[a]
k = 4
[a.b]
k = 6
""",
    "inline tables": """a = { b = 1, c = { d = 1, "e,}" = 1 }, f = [ { g = 1 } ] }
[t]
x = { y.z = 3, w = 3 }
""",
    "arrays over lines": """a = [
  2, # ] 9
  3, 3,

  [ 5,
    6 ],
  { b = 7 }, { b = 7, c = [
    8 ] }
]
b = 10
""",
    "arrays of tables": """[[r]]
k = 2
[[r]]
[r.s]
k = 5
[[r.q]]
k = 7
[[r.q]]
k = 9
[[r]]
[[r.q]]
k = 12
[r.q.z]
k = 14
""",
    "strings that look like more": '''s = """
a = 9
[x] \\""" ""
"""
a = 5
t = \'\'\'
b = 9\'\'
\'\'\'
b = 9
u = """x"""""
v = ""
w = \'\'
c = 13
d = "# no comment" # a comment with "quotes
e = 15
f = """\\
  \\\\"""
g = 18
h = "\\\\"
i = 20
j = ["a]", 'b"', """
c"""]
k = 23
''',
    "values of every kind": """a = true
b = 2
c = 1979-05-27T07:32:00Z
d = -1_000.5e-3
e = 07:32:00
f = 6
g = inf
h = 8""",
    "blank lines": """

a = 3

[ t ] # here

  b = 7
\tc = 8
""",
}  # fmt: skip


def leaves(value: object, key: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple, object]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, (*key, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, (*key, index))
    else:
        yield key, value


def check(text: str) -> None:
    found = positions(text)
    for key, value in leaves(tomllib.loads(text)):
        assert key in found, key
        if type(value) is int:
            assert found[key] == value, key


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_hard_layouts(name, end):
    check(LAYOUTS[name].replace("\n", end))


def test_tables_and_arrays_have_lines_of_their_own():
    found = positions("a.b = 1\n[c.d]\n\n[[e]]\n[[e]]\nx = [\n1]\n")
    assert found == {
        ("a",): 1,
        ("a", "b"): 1,
        ("c",): 2,
        ("c", "d"): 2,
        ("e",): 4,
        ("e", 0): 4,
        ("e", 1): 5,
        ("e", 1, "x"): 6,
        ("e", 1, "x", 0): 7,
    }


def test_nesting_beyond_the_stack_gives_no_lines_rather_than_an_error():
    assert positions("a = " + "[" * 100_000 + "]" * 100_000) == {}


# --- documents made at random: each `@` becomes the line it stands on -----------------------------

NAMES = st.sampled_from(["a", "b", "c", '"d e"', "'f.g'", '"h\\"i"', "-", "1"])
STRINGS = st.sampled_from(
    ['"x"', "'y'", '""', '"""\n[z]\n"""', "'''\nq = 1'''", '"a # b"', '"""\\""""', "'''''x'''"]
)


def values() -> st.SearchStrategy[str]:
    scalars = st.one_of(st.just("@"), st.just("@"), STRINGS, st.just("true"), st.just("1.5"))
    return st.recursive(
        scalars, lambda inner: st.one_of(arrays(inner), inline(inner)), max_leaves=6
    )


def arrays(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    comma = st.sampled_from([",", " ,\n", ", # , ]\n", "\n,\n\n"])
    return st.builds(
        lambda items, comma, end: f"[{comma.join(items)}{end}]",
        st.lists(inner, max_size=3),
        comma,
        st.sampled_from(["", "\n", " # ]\n"]),
    )


def inline(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    # An `@` in a value that follows a line break would not be on its key's line: one level only.
    flat = inner.filter(lambda text: "\n" not in text)
    pairs = st.dictionaries(NAMES, flat, max_size=3)
    return pairs.map(lambda each: "{" + ", ".join(f"{k} = {v}" for k, v in each.items()) + "}")


@st.composite
def documents(draw: st.DrawFn) -> str:
    blocks = [_pairs(draw)]
    for number in range(draw(st.integers(0, 4))):
        parent = draw(NAMES)
        header = draw(
            st.sampled_from([f"[t{number}.{parent}]", f"[ u.t{number} ]", "[[l]]", "[[l]] # x"])
        )
        blocks.append(f"{header}\n{_pairs(draw)}")
        if header.startswith("[[") and draw(st.booleans()):
            blocks.append(f"[l.m]\n{_pairs(draw)}")
    text = "\n".join(blocks)
    lines = [line.replace("@", str(number)) for number, line in enumerate(text.split("\n"), 1)]
    return "\n".join(lines)


def _pairs(draw: st.DrawFn) -> str:
    pairs = draw(st.dictionaries(NAMES, values(), max_size=4))
    gap = draw(st.sampled_from([" = ", "=", "\t=  "]))
    return "\n".join(f"{name}{gap}{value}" for name, value in pairs.items())


@given(documents())
def test_documents_made_at_random(text):
    check(text)
