"""The container files and the package: valid, closed, and as `make` sets them up."""

import ast
import asyncio
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from configparser import ConfigParser
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from ruamel.yaml import YAML

from bot import settings
from bot.cli import serve
from bot.errors import ConfigError
from bot.invocation import TYPED_AS, called
from bot.settings.sources import from_dotenv
from scripts import release, wheels
from scripts.no_skips import complaints
from tests.fakes.ports import free_port
from tests.fakes.sites import serving
from tests.proofs.rounds import sample

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def service() -> Any:
    return services()["confidant"]


def services() -> Any:
    compose = YAML(typ="safe").load((ROOT / "docker-compose.yml").read_text("utf-8"))
    return compose["services"]


NODES = ["node-1", "node-2", "node-3"]


def test_each_profile_has_the_services_it_needs_and_none_has_the_bot_alone():
    profiles = {name: each.get("profiles", []) for name, each in services().items()}
    assert profiles == {
        "confidant": [],
        **{name: ["cluster"] for name in NODES},
        "postgres": ["postgres", "cluster"],
        "proxy": ["cluster"],
    }
    # The bot waits for the database where there is one.
    wanted = {"condition": "service_healthy", "required": False}
    assert services()["confidant"]["depends_on"] == {"postgres": wanted}


def test_each_node_is_the_same_and_set_up_by_options_that_exist(service, tmp_path):
    nodes = [services()[name] for name in NODES]
    assert [node.pop("hostname") for node in nodes] == NODES
    # What is entered on a node's page stays, and a backup of any size is put together on a disk.
    assert [node.pop("volumes") for node in nodes] == [[f"{name}:/data"] for name in NODES]
    assert nodes[0]["tmpfs"] == service["tmpfs"]
    assert nodes[0] == nodes[1] == nodes[2]
    environ = {str(name): str(value) for name, value in nodes[0]["environment"].items()}
    environ["CONFIDANT_DASHBOARD__TOKEN"] = "0123456789abcdef0123456789abcdef"
    loaded = settings.load(None, environ, tmp_path)
    # Saying where a webhook would listen is all that is said of channels here.
    assert all("webhook_host" in warning.lower() for warning in loaded.warnings)
    url = loaded.config.storage.url
    assert url is not None
    # The password stands in no file of ours, and the file needs none where nobody wants nodes.
    assert url.get_secret_value() == "postgresql://confidant@postgres:5432/confidant"
    assert environ["PGPASSWORD"] == service["environment"]["PGPASSWORD"] == "${POSTGRES_PASSWORD:-}"
    differs = {"profiles", "environment", "depends_on"}
    there = service.keys() - {"ports", "volumes"} - differs
    assert {name: nodes[0][name] for name in nodes[0].keys() - differs} == {
        name: service[name] for name in there
    }


def test_the_proxy_is_the_only_way_in_and_knows_every_node(service):
    every = services()
    assert every["proxy"]["ports"] == service["ports"]
    assert not [name for name in (*NODES, "postgres") if "ports" in every[name]]
    assert every["proxy"]["depends_on"] == NODES
    caddy = (ROOT / "config" / "cluster" / "Caddyfile").read_text("utf-8")
    for port in ("8420", "8421", "8422"):
        assert f"\n:{port} {{" in caddy
        assert f"reverse_proxy {' '.join(f'{node}:{port}' for node in NODES)} {{" in caddy
    assert caddy.count("{") == caddy.count("}")


def test_files_that_containers_are_given_exist():
    for each in services().values():
        for volume in each.get("volumes", ()):
            source = volume.split(":")[0]
            assert not source.startswith(".") or (ROOT / source).is_file(), source


def dockerfile() -> list[list[tuple[str, str]]]:
    """The instructions of each stage, with continued lines joined."""
    text = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    lines = [line for line in text.split("\n") if line.strip() and not line.startswith("#")]
    stages: list[list[tuple[str, str]]] = []
    for line in lines:
        name, _, rest = line.partition(" ")
        if name == "FROM":
            stages.append([])
        stages[-1].append((name, rest.strip()))
    return stages


def test_compose_is_valid_by_the_compose_specification():
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec",
         "docker-compose.yml"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_service_can_do_no_more_than_it_needs(service):
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service
    assert "cap_add" not in service
    assert [entry.split(":")[0] for entry in service["tmpfs"]] == ["/tmp"]  # noqa: S108
    assert service["volumes"] == ["data:/data"]
    assert service["stop_grace_period"] == "30s"


def test_the_page_and_the_webhooks_are_published_on_this_machine_only(service):
    ports = ["127.0.0.1:8420:8420", "127.0.0.1:8421:8421", "127.0.0.1:8422:8422"]
    assert service["ports"] == ports
    _, final = dockerfile()
    assert dict(final)["EXPOSE"] == "8420 8421 8422"


@pytest.mark.parametrize("of_image", [False, True])
def test_what_is_published_is_listened_on_where_it_can_be_reached(service, tmp_path, of_image):
    environ = {str(name): str(value) for name, value in service["environment"].items()}
    if of_image:
        environ = image_environment()
    environ["CONFIDANT_DASHBOARD__TOKEN"] = "0123456789abcdef0123456789abcdef"
    loaded = settings.load(None, environ, tmp_path)
    channels = loaded.config.channels
    listening = [(loaded.config.dashboard.host, loaded.config.dashboard.port)]
    for name in ("telegram", "nextcloud_talk"):
        section = channels.get(name).model_dump()
        listening.append((section["webhook_host"], section["webhook_port"]))
    assert listening == [("0.0.0.0", 8420), ("0.0.0.0", 8421), ("0.0.0.0", 8422)]
    # Saying where a webhook would listen sets no channel up.
    assert not loaded.plugins["nextcloud_talk"].ready(channels.get("nextcloud_talk"))
    assert not loaded.plugins["telegram"].ready(channels.get("telegram"))


def test_the_service_refuses_to_start_without_a_token_and_starts_with_one(service, tmp_path):
    environ = {str(name): str(value) for name, value in service["environment"].items()}
    with pytest.raises(ConfigError, match="needs a token"):
        settings.load(None, environ, tmp_path)
    environ["CONFIDANT_DASHBOARD__TOKEN"] = "0123456789abcdef0123456789abcdef"
    config = settings.load(None, environ, tmp_path).config
    assert config.storage.folder == Path("/data/confidant")
    assert config.dashboard.port == 8420


async def test_the_healthcheck_tells_a_bot_that_answers_from_one_that_does_not(service):
    assert "healthcheck" not in service  # the image's own counts
    (check,) = [rest for name, rest in dockerfile()[-1] if name == "HEALTHCHECK"]
    _, code, program = ast.literal_eval(check.partition("CMD ")[2])

    async def healthy(port: int | str) -> bool:
        environ = {**os.environ, "CONFIDANT_DASHBOARD__PORT": str(port)}
        process = await asyncio.create_subprocess_exec(
            sys.executable, code, program, env=environ, stderr=asyncio.subprocess.DEVNULL
        )
        return await process.wait() == 0

    states = [200, 503]

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=states.pop(0))

    app = web.Application()
    app.router.add_get("/healthz", answer)
    async with serving(app) as url:
        assert [await healthy(url.rpartition(":")[2].strip("/")) for _ in range(2)] == [True, False]
    assert not await healthy(free_port())
    assert states == []


def image_environment() -> dict[str, str]:
    return dict(word.split("=", 1) for word in shlex.split(dict(dockerfile()[1])["ENV"]))


def test_the_image_runs_as_anybody_and_keeps_its_data_in_a_volume(service):
    build, final = dockerfile()
    instructions = dict(final)
    assert build[0][1].startswith("python:3.12-slim")
    assert instructions["FROM"] == "python:3.12-slim"
    assert instructions["USER"] == "10001:10001"
    assert service["user"] == "${PUID:-10001}:${PGID:-10001}"
    # Whoever runs it can make a folder of their own in the volume.
    assert instructions["RUN"] == "install -d -o 10001 -g 10001 -m 1777 /data"
    assert instructions["VOLUME"] == instructions["WORKDIR"] == "/data"
    assert instructions["ENTRYPOINT"] == '["confidant"]'
    assert not [rest for name, rest in final if name in {"ADD", "ARG"} or "pip" in rest]


@pytest.mark.proof
def test_what_the_image_says_runs_as_a_user_without_a_name_a_home_or_a_capability(tmp_path):
    """In a user namespace, if this system allows one, where this user has the number of nobody."""
    anybody = ("unshare", "--user", "--map-user=4242", "--map-group=4242", "--")
    is_there = shutil.which("unshare") is not None
    if not is_there or subprocess.run([*anybody, "true"], check=False).returncode:
        anybody = ()
    data, home = tmp_path / "data", tmp_path / "home"
    for folder, mode in ((data, 0o1777), (home, 0o555)):
        folder.mkdir()
        folder.chmod(mode)
    if os.geteuid() == 0:
        os.chown(data, 10001, 10001)  # as in a new volume
    environ = {
        name: value.replace("/data", str(data)).replace("0.0.0.0", "127.0.0.1")
        for name, value in image_environment().items()
        if name not in {"PATH", "CONFIDANT_LOG__FORMAT"}  # a log names the page elsewhere
    }
    assert environ["HOME"] == str(data)
    program = [*anybody, sys.executable, "-m", "bot.cli"]
    here = {"HOME": str(home), "CONFIDANT_DASHBOARD__PORT": "0", "PYTHONPATH": str(ROOT)}
    release.try_out(program, home, environ | here)
    assert (data / "confidant" / "confidant.db").stat().st_mode & 0o077 == 0
    assert [*home.iterdir()] == []


def test_the_image_is_built_from_hashes_and_from_files_that_exist():
    build, _ = dockerfile()
    runs = " ".join(rest for name, rest in build if name == "RUN")
    assert "--require-hashes -r requirements-extras.lock" in runs
    ignored = (ROOT / ".dockerignore").read_text("utf-8").split()
    sources = {source for name, rest in build if name == "COPY" for source in rest.split()[:-1]}
    assert {line[1:] for line in ignored if line.startswith("!")} == sources
    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_the_build_sees_neither_secrets_nor_data():
    lines = [
        line
        for line in (ROOT / ".dockerignore").read_text("utf-8").split("\n")
        if line and not line.startswith("#")
    ]
    assert lines[0] == "*"
    assert not [line for line in lines if line.startswith("!") and "env" in line]


def test_the_unit_of_systemd_starts_what_its_document_installs_and_writes_in_its_home_alone():
    unit = ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str
    unit.read_string((ROOT / "deploy" / "confidant.service").read_text("utf-8"))
    service = unit["Service"]
    page = (ROOT / "docs" / "operating.md").read_text("utf-8")
    program, folder = service["ExecStart"].removesuffix(" run"), service["WorkingDirectory"]
    assert program == "/opt/confidant/bin/confidant"
    assert folder == f"/var/lib/{service['StateDirectory']}"
    assert "sudo python3 -m venv /opt/confidant\n" in page
    assert (
        f"useradd --system --home-dir {folder} --shell /usr/sbin/nologin {service['User']}" in page
    )
    name, _, typed = service["Environment"].strip('"').partition("=")
    assert name == TYPED_AS
    assert called([program], "", "", {name: typed}) == typed
    assert f"`{typed} doctor`" in page
    assert typed == f"sudo -Hu {service['User']} env -C {folder} {program}"
    assert int(service["TimeoutStopSec"]) > serve.STOP_SECONDS
    assert service["ProtectSystem"] == "strict"
    assert "ReadWritePaths" not in service
    assert service["CapabilityBoundingSet"] == ""
    for yes in ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "RestrictSUIDSGID"):
        assert service.getboolean(yes)


def test_the_example_of_an_env_file_changes_nothing_and_names_real_options(tmp_path):
    example = ROOT / ".env.example"
    (tmp_path / ".env").write_bytes(example.read_bytes())
    assert settings.load(None, {}, tmp_path).origins == {}
    (tmp_path / ".env").write_text(example.read_text("utf-8").replace("\n#C", "\nC"))
    loaded = settings.load(None, {}, tmp_path)
    assert loaded.config.session.owner == ("telegram:123456789",)
    names = {each.name for each in from_dotenv(example.read_text("utf-8"), "example")[0]}
    secrets = {variable for each in loaded.plugins.values() for variable in each.env}
    assert {"ANTHROPIC_API_KEY", "NEXTCLOUD_TALK_BOT_SECRET", *secrets} <= names
    assert loaded.config.channels.get("nextcloud_talk").model_dump()["api_user"] == "confidant"


# What stands in for a new machine: a Python that only writes down what it was asked to do.
FAKE_PYTHON = """#!/bin/sh
case "$*" in
    -c*"'%d.%d'"*"'{version}'"*) exit 0 ;;
    -c*"'%d.%d'"*) exit 1 ;;
    -c*) exit {too_old} ;;
    -V) echo "Python {version}" ;;
    "-m venv --clear .venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python
        printf '#!/bin/sh\\necho started "$@"\\n' > .venv/bin/confidant
        chmod +x .venv/bin/confidant ;;
    *) echo "$*" >> .venv/asked ;;
esac
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A fresh copy in a folder with a space in its name, with its own pretended Python."""
    folder = tmp_path / "my bot's clone"
    folder.mkdir()
    for name in ("Makefile", "requirements.lock", "requirements-dev.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    (folder / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "python.sh", folder / "scripts")
    write_python(folder / "python", "3.12", too_old=0)
    return folder


def write_python(path: Path, version: str, *, too_old: int) -> None:
    path.write_text(FAKE_PYTHON.format(version=version, too_old=too_old))
    path.chmod(0o755)


def make(
    folder: Path, *arguments: str, python: str = "PYTHON=./python", path: str = ""
) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": path or os.environ["PATH"], "HOME": str(folder)}
    return subprocess.run(
        [str(shutil.which("make")), *arguments, *filter(None, [python])],
        cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def test_make_run_sets_up_once_and_starts(clone):
    first = make(clone, "run", "ARGS=--config my.toml")
    assert first.returncode == 0, first.stderr
    assert first.stdout.endswith("started run --config my.toml\n")
    asked = (clone / ".venv" / "asked").read_text()
    assert "install --require-hashes -r requirements.lock\n" in asked
    assert "install --no-deps --no-build-isolation -e .\n" in asked
    assert "requirements-dev" not in asked

    second = make(clone, "run")
    assert second.stdout == "started run\n"
    assert (clone / ".venv" / "asked").read_text() == asked


def test_what_documents_say_to_type_for_setting_up_works_in_a_clone(clone):
    shutil.copy(ROOT / "requirements-extras.lock", clone)
    for page, start in (("README.md", "make run"), ("docs/cluster.md", "make install")):
        text = (ROOT / page).read_text("utf-8")
        (block,) = re.findall(rf"^```sh\n({start}\b.*?)^```$", text, re.DOTALL | re.MULTILINE)
        subprocess.run(
            ["sh", "-euc", block.replace("make test", "make -n every")],  # its recipe alone
            cwd=clone,
            env={"PATH": os.environ["PATH"], "PYTHON": "./python"},
            check=True,
            capture_output=True,
        )
    asked = (clone / ".venv" / "asked").read_text()
    assert asked.endswith("install --require-hashes -r requirements-extras.lock\n")


def test_a_newer_lock_is_installed(clone):
    make(clone, "install")
    asked = (clone / ".venv" / "asked").read_text()
    later = (clone / ".venv" / ".ready-run").stat().st_mtime + 10
    os.utime(clone / "requirements.lock", (later, later))
    make(clone, "install")
    assert (clone / ".venv" / "asked").read_text() == asked * 2


def test_setting_up_in_parallel_does_each_step_once(clone):
    assert make(clone, "-j8", "install", "run").returncode == 0
    asked = (clone / ".venv" / "asked").read_text()
    assert asked.count("-r requirements.lock") == 1


def test_an_old_python_is_refused_in_a_sentence(clone):
    write_python(clone / "python", "3.9", too_old=1)
    done = make(clone, "run")
    assert done.returncode != 0
    assert "Confidant needs Python 3.11 or newer; ./python is Python 3.9." in done.stderr
    assert not (clone / ".venv").exists()
    (clone / "python").unlink()
    assert "There is no ./python here." in make(clone, "run").stderr


def machine(folder: Path, *pythons: tuple[str, str]) -> str:
    """A PATH on which these Pythons are, by name and version, and no others."""
    programs = folder / "programs"
    programs.mkdir()
    for tool in ("sh", "echo", "mkdir", "cp", "printf", "chmod", "rm", "touch"):
        where = shutil.which(tool)
        assert where is not None
        (programs / tool).symlink_to(where)
    for name, version in pythons:
        write_python(programs / name, version, too_old=0)
    return str(programs)


@pytest.mark.parametrize(
    ("there", "taken"),
    [
        ([("python3", "3.11")], "3.11"),
        ([("python3", "3.11"), ("python3.12", "3.12"), ("python3.13", "3.13")], "3.13"),
        ([("python3", "3.13"), ("python3.12", "3.12")], "3.13"),
        ([("python3", "3.15"), ("python3.14", "3.14"), ("python3.11", "3.11")], "3.14"),
        ([("python3", "3.12"), ("python3.13", "broken")], "3.12"),
        ([("python3", "3.15")], "3.15"),
    ],
)
def test_the_newest_python_that_every_package_is_built_for_is_taken(clone, there, taken):
    done = make(clone, "run", python="", path=machine(clone, *there))
    assert done.returncode == 0, done.stderr
    assert f"Making .venv with Python {taken} …" in done.stdout


def test_a_python_of_one_version_is_looked_for_on_the_path_and_in_pyenv_or_there_is_none(clone):
    of_pyenv = clone / "pyenv" / "versions" / "3.13.9" / "bin" / "python"
    of_pyenv.parent.mkdir(parents=True)
    write_python(of_pyenv, "3.13", too_old=0)
    environ = {"PATH": machine(clone, ("python3", "3.12")), "PYENV_ROOT": str(clone / "pyenv")}
    for wanted, found in {"3.12": "python3\n", "3.13": f"{of_pyenv}\n", "3.14": ""}.items():
        script = ["sh", "scripts/python.sh", wanted]
        assert subprocess.check_output(script, cwd=clone, env=environ, text=True) == found


def test_the_pythons_of_the_makefile_are_those_that_every_wheel_exists_for():
    text = (ROOT / "scripts" / "python.sh").read_text("utf-8")
    (whole,) = re.findall(r"for version in \$\{1:-([\d. ]+)\}; do", text)
    assert whole.split() == [*reversed(wheels.PYTHONS)]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["requires-python"] == f">={wheels.PYTHONS[0]}"


def test_a_missing_wheel_is_told_with_its_python_and_machine():
    asked: list[str] = []

    def ask(arguments: Sequence[str]) -> str:
        said = " ".join(arguments)
        asked.append(said)
        return "no wheel" if "3.14" in said and "apple" in said else ""

    assert wheels.complaints(ask) == ["Python 3.14, macOS arm64: no wheel"]
    assert len(set(asked)) == len(wheels.PYTHONS) * len(wheels.MACHINES) == 12
    assert all("--only-binary :all:" in said for said in asked)
    assert all(said.endswith("requirements-dev.lock") for said in asked)
    assert wheels.complaints(lambda _: "") == []


def test_a_failed_installation_is_tried_again(clone):
    python = clone / "python"
    whole = python.read_text()
    python.write_text(whole.replace('*) echo "$*"', '*-r*) exit 1 ;;\n    *) echo "$*"'))
    assert make(clone, "run").returncode != 0
    (clone / ".venv" / "bin" / "python").write_text(whole)
    assert make(clone, "run").stdout.endswith("started run\n")


def test_help_is_what_make_says_without_a_goal(clone):
    assert make(clone).stdout == make(clone, "help").stdout
    assert "make run" in make(clone).stdout.split("\n")[0]


def test_every_goal_of_the_help_exists():
    text = (ROOT / "Makefile").read_text("utf-8")
    for goal in re.findall(r"echo 'make ([\w-]+)", text):
        assert re.search(rf"^{goal}:", text, re.MULTILINE), goal


def test_make_test_and_make_proof_run_each_test_and_ci_both():
    assert "-m 'not proof'" in make(ROOT, "-n", "every").stdout
    assert "-m proof" in make(ROOT, "-n", "proof").stdout
    assert "for part in test proof; do" in (ROOT / ".ci/run").read_text("utf-8")
    longest = make(ROOT, "-n", "proof", "PROOF_TIMES=7").stdout
    assert "PROOF_TIMES=7" in longest
    assert "-m " not in longest.partition("python -m pytest")[2]


HAS_ROUNDS = re.compile(r"from tests\.proofs\.rounds import .*\b(?:lengths|rounds)\b")


def test_make_proof_runs_whatever_make_test_runs_shorter():
    text = (ROOT / "Makefile").read_text("utf-8")
    tests = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")]
    shorter = [path for path in tests if HAS_ROUNDS.search((ROOT / path).read_text("utf-8"))]
    assert len(shorter) > 10
    proof = text.partition("\nproof:")[2].partition("\n\n")[0].split()
    assert [each for each in shorter if not {str(each), *map(str, each.parents)} & {*proof}] == []


def test_make_test_names_the_servers_that_are_missing_before_it_starts():
    test = (ROOT / "Makefile").read_text("utf-8").partition("\ntest:")[2].partition("\n\n")[0]
    assert "missing.sh" in test.partition("$(MAKE)")[0]
    there = {"NGINX": "sh", "PGBOUNCER": "sh", "OPENSSL": "sh"}

    def told(**programs: str) -> str:
        script, environment = ROOT / "scripts/missing.sh", {"PATH": os.environ["PATH"], **programs}
        return subprocess.run(
            ["sh", script], env=environment, check=True, capture_output=True, text=True
        ).stdout

    assert told(**there) == ""
    (line,) = told(**there | {"NGINX": "/not/there", "PGBOUNCER": "/nor/this"}).splitlines()
    assert line.startswith("Not found: nginx pgbouncer.")
    assert "apt install nginx pgbouncer" in line


@pytest.mark.parametrize(
    "script",
    [".ci/run", *(f"scripts/{n}.sh" for n in ("chromium", "missing", "python", "scratch"))],
)
def test_the_scripts_are_programs_without_mistakes_of_grammar(script):
    path = ROOT / script
    assert os.access(path, os.X_OK)
    shell = "bash" if path.read_text().startswith("#!/usr/bin/env bash") else "sh"
    subprocess.run([shell, "-n", str(path)], check=True)


def requirements(name: str) -> dict[str, str]:
    text = (ROOT / name).read_text("utf-8")
    entries = re.findall(
        r"^([a-z0-9-]+)(?:\[[a-z,]+\])?==(\S+)(.*?)(?=^[a-z]|\Z)", text, re.MULTILINE | re.DOTALL
    )
    for package, _, rest in entries:
        assert "--hash=sha256:" in rest, package
    # One version for every Python: two would have two sets of stubs, and two ways to fail.
    assert len({package for package, _, _ in entries}) == len(entries)
    return {package: version for package, version, _ in entries}


def test_the_locks_have_everything_pinned_and_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    run, dev = requirements("requirements.lock"), requirements("requirements-dev.lock")
    extras = requirements("requirements-extras.lock")
    assert run.items() <= extras.items() <= dev.items()
    groups = project["dependency-groups"]
    wanted = project["project"]["dependencies"] + groups["build"]
    optional = project["project"]["optional-dependencies"]
    extra = [each for name in ("cluster", "matrix", "slack") for each in optional[name]]
    for name, lock in ((wanted, run), (extra, extras), (groups["dev"][1:], dev)):
        for requirement in name:
            package = re.match(r"[\w.-]+", requirement)
            assert package is not None
            assert re.sub(r"[._-]+", "-", package[0].lower()) in lock, requirement
    # `make run` builds without isolation, so what builds must be pinned with the rest.
    assert project["build-system"]["requires"] == groups["build"][::-1]


@pytest.mark.parametrize("lock", sorted(each.name for each in ROOT.glob("requirements*.lock")))
def test_the_locks_have_what_their_packages_need(lock):
    locked = requirements(lock)
    for name in locked:
        try:
            needs = distribution(name).requires or []
        except PackageNotFoundError:  # for another machine
            continue
        for need in map(Requirement, needs):
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                assert canonicalize_name(need.name) in locked, f"{name} needs {need}"


def test_the_locks_name_no_place_to_download_from():
    for name in ("requirements.lock", "requirements-dev.lock"):
        text = (ROOT / name).read_text("utf-8")
        assert "://" not in text
        assert "--index-url" not in text


# --- a skipped test is a failed one ---------------------------------------------------------------

SUITE = """
import pytest
@pytest.mark.skip(reason="later")
def test_skipped(): ...
def test_skips_itself(): pytest.skip("no")
@pytest.mark.xfail
def test_expected_to_fail(): assert False
@pytest.mark.xfail
def test_unexpectedly_passes(): ...
def test_passes(): ...
"""


def run_suite(folder: Path, environ: dict[str, str], *arguments: str) -> str:
    (folder / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (folder / "test_it.py").write_text(SUITE)
    (folder / "test_whole.py").write_text("import pytest\npytest.importorskip('no_such_thing')\n")
    # It is no worker of the run that this test is part of.
    ours = {name: value for name, value in os.environ.items() if "XDIST" not in name}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(folder),
         "-c", os.devnull, "--junitxml", str(folder / "report.xml"), *arguments, str(folder)],
        env=ours | {"PYTEST_ADDOPTS": ""} | environ,
        capture_output=True, text=True, check=False, cwd=folder,
    )  # fmt: skip
    return done.stdout.strip().split("\n")[-1]


@pytest.mark.parametrize("arguments", sample([()], [("-n", "1")]))
def test_in_ci_every_skip_is_a_failure(tmp_path, arguments):
    last = run_suite(tmp_path, {"CI": "true"}, *arguments)
    assert "skipped" not in last
    assert "xfailed" not in last
    assert "error" in last or "4 failed" in last


def test_elsewhere_it_is_one_and_the_report_of_the_run_is_refused(tmp_path):
    assert run_suite(tmp_path, {"CI": ""}).count("skipped") == 1
    found = complaints((tmp_path / "report.xml").read_text())
    assert len(found) == 4
    assert [line for line in found if "test_skips_itself: no" in line]
    assert complaints("<testsuites><testsuite/></testsuites>") == ["no test was run"]
    passing = "<testsuite><testcase classname='a' name='b'/></testsuite>"
    assert complaints(passing) == []
