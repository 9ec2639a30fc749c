"""What every embedder must do, and what the remote one makes of a server's faults."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from bot.config import EmbedderConfig
from bot.errors import EmbedderError
from bot.memory import embed
from bot.memory.embed import Embedder, NoEmbedder, TextsRefused, remote
from bot.memory.embed.multilingual import MultilingualEmbedder
from bot.memory.embed.remote import RemoteEmbedder
from bot.testing import HashEmbedder
from tests.fakes import embeddings_api
from tests.fakes.embeddings_api import EmbeddingsApi, body, status
from tests.odd import JSON

KEY = "sk-canary-of-the-key"
TEXTS = ["my daughter is allergic to peanuts", "女儿对花生过敏", "the car has new brakes"]


class Pauses:
    """A clock that stands still, and sleeping that takes no time and is noted."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.now = 1_000.0

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def __call__(self) -> float:
        return self.now


def remote_of(api: EmbeddingsApi, pauses: Pauses | None = None, **options: Any) -> RemoteEmbedder:
    config = {"provider": "openai", "model": "m", "base_url": api.base_url, **options}
    seams = pauses or Pauses()
    return RemoteEmbedder(EmbedderConfig.model_validate(config), now=seams, sleep=seams.sleep)


@asynccontextmanager
async def asked(
    *answers: embeddings_api.Answer, **options: Any
) -> AsyncGenerator[tuple[EmbeddingsApi, RemoteEmbedder, Pauses]]:
    """A server that gives these answers, an embedder that asks it, and when that pauses."""
    async with embeddings_api.running(*answers) as api:
        embedder = remote_of(api, pauses := Pauses(), **options)
        yield api, embedder, pauses
        await embedder.close()


@asynccontextmanager
async def _multilingual(folder: Path) -> AsyncGenerator[Embedder]:
    yield MultilingualEmbedder(folder)


@asynccontextmanager
async def _hash(_: Path) -> AsyncGenerator[Embedder]:
    yield HashEmbedder()


@asynccontextmanager
async def _remote(_: Path) -> AsyncGenerator[Embedder]:
    async with embeddings_api.running() as api:
        yield remote_of(api, batch=2)


@asynccontextmanager
async def _remote_backwards(_: Path) -> AsyncGenerator[Embedder]:
    async with embeddings_api.running(embeddings_api.backwards) as api:
        yield remote_of(api, api_key=KEY)


_MAKERS = {
    "multilingual": _multilingual,
    "hash": _hash,
    "remote": _remote,
    "backwards": _remote_backwards,
}


@pytest.fixture(params=_MAKERS)
async def embedder(request, embedder_cache):
    making: AbstractAsyncContextManager[Embedder] = _MAKERS[request.param](embedder_cache)
    async with making as made:
        yield made
        await made.close()


# --- every embedder ------------------------------------------------------------------------------


async def test_each_text_gets_a_vector_of_length_one_in_its_place(embedder):
    rows = await embedder.embed(TEXTS)
    assert rows.dtype == np.float32
    assert rows.shape == (3, embedder.dims)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-3)
    for text, row in zip(TEXTS, rows, strict=True):
        assert np.allclose((await embedder.embed([text]))[0], row, atol=1e-5)
    assert np.allclose(await embedder.embed(TEXTS[::-1]), rows[::-1], atol=1e-5)


async def test_texts_that_are_asked_for_at_once_get_what_each_gets_alone(embedder):
    texts = [f"word{number} and number {number * 7}" for number in range(40)]
    together = await asyncio.gather(*(embedder.embed([text]) for text in texts))
    for text, rows in zip(texts, together, strict=True):
        assert np.allclose(await embedder.embed([text]), rows, atol=1e-5)


async def test_a_failure_is_told_to_everyone_who_asked(tmp_path):
    embedder = MultilingualEmbedder(tmp_path, tmp_path / "no package")
    asked = (embedder.embed([text]) for text in TEXTS)
    told = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(each) for each in told] == [EmbedderError] * len(TEXTS)
    await embedder.close()


async def test_hundreds_of_texts_keep_their_order(embedder):
    texts = [f"word{number} and number {number * 7}" for number in range(300)]
    rows = await embedder.embed(texts)
    assert len(rows) == 300
    for at in (0, 1, 63, 64, 65, 255, 256, 299):
        assert np.allclose((await embedder.embed([texts[at]]))[0], rows[at], atol=1e-5)


async def test_no_texts_are_no_vectors(embedder):
    assert len(await embedder.embed([])) == 0
    await embedder.embed(TEXTS)
    assert (await embedder.embed([])).shape == (0, embedder.dims)


async def test_texts_without_words_get_a_vector_that_is_no_nan(embedder):
    texts = ["", " \n", "\u200b\u200d", "\x00", "。", "🙂", "ends", "e\u0301\u202e"]
    rows = await embedder.embed(texts)
    assert rows.shape == (len(texts), embedder.dims)
    assert np.isfinite(rows).all()
    lengths = np.linalg.norm(rows, axis=1)
    assert all(abs(length - 1) < 1e-3 or length == 0 for length in lengths)
    assert lengths[6] > 0.9


async def test_a_huge_text_gets_one_vector(embedder):
    rows = await embedder.embed(["many words here " * 60_000, "short"])
    assert rows.shape == (2, embedder.dims)
    assert np.isfinite(rows).all()


async def test_calls_at_once_get_their_own_answers(embedder):
    alone = await embedder.embed(TEXTS)
    answers = await asyncio.gather(*(embedder.embed([text]) for text in TEXTS * 5))
    for at, rows in enumerate(answers):
        assert np.allclose(rows[0], alone[at % 3], atol=1e-5)


async def test_who_it_is_says_nothing_secret_and_stays(embedder):
    before = embed.identity(embedder)
    await embedder.embed(TEXTS)
    assert embed.identity(embedder) == before
    assert KEY not in repr(before)
    assert before.provider
    assert before.model


async def test_closing_twice_is_harmless(embedder):
    await embedder.embed(TEXTS)
    await embedder.close()
    await embedder.close()


# --- those without a server ----------------------------------------------------------------------


async def test_no_embedder_refuses_and_has_no_dimensions():
    none = NoEmbedder()
    for texts in ([], TEXTS):
        with pytest.raises(EmbedderError, match="vectors are turned off"):
            await none.embed(texts)
    assert (none.provider, none.dims) == ("none", 0)
    await none.close()
    await none.close()


async def test_where_its_package_is_missing_search_goes_by_words_and_says_why(
    monkeypatch, tmp_path
):
    config = EmbedderConfig()
    assert embed.missing(config) == ""
    assert embed.make(config, tmp_path).provider == "multilingual"
    monkeypatch.setattr(embed, "PACKAGE", "not_here")
    none = embed.make(config, tmp_path)
    assert none.provider == "none"
    with pytest.raises(EmbedderError, match="not_here is not installed"):
        await none.embed(TEXTS)
    elsewhere = EmbedderConfig(provider="openai", model="m")
    assert embed.missing(elsewhere) == ""
    assert embed.make(elsewhere, tmp_path).provider == "openai"


@pytest.mark.parametrize(
    ("provider", "kind"),
    [("multilingual", MultilingualEmbedder), ("openai", RemoteEmbedder), ("none", NoEmbedder)],
)
def test_the_configuration_chooses(provider, kind, tmp_path):
    made = embed.make(EmbedderConfig(provider=provider, model="m"), tmp_path)
    assert isinstance(made, kind)
    assert made.provider == provider


async def test_shared_words_make_texts_alike_to_the_double():
    rows = await HashEmbedder().embed(["peanuts and tea", "tea and peanuts", "a car"])
    assert rows[0] @ rows[1] > 0.99
    assert abs(rows[0] @ rows[2]) < 0.6


# --- the remote one ------------------------------------------------------------------------------


async def test_texts_go_out_in_batches_with_the_model_and_the_key():
    async with asked(batch=2, api_key=KEY) as (api, embedder, _):
        await embedder.embed([*TEXTS, "four", "five"])
        assert api.inputs == [TEXTS[:2], [TEXTS[2], "four"], ["five"]]
        assert {each["model"] for each in api.bodies} == {"m"}
        assert {each["Authorization"] for each in api.headers} == {f"Bearer {KEY}"}


async def test_without_a_key_none_is_sent():
    async with asked() as (api, embedder, _):
        await embedder.embed(TEXTS)
        assert "Authorization" not in api.headers[0]


@pytest.mark.parametrize("code", [429, 500, 503])
async def test_what_may_pass_is_tried_three_times_with_longer_pauses(code):
    async with asked(status(code)) as (api, embedder, pauses):
        with pytest.raises(EmbedderError, match=f"answered {code}"):
            await embedder.embed(TEXTS)
        assert len(api.bodies) == 3
        first, second = pauses.slept
        assert 0.4 <= first <= 0.6
        assert 0.8 <= second <= 1.2


async def test_the_third_try_may_succeed_and_is_no_failure():
    good = embeddings_api.vectors
    async with asked(status(500), status(429), good) as (api, embedder, _):
        assert len(await embedder.embed(TEXTS)) == 3
        api.answers = [status(401), good]
        with pytest.raises(EmbedderError):
            await embedder.embed(TEXTS)
        assert len(await embedder.embed(TEXTS)) == 3  # one failure is no reason to leave it alone


@pytest.mark.parametrize("code", [301, 400, 401, 403, 404, 413])
async def test_what_does_not_pass_is_asked_once_and_told_without_the_key(code):
    async with asked(status(code, f"wrong key: {KEY}"), api_key=KEY) as (api, embedder, pauses):
        with capture_logs() as logs, pytest.raises(EmbedderError, match=str(code)) as caught:
            await embedder.embed(TEXTS)
        # What may be said of a text is asked once more with a word that every server takes.
        assert len(api.bodies) == 1 + (code in {400, 413})
        assert pauses.slept == []
        assert KEY not in f"{caught.value!r} {caught.value.__cause__!r} {logs}"


async def test_a_key_that_cannot_be_sent_is_named_and_not_shown():
    async with asked(api_key=f"{KEY}\r\nX: y") as (api, embedder, _):
        with pytest.raises(EmbedderError, match="is the key a single line") as caught:
            await embedder.embed(TEXTS)
        assert KEY not in str(caught.value)
        assert api.bodies == []


async def test_a_server_that_does_not_answer_is_not_waited_for_longer_than_the_timeout():
    async with asked(embeddings_api.never, timeout=0.05) as (api, embedder, pauses):
        with pytest.raises(EmbedderError, match="did not answer in time"):
            await embedder.embed(TEXTS)
        assert len(api.bodies) <= 1  # a slow machine may not even have asked
        assert pauses.slept == []


async def test_a_server_that_is_not_there_is_told():
    async with embeddings_api.running() as api:
        gone = api.base_url
    pauses = Pauses()
    embedder = remote_of(EmbeddingsApi(base_url=gone), pauses)
    with pytest.raises(EmbedderError, match="cannot be reached"):
        await embedder.embed(TEXTS)
    assert len(pauses.slept) == 2
    await embedder.close()


async def test_two_failures_in_a_row_leave_the_server_alone_until_one_success_forgets_them():
    async with asked(status(401)) as (api, embedder, pauses):

        async def fails(words: str) -> None:
            with pytest.raises(EmbedderError, match=words):
                await embedder.embed(TEXTS)

        await fails("answered 401")
        await fails("answered 401")
        await fails("left alone after 2 failures: the server answered 401")
        pauses.now += remote.LOCK_OUT - 1
        await fails("left alone after 2")
        assert len(api.bodies) == 2
        pauses.now += 1
        await fails("answered 401")  # asked once more, and left alone for twice as long
        pauses.now += 2 * remote.LOCK_OUT - 1
        await fails("left alone after 3")
        pauses.now += 1
        api.answers = []
        assert len(await embedder.embed(TEXTS)) == 3
        api.answers = [status(401)]
        await fails("answered 401")
        await fails("answered 401")
        assert len(api.bodies) == 6


async def test_being_left_alone_has_a_longest_time():
    async with asked(status(401)) as (_api, embedder, pauses):
        for _ in range(20):
            with pytest.raises(EmbedderError, match="answered 401"):
                await embedder.embed(TEXTS)
            pauses.now += remote.LONGEST_LOCK_OUT


def refusing(word: str, code: int = 400) -> embeddings_api.Answer:
    """A server that takes no request in which a word stands."""

    async def answer(api: EmbeddingsApi, request: web.Request) -> web.StreamResponse:
        if any(word in text for text in api.inputs[-1]):
            return web.Response(status=code)
        return await embeddings_api.vectors(api, request)

    return answer


@pytest.mark.parametrize("code", [400, 413, 422])
@pytest.mark.parametrize("bad", [{0}, {6}, {3, 4}, {1, 5, 6}])
async def test_a_batch_that_is_refused_is_halved_down_to_the_texts_that_are(code, bad):
    texts = [f"{'bad' if n in bad else 'good'} text {n}" for n in range(7)]
    async with asked(refusing("bad", code)) as (api, embedder, pauses):
        with pytest.raises(TextsRefused, match=f"answered {code}") as caught:
            await embedder.embed(texts)
        assert set(caught.value.refused) == bad
        assert caught.value.done == tuple(n for n in range(7) if n not in bad)
        good = [texts[n] for n in caught.value.done]
        assert np.allclose(caught.value.rows, await HashEmbedder().embed(good), atol=1e-6)
        assert len(api.bodies) <= 1 + 2 * len(bad) * 4
        assert pauses.slept == []
        for _ in range(3):  # that is no failure of the server
            assert len(await embedder.embed(good)) == len(good)


async def test_a_server_that_takes_fewer_at_once_than_it_is_asked_for_gives_all_of_them():
    async def few(api: EmbeddingsApi, request: web.Request) -> web.StreamResponse:
        if len(api.inputs[-1]) > 2:
            return web.Response(status=413)
        return await embeddings_api.vectors(api, request)

    async with asked(few) as (_api, embedder, _):
        texts = [f"text {n}" for n in range(9)]
        rows = await embedder.embed(texts)
        assert np.allclose(rows, await HashEmbedder().embed(texts), atol=1e-6)


async def test_what_was_made_before_a_failure_is_handed_over():
    good = embeddings_api.vectors
    async with asked(good, good, status(401), batch=2) as (_api, embedder, _):
        with pytest.raises(TextsRefused, match="answered 401") as caught:
            await embedder.embed([f"text {n}" for n in range(7)])
        assert caught.value.done == (0, 1, 2, 3)
        assert caught.value.refused == ()
        assert caught.value.rows.shape == (4, 64)


async def test_another_dimension_than_before_is_told_by_dims():
    async with asked() as (api, embedder, _):
        assert embedder.dims == 0
        assert (await embedder.embed(TEXTS)).shape == (3, 64)
        assert embedder.dims == 64
        api.embedder.dims = 24
        assert (await embedder.embed(TEXTS)).shape == (3, 24)
        assert embedder.dims == 24


async def test_batches_of_different_dimensions_are_refused():
    async def shrinking(api, request):
        answer = await embeddings_api.vectors(api, request)
        api.embedder.dims -= 1
        return answer

    async with asked(shrinking, batch=1) as (_api, embedder, _):
        with pytest.raises(EmbedderError, match="differ in length"):
            await embedder.embed(TEXTS)


def answer_of(*vectors: object) -> str:
    rows = [{"index": at, "embedding": vector} for at, vector in enumerate(vectors)]
    return json.dumps({"data": rows})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no json",
        "null",
        "[]",
        "{}",
        "7",
        '"data"',
        '{"data": null}',
        '{"data": {}}',
        '{"data": [1, 2, 3]}',
        '{"data": [null, null, null]}',
        '{"data": [{}, {}, {}]}',
        '{"error": {"message": "' + KEY + '"}}',
        "[" * 100_000,
        '{"data":' * 5_000 + "1" + "}" * 5_000,
        b"\xff\xfe\x00",
        answer_of([1.0, 2.0], [1.0, 2.0]),
        answer_of([1.0], [1.0], [1.0], [1.0]),
        answer_of([], [], []),
        answer_of([1.0], [1.0, 2.0], [1.0]),
        answer_of(["a", "b"], ["c", "d"], ["e", "f"]),
        answer_of([[1.0]], [[1.0]], [[1.0]]),
        answer_of("AAAA", "AAAA", "AAAA"),
        answer_of({"a": 1}, {"a": 1}, {"a": 1}),
        answer_of(1.0, 2.0, 3.0),
        answer_of(None, None, None),
        answer_of([float("nan")], [float("inf")], [1.0]),
        json.dumps({"data": [{"index": "x", "embedding": [1.0]}] * 3}),
        json.dumps({"data": [{"index": None, "embedding": [1.0]}] * 3}),
        '{"data": [{"index": 1e400, "embedding": [1.0]}]}',
        answer_of([10**400], [1], [1]),
    ],
    ids=lambda text: repr(text)[:30],
)
async def test_an_answer_that_holds_no_vectors_is_refused_in_words(text):
    async with asked(body(text)) as (_api, embedder, _):
        with pytest.raises(EmbedderError, match="the server's answer") as caught:
            await embedder.embed(TEXTS)
        assert KEY not in str(caught.value)
        assert embedder.dims == 0


async def test_an_answer_without_end_is_cut_off(monkeypatch):
    monkeypatch.setattr(remote, "MAX_ANSWER", 1_000)
    async with asked(body(" " * 100_000)) as (_api, embedder, _):
        with pytest.raises(EmbedderError, match="too long"):
            await embedder.embed(TEXTS)


@pytest.mark.parametrize(
    ("vector", "length"),
    [
        ([None, 1.0], 0.0),  # how servers in C++ write what is no number
        ([0.0, 0.0], 0.0),
        ([1e300, 1e300], 1.0),
        ([1e-300, 0.0], 1.0),
        ([-3, 4], 1.0),
        ([True, False], 1.0),
    ],
)
async def test_a_row_has_length_one_or_is_zeros_whatever_the_numbers(vector, length):
    async with asked(body(answer_of(vector, [3.0, 4.0]))) as (_api, embedder, _):
        rows = await embedder.embed(TEXTS[:2])
        assert np.linalg.norm(rows, axis=1).tolist() == pytest.approx([length, 1.0], abs=1e-6)
        assert rows[1].tolist() == pytest.approx([0.6, 0.8])


ITEM = st.fixed_dictionaries({"embedding": JSON}, optional={"index": JSON})


@given(st.fixed_dictionaries({"data": st.lists(ITEM, max_size=4) | JSON}) | JSON)
def test_any_json_is_vectors_or_a_refusal(data):
    try:
        rows = remote._rows(data, 2)
    except EmbedderError:
        return
    assert rows.shape[0] == 2
    assert np.isfinite(rows).all()


async def test_a_secret_never_stands_in_what_is_told():
    """Nor do the texts, which are somebody's notes."""
    async with asked(status(500, TEXTS[0]), api_key=KEY) as (_api, embedder, _):
        with capture_logs() as logs:
            for _ in range(3):
                with pytest.raises(EmbedderError) as caught:
                    await embedder.embed(TEXTS)
                assert not re.search(f"{KEY}|peanuts", str(caught.value))
        assert not re.search(f"{KEY}|peanuts", repr(logs))
