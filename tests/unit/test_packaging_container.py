"""The container files: valid by their schema, and as closed as they are said to be."""

from __future__ import annotations

import ast
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from bot import settings
from bot.errors import ConfigError
from bot.settings.variables import from_dotenv

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def service() -> Any:
    return services()["confidant"]


def services() -> Any:
    compose = YAML(typ="safe").load((ROOT / "docker-compose.yml").read_text("utf-8"))
    return compose["services"]


NODES = ["node-1", "node-2", "node-3"]


def test_without_the_profile_there_is_but_one_service():
    every = services()
    assert list(every) == ["confidant", *NODES, "postgres", "proxy"]
    assert "profiles" not in every["confidant"]
    assert all(every[name]["profiles"] == ["cluster"] for name in list(every)[1:])


def test_each_node_is_the_same_and_set_up_by_options_that_exist(service, tmp_path):
    nodes = [services()[name] for name in NODES]
    assert [node.pop("hostname") for node in nodes] == NODES
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
    assert environ["PGPASSWORD"] == "${POSTGRES_PASSWORD:-}"
    assert nodes[0]["build"]["args"] == {"REQUIREMENTS": "requirements-cluster.lock"}
    for kept in ("read_only", "cap_drop", "security_opt", "stop_grace_period", "init"):
        assert nodes[0][kept] == service[kept]
    assert nodes[0]["image"] != service["image"]


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


def test_the_database_gets_its_extension_by_a_statement_it_takes(empty_postgres_url):
    import psycopg

    sql = (ROOT / "config" / "cluster" / "extensions.sql").read_bytes()
    with psycopg.connect(empty_postgres_url) as connection:
        connection.execute(sql)
        found = connection.execute("SELECT 1 FROM pg_extension WHERE extname = 'vector'").fetchone()
    assert found == (1,)


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
        words = shlex.split(dict(dockerfile()[1])["ENV"])
        environ = dict(word.split("=", 1) for word in words if word.startswith("CONFIDANT_"))
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
    assert config.storage.folder == Path("/data")
    assert config.dashboard.port == 8420


def test_both_healthchecks_ask_healthz_in_python(service):
    stages = dockerfile()
    (check,) = [rest for name, rest in stages[-1] if name == "HEALTHCHECK"]
    for command in (
        ast.literal_eval(check.partition("CMD ")[2]),
        service["healthcheck"]["test"][1:],
    ):
        assert command[:2] == ["python", "-c"]
        assert "/healthz" in command[2]
        compile(command[2], "healthcheck", "exec")


def test_the_image_runs_as_nobody_in_particular_and_keeps_its_data_in_a_volume():
    build, final = dockerfile()
    instructions = dict(final)
    assert build[0][1].startswith("python:3.12-slim")
    assert instructions["FROM"] == "python:3.12-slim"
    assert instructions["USER"] == "10001:10001"
    assert instructions["VOLUME"] == "/data"
    assert instructions["ENTRYPOINT"] == '["confidant"]'
    environ = dict(part.split("=", 1) for part in shlex.split(instructions["ENV"]))
    assert environ["CONFIDANT_STORAGE__DIR"] == "/data"
    assert environ["CONFIDANT_DASHBOARD__HOST"] == "0.0.0.0"
    assert not [rest for name, rest in final if name in {"ADD", "ARG"} or "pip" in rest]


def test_the_image_is_built_from_hashes_and_from_files_that_exist():
    build, _ = dockerfile()
    runs = " ".join(rest for name, rest in build if name == "RUN")
    assert "--require-hashes -r ${REQUIREMENTS}" in runs
    assert [rest for name, rest in build if name == "ARG"] == ["REQUIREMENTS=requirements.lock"]
    ignored = (ROOT / ".dockerignore").read_text("utf-8").split()
    for name, rest in build:
        if name == "COPY":
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert f"!{source}" in ignored, source


def test_the_build_sees_neither_secrets_nor_data():
    lines = [
        line
        for line in (ROOT / ".dockerignore").read_text("utf-8").split("\n")
        if line and not line.startswith("#")
    ]
    assert lines[0] == "*"
    assert not [line for line in lines if line.startswith("!") and "env" in line]


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
