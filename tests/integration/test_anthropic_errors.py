"""Everything that can go wrong on the way to a service becomes one of our errors."""

from __future__ import annotations

import inspect

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from pydantic import SecretStr

from bot.agent.models import Request
from bot.agent.models.anthropic import AnthropicModel
from bot.agent.models.anthropic_failures import event_error, model_error
from bot.agent.models.connection import Refused
from bot.agent.models.openai import OpenAIModel
from bot.agent.models.openai_failures import model_error as of_completions
from bot.agent.models.service import ServiceModel
from bot.config import ServiceConfig
from bot.errors import (
    ModelAuth,
    ModelBadReply,
    ModelBilling,
    ModelError,
    ModelOverloaded,
    ModelRateLimited,
    ModelRejected,
    ModelTimeout,
    ModelTooLarge,
    ModelUnreachable,
)
from bot.messages import Message, Text
from tests.fakes.text_store import TextStoreInMemory

SECRET = "sk-ant-not-to-be-shown"
BOTH = (model_error, of_completions)


def transport_errors() -> list[type[Exception]]:
    """What aiohttp raises; warnings and what servers raise are none of a client's."""
    found = {cls for _, cls in inspect.getmembers(aiohttp, inspect.isclass)}
    return sorted((cls for cls in found if issubclass(cls, aiohttp.ClientError)), key=str)


@pytest.mark.parametrize("mapped_by", BOTH)
def test_every_transport_error_is_one_of_ours(mapped_by):
    assert len(transport_errors()) > 20
    for cls in transport_errors():
        error = cls.__new__(cls, SECRET)
        Exception.__init__(error, SECRET)
        mapped = mapped_by(error)
        assert type(mapped) in {ModelTimeout, ModelUnreachable}, cls
        assert SECRET not in str(mapped)


@pytest.mark.parametrize("mapped_by", BOTH)
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (aiohttp.SocketTimeoutError(SECRET), ModelTimeout),
        (aiohttp.ConnectionTimeoutError(SECRET), ModelTimeout),
        (TimeoutError(SECRET), ModelTimeout),
        (aiohttp.ClientPayloadError(SECRET), ModelUnreachable),
        (aiohttp.ServerDisconnectedError(SECRET), ModelUnreachable),
        (ConnectionResetError(SECRET), ModelUnreachable),
        (ValueError(SECRET), ModelBadReply),
        (RuntimeError(SECRET), ModelError),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_the_particular_wins_over_the_general(mapped_by, error, kind):
    mapped = mapped_by(error)
    assert type(mapped) is kind
    assert SECRET not in str(mapped)


@pytest.mark.parametrize("mapped_by", BOTH)
def test_ours_stay_as_they_are(mapped_by):
    error = ModelRejected("there is nothing to answer")
    assert mapped_by(error) is error


@pytest.mark.parametrize("mapped_by", BOTH)
@pytest.mark.parametrize("body", [None, SECRET, [SECRET], {"error": SECRET}, {"error": [SECRET]}])
def test_a_refusal_in_whatever_words_quotes_none_of_them(mapped_by, body):
    refused = Refused(500, {}, body)
    assert type(mapped_by(refused)) is ModelOverloaded
    assert SECRET not in f"{mapped_by(refused)} {refused} {refused!r}"


@pytest.mark.parametrize(
    ("status", "kind", "code", "expected"),
    [
        (429, "rate_limit_error", None, ModelRateLimited),
        (429, "rate_limit_error", "enforced_spend_limit_reached", ModelBilling),
        (429, "rate_limit_error", "contract_spend_limit_reached", ModelBilling),
        (402, "billing_error", "linked_organization_billing_unavailable", ModelBilling),
        (403, "permission_error", None, ModelAuth),
        (413, None, None, ModelTooLarge),
        (500, None, None, ModelOverloaded),
        (599, None, None, ModelOverloaded),
        (422, "invalid_request_error", None, ModelRejected),
        (302, None, None, ModelRejected),
    ],
)
def test_codes_say_more_than_kinds_and_kinds_more_than_statuses(
    status: int, kind: str | None, code: str | None, expected: type[ModelError]
):
    body = {"error": {"type": kind, "message": "", "details": {"error_code": code}}}
    assert type(model_error(Refused(status, {}, body))) is expected


@pytest.mark.parametrize("event", [{}, {"error": None}, {"error": "words"}, {"error": {"type": 5}}])
def test_an_odd_error_event_is_an_error_still(event: dict[str, object]):
    assert isinstance(event_error(event), ModelError)


@pytest.mark.parametrize("kind", [AnthropicModel, OpenAIModel])
async def test_no_answer_leads_what_is_asked_anywhere_else(kind: type[ServiceModel]):
    asked: list[str] = []

    async def elsewhere(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.json_response({})

    there = web.Application()
    there.router.add_route("*", "/{path:.*}", elsewhere)
    async with TestServer(there) as other:

        async def moved(request: web.Request) -> web.Response:
            raise web.HTTPTemporaryRedirect(other.make_url(request.path))

        here = web.Application()
        here.router.add_route("*", "/{path:.*}", moved)
        async with TestServer(here) as server:
            config = ServiceConfig(base_url=str(server.make_url("/")), api_key=SecretStr(SECRET))
            model = kind(config, window_store=TextStoreInMemory())
            said = Request("m", "", (Message("user", (Text("hello"),)),))
            with pytest.raises(ModelRejected, match="status 307"):
                await anext(aiter(model.stream(said)))
            with pytest.raises(ModelRejected, match="status 307"):
                await model.fetch_names()
            await model.close()
    assert asked == []
