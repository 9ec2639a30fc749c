"""A model behind the Messages API that answers at once: a short reply, in small pieces or whole.

It ends each reply with the mark of the message it answers, so that every reply can be told from
every other; aimock, which is fast enough too (1,450 requests a second beside 1,900), has no way to
do that. Run it with `python -m bench.model_server`; it prints its address. With an argument it
thinks for so many seconds first.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
from functools import partial
from typing import Any

import uvloop
from aiohttp import web

ANSWER = (
    "Happy to help. **Short answer:** yes, that works, and it needs nothing special. "
    "Start with the first step, look at what it prints, and tell me if anything surprises you."
)
PIECE = 12  # characters of one delta; about what the real service sends
_MARK = re.compile(rb"q\d+x\d+")
_STREAMED = re.compile(rb'"stream":\s*true')  # nobody's words: quotes in those are escaped


def event(data: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()


def delta(text: str) -> bytes:
    """The event of a piece of text."""
    words = {"type": "text_delta", "text": text}
    return event({"type": "content_block_delta", "index": 0, "delta": words})


MESSAGE: dict[str, Any] = {
    "id": "msg_bench",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-5-5",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 40, "output_tokens": 1},
}
WHOLE = MESSAGE | {
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 40, "output_tokens": 42},
}
OPENING = event({"type": "message_start", "message": MESSAGE}) + event(
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
)
DELTAS = tuple(delta(ANSWER[at : at + PIECE]) for at in range(0, len(ANSWER), PIECE))
CLOSING = (
    event({"type": "content_block_stop", "index": 0})
    + event(
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 42},
        }
    )
    + event({"type": "message_stop"})
)
HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
MODEL = {
    "id": "claude-sonnet-5-5",
    "type": "model",
    "display_name": "Claude Sonnet 5.5",
    "created_at": "2026-01-01T00:00:00Z",
    "max_input_tokens": 200_000,
    "max_tokens": 64_000,
}


async def answer(request: web.BaseRequest, thinks: float = 0.0) -> web.StreamResponse:
    """Answer a message, with the mark of the newest one in it; or describe the model."""
    if request.method == "GET":
        return web.json_response(MODEL)
    asked = await request.read()
    marks = _MARK.findall(asked)
    mark = f" ({marks[-1].decode() if marks else '?'})"
    if thinks:
        await asyncio.sleep(thinks)
    if not _STREAMED.search(asked):
        return web.json_response({**WHOLE, "content": [{"type": "text", "text": ANSWER + mark}]})
    response = web.StreamResponse(headers=HEADERS)
    response.enable_chunked_encoding()
    await response.prepare(request)
    await response.write(OPENING)
    for piece in DELTAS:
        await response.write(piece)
    await response.write(delta(mark))
    await response.write(CLOSING)
    await response.write_eof()
    return response


async def serve(thinks: float) -> None:
    """Serve on a free port of this machine until the process is ended."""
    handle = partial(answer, thinks=thinks)
    runner = web.ServerRunner(web.Server(handle, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    host, port = runner.addresses[0][:2]
    print(f"http://{host}:{port}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(serve(float(sys.argv[1]) if len(sys.argv) > 1 else 0.0))
