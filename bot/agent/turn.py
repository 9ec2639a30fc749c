"""One turn: stream a reply, run the tools it asks for, stream on, until it is finished.

A turn only thinks: it writes nothing but what tools write. Whoever runs it commits the result.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import structlog

from bot.agent.models import Reply, Request, StopReason, TextDelta, ToolSpec, Usage, Writer
from bot.agent.models.speed import time_limit
from bot.agent.tools import DecidedCall, ToolContext
from bot.agent.tools.toolbox import Toolbox
from bot.config import OFFLINE, Thinking
from bot.context import tokens
from bot.context.history import message_of, repaired, size_of, storable
from bot.context.tokens import Folding
from bot.errors import ModelBadReply, ModelContextFull, ModelError, ModelRefused, ModelTimeout
from bot.i18n import text
from bot.memory.notes import Place, listed
from bot.messages import Asked, Message, Text, ToolResult, ToolUse
from bot.sessions import store
from bot.sessions.approvals import Question
from bot.storage import Transaction
from bot.unicode import well_formed

if TYPE_CHECKING:  # it imports the models, one of which imports this
    from bot.agent.model_limits import ModelLimits


@dataclass(eq=False)
class Meter:
    """Adds up what calls use, by model, also of those that end in the middle.

    A service says at the end of a call what it used, some also when it begins. Where one ended
    before that was said, or never says it, what was sent and written counts as it is weighed here:
    it is charged. Work that somebody pays for has a `BillingAccount` (`bot.money`), which asks
    before each call; this one lets every call be made.
    """

    used: dict[str, Usage] = field(default_factory=dict[str, Usage])
    noted: str = ""  # the key of `meta` for what is noted of it while it runs
    _asked: str = ""
    _told: Usage = field(default_factory=Usage)

    @property
    def usage(self) -> Usage:
        """All of it together."""
        return sum(self.used.values(), Usage())

    def add(self, used: Mapping[str, Usage]) -> None:
        """Add what was used elsewhere."""
        self.used = added(self.used, used)

    @asynccontextmanager
    async def call(self, model: str, sent: int, most: int) -> AsyncGenerator[None]:
        """Make one call of a model, by its full name, within an `async with`.

        About `sent` tokens are read for it, and at most `most` written.

        Raises:
            LimitReached: nothing is left to pay for it.
        """
        self.asks(model)
        yield

    async def stream(
        self, model: Writer, request: Request, weigh: Callable[[], int], name: str = ""
    ) -> AsyncGenerator[TextDelta | Reply]:
        """Stream a model's reply; every call of the program is made here.

        `weigh` says how many tokens were written so far, `name` is the model's full name where the
        request has another.

        Raises:
            LimitReached: nothing is left to pay for it.
            ModelError: as in `Writer.stream`.
        """
        is_whole = False
        async with self.call(name or request.model, request.tokens, request.max_tokens):
            try:
                async with aclosing(model.stream(request)) as events:
                    async for event in events:
                        if isinstance(event, Reply):
                            is_whole = True
                            self.replied(event, Usage(request.tokens, weigh()))
                        yield event
            except BaseException as error:
                if not is_whole:
                    self.broke_off(error, sent=request.tokens, written=weigh())
                raise

    async def ask(self, model: Writer, request: Request) -> Reply:
        """The whole reply to a request that no person sees; it counts, also when it fails.

        Raises:
            ModelError: the model cannot, refuses, or has no room for it.
        """
        said = (message.text for message in request.messages)
        sent = tokens.estimate(request.system) + sum(map(tokens.estimate, said))
        heard = replace(request, on_usage=self.hear, on_asked=self.asks, tokens=sent)
        reply: Reply | None = None
        written: list[str] = []
        whole = self.stream(model, heard, lambda: tokens.estimate("".join(written)))
        async with aclosing(whole) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    written.append(event.text)
                else:
                    reply = event
        if reply is None:
            raise ModelBadReply
        if reply.stop == "context_full":
            raise ModelContextFull
        if reply.stop == "refusal":
            raise ModelRefused
        return reply

    def asks(self, model: str) -> None:
        """A call of this model begins, or, empty, of the same once more."""
        self._asked, self._told = model or self._asked, Usage()

    def hear(self, usage: Usage) -> None:
        """The service says this of the call that runs; the last word counts."""
        self._told = usage

    def replied(self, reply: Reply, weighed: Usage = Usage()) -> None:  # noqa: B008 - it is frozen
        """The call came to its end; a reply says itself whose it is, where several could answer.

        What is `weighed` counts if its service does not say what it used.
        """
        self._told = Usage()
        model = reply.model or self._asked
        is_told = reply.usage != Usage() or model == OFFLINE
        self.add({model: reply.usage if is_told else weighed})

    def broke_off(self, error: BaseException, *, sent: int, written: int) -> None:
        """The call ended in the middle, after about so many tokens.

        What fails before the first word is not charged; what is stopped before it is.
        """
        told, self._told = self._told, Usage()
        if isinstance(error, Exception) and not written:
            return
        begun = told if told.context_tokens else Usage(input_tokens=sent)
        self.add({self._asked: replace(begun, output_tokens=max(begun.output_tokens, written))})


def added(first: Mapping[str, Usage], second: Mapping[str, Usage]) -> dict[str, Usage]:
    """The sum of both, by model."""
    models = dict.fromkeys((*first, *second))
    return {each: first.get(each, Usage()) + second.get(each, Usage()) for each in models}


# --- when a model chooses to say nothing ---------------------------------------------------------

TOKENS = ("NO_REPLY", "[SILENT]", "HEARTBEAT_OK")

_MARKUP = "*`\"'“”‘’"  # that may stand around a token
# A token as a word of its own, no name that begins like one and no link.
_NAMES = rf"[{_MARKUP}]*(?:(?:NO_REPLY|HEARTBEAT_OK)(?![A-Za-z0-9_])|\[SILENT\](?!\())[{_MARKUP}]*"
# With what sets it apart from what follows, or ends its sentence.
_TOKEN = re.compile(rf"\s*{_NAMES}[ \t]*[.,:;!…—–-]*\s*", re.IGNORECASE)
# As a word of its own, or marked on both sides where it stands right behind another.
_LAST_TOKEN = re.compile(
    rf"(?:^|(?<=[^A-Za-z0-9_])|(?=(?P<mark>[{_MARKUP}]+)[\[A-Z_\]]+(?P=mark))){_NAMES}"
    rf"[.,:;!…]*[{_MARKUP}]*$",
    re.IGNORECASE,
)
_BEGUN = "|".join(re.escape(each[:end]) for each in TOKENS for end in range(1, len(each)))
_OPEN_TOKEN = re.compile(
    rf"(?:[{_MARKUP}]+(?:{_BEGUN})?|(?:^|(?<=[^A-Za-z0-9_]))(?:{_BEGUN}))$", re.IGNORECASE
)
_LONGEST = 40  # characters of the longest token with what stands around it


def spoken(reply: str) -> str:
    """The reply without silent tokens at its two ends; as it is when there are none."""
    begin = 0
    while found := _TOKEN.match(reply, begin):
        begin = found.end()
    words = reply[begin:]
    while found := _LAST_TOKEN.search((bare := words.rstrip())[-_LONGEST:]):
        words = bare[: len(bare) - len(found[0])].rstrip()
    return words


def is_silent(reply: str) -> bool:
    """True when silent tokens are the whole reply, in whatever case."""
    return bool(reply.strip()) and not spoken(reply).strip()


def may_become_silent(written: str) -> bool:
    """True when nothing of what is written so far may be shown.

    All of it, or of what follows a token, is nothing yet or the beginning of a token.
    """
    so_far = spoken(written).lstrip().lstrip(_MARKUP).upper()
    return any(token.startswith(so_far.rstrip()) for token in TOKENS)


def _sure(written: str) -> str:
    """The part of an unfinished reply that can be shown: no token, nor the beginning of one."""
    words = spoken(written)
    begun = _OPEN_TOKEN.search(words[-_LONGEST:])
    return words[: len(words) - len(begun[0])] if begun else words


# --- what confirms that something was stored -----------------------------------------------------

_TICK = "[✓✔✅☑🗸]\ufe0f?"
_TICKED = re.compile(_TICK)
_LEADING = re.compile(rf"^(?P<indent>\s*+)(?:{_TICK}\s*+)+")
_TRAILING = re.compile(r"\s*+(?:\ufe0f?[✓✔✅☑🗸]\s*+)+")  # of a line that is read backwards
_CLAIM = re.compile(
    r"\b(?:stored?|noted?|saved?|remember(?:ed)?|kept|recorded|memory|memori[sz]ed)\b"
    r"|[记存]|保存|\.md\b",
    re.IGNORECASE,
)


def without_confirmations(reply: str) -> str:
    """A reply without the confirmations (✓) that a model made up.

    A list of several ticked lines is left alone, but for those that claim to have stored something.
    """
    if not _TICKED.search(reply):
        return reply.strip()
    lines = reply.split("\n")
    listed = sum(bool(_LEADING.match(line)) for line in lines) > 1
    kept = [
        line if listed and not _CLAIM.search(line) else _LEADING.sub(r"\g<indent>", line)
        for line in lines
    ]
    if not listed:
        kept = [_unticked(line) for line in kept]
    return "\n".join(kept).strip()


def _unticked(line: str) -> str:
    found = _TRAILING.match(line[::-1])
    return line if found is None else line[: len(line) - found.end()]


def confirmation(language: str, written: Sequence[Place]) -> str:
    """The line that confirms what was written, with where it stands; empty for nothing."""
    if not written:
        return ""
    return text(language, "memory.stored", places=listed(written))


log = structlog.get_logger(__name__)

CUT_RESULT = 500  # characters a result keeps when a turn's own results leave no room

_LAST_WORD = (
    "[the program: no more tools can be used for this. Answer the person now with what you have, "
    "and say what is missing.]"
)

OnText = Callable[[str], None]
OnThought = Callable[[str], None]
OnTool = Callable[[ToolUse, ToolResult | None], None]
OnContext = Callable[[int], None]

_SAY_IT = (
    "[the program: your last reply held only reasoning, which nobody sees. "
    "Write the answer itself now.]"
)

_FAILURES: Mapping[StopReason, type[ModelError]] = {
    "refusal": ModelRefused,
    "context_full": ModelContextFull,
}


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """Input of a turn.

    Attributes:
        limits: the model, and how much of its window may be used.
        system: the system prompt.
        history: the messages before the person's new ones.
        messages: the person's new messages.
        context: whom the tools work for.
        language: the person's ("en", "zh").
        max_steps: replies that may call tools.
        timeout: seconds for all of it.
        tools: the tools that are offered.
        used: tokens of everything before `messages`.
        cite: files may be named.
        on_context: hears how full the window is after each step.
        decided: calls that the messages decide about; they are carried out first.
        thinking: what the person chose.
        folding: that of the history.
        unasked: nobody waits for it (a room, a task): a reply with a silent token is not sent.
    """

    limits: ModelLimits
    system: str
    history: tuple[Message, ...]
    messages: tuple[Message, ...]
    context: ToolContext
    language: str
    max_steps: int
    timeout: float  # seconds
    tools: tuple[ToolSpec, ...] = ()
    used: int = 0
    cite: bool = True
    on_context: OnContext | None = None
    decided: tuple[DecidedCall, ...] = ()
    thinking: Thinking = ""
    folding: Folding = field(default_factory=Folding, repr=False)
    unasked: bool = False


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The result of a turn.

    Attributes:
        messages: the person's messages and what followed, for the transcript.
        reply: the words that the person reads; partial when `stopped`.
        stop: why the last reply ended.
        used: usage by model.
        context_tokens: tokens in the window by the last report, without thoughts that no later
            request has; 0 without a plausible report.
        stopped: somebody ended it.
        silent: the model chose to say nothing.
        exhausted: all steps went into tools, and the model said nothing in the end.
        was_cut: results were cut to make room.
        asked: the call that the person has to be asked about; it ended the turn.
        error: the failure of the model, after `messages`.
        model: the full name of the model that wrote the last reply, where several could have.
        left_out: parts of the request that a model did not take, as in `Reply`.
        only_thought: there is no reply because the model only thought.
    """

    messages: tuple[Message, ...]
    reply: str
    stop: StopReason = "end"
    used: Mapping[str, Usage] = field(default_factory=dict[str, Usage])
    context_tokens: int = 0
    stopped: bool = False
    silent: bool = False
    exhausted: bool = False
    was_cut: bool = False
    asked: ToolUse | None = None
    error: ModelError | None = None
    model: str = ""
    left_out: tuple[str, ...] = ()
    only_thought: bool = False

    @property
    def usage(self) -> Usage:
        """The usage of all models together."""
        return sum(self.used.values(), Usage())


def _nobody(*_: object) -> None:
    """Hears what nobody else wants to."""


@dataclass(eq=False, slots=True)
class Turn:
    """A turn in progress: `run` it, and `stop` it meanwhile if need be.

    `meter` adds up what it uses, also should it never come to an end. `on_thought` hears what the
    model thinks, as far as it has come; empty when that is over. `on_tool` hears of each call
    before it is run and, with what came of it, after.
    """

    request: TurnRequest
    toolbox: Toolbox
    on_text: OnText = _nobody
    meter: Meter = field(default_factory=Meter)
    on_thought: OnThought = _nobody
    on_tool: OnTool = _nobody
    _messages: list[Message] = field(default_factory=list[Message], init=False)
    # The same, with results cut that left no room.
    _shown: list[Message] = field(default_factory=list[Message], init=False)
    _said: list[str] = field(default_factory=list[str], init=False)  # texts of finished replies
    _writing: str = field(default="", init=False)  # the reply being written …
    _partial: str = field(default="", init=False)  # … as far as it may be shown
    _thinking: str = field(default="", init=False)  # what was thought on the way to it
    # By the whole turn, without what goes back to the model.
    _thought_tokens: int = field(default=0, init=False)
    _only_thought: bool = field(default=False, init=False)
    _context_tokens: int = field(default=0, init=False)
    _model: str = field(default="", init=False)
    _left_out: dict[str, None] = field(default_factory=dict[str, None], init=False)
    _used: int = field(default=0, init=False)
    _silent: bool = field(default=False, init=False)
    _exhausted: bool = field(default=False, init=False)
    _asked: ToolUse | None = field(default=None, init=False)
    _limit: asyncio.Timeout | None = field(default=None, init=False)
    _stopped: bool = field(default=False, init=False)

    async def run(self) -> TurnResult:
        """Run it to its end; whatever goes wrong is told in the result."""
        messages = self.request.messages
        self._messages, self._shown = [*messages], [*messages]
        self._used = self.request.used + self._weight(messages)
        if self._stopped:
            return self._result(stopped=True)
        try:
            async with time_limit(self.request.timeout) as self._limit:
                stop = await self._steps()
        except TimeoutError:
            if not self._stopped:
                return self._result(error=ModelTimeout())
            stop = "end"
        except ModelError as exc:
            return self._result(error=exc)
        except Exception:
            # A mistake of ours: told and kept like any other failure, or it would be tried forever.
            log.exception("turn.failed")
            return self._result(error=ModelError())
        finally:
            self._limit = None
            self._forget_thoughts()
        if self._stopped:  # perhaps it was over before its limit could stop it
            return self._result(stopped=True)
        failure = _FAILURES.get(stop)
        return self._result(stop=stop) if failure is None else self._result(error=failure())

    def stop(self) -> None:
        """End as soon as possible; the result keeps what was written so far."""
        self._stopped = True
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(0)  # its time is over

    async def _steps(self) -> StopReason:
        asked = self.request
        for call in asked.decided:
            self._add(Message("assistant", (call.use,)))
            self._add_results([await self._called(call.use, call)])
        for _ in range(asked.max_steps):
            reply = await self._reply()
            if self._only_thought and reply.stop == "end":
                reply = await self._reply(_SAY_IT)
            if reply.stop == "tool_use":
                uses = [block for block in reply.message.blocks if isinstance(block, ToolUse)]
                self._add_results([await self._called(use) for use in uses])
                if self._asked is not None:
                    return "end"
            elif reply.stop != "paused":
                return reply.stop
        log.warning("turn.too_many_steps", steps=asked.max_steps)
        reply = await self._reply(_LAST_WORD, may_call=False)
        self._exhausted = not reply.message.text.strip()
        return "end" if reply.stop in {"tool_use", "paused"} else reply.stop

    async def _called(self, use: ToolUse, decided: DecidedCall | None = None) -> ToolResult:
        """Run one call, or note that it is the one to ask the person about."""
        context = self.request.context
        self.on_tool(use, None)
        if decided is not None:
            result = await self.toolbox.carry_out(decided, context)
        else:
            result = await self.toolbox.run(use, context, may_ask=self._asked is None)
        self.on_tool(use, result)
        if isinstance(result.value, Asked):
            self._asked = use
        return result

    def _add_results(self, results: Sequence[ToolResult]) -> None:
        self._add(storable(Message("user", tuple(results))))
        if self.request.on_context is not None:
            self.request.on_context(self._used)

    async def _reply(self, note: str = "", *, may_call: bool = True) -> Reply:
        """Ask for one reply, with a note behind all else, and take it up as it can be stored.

        Raises:
            ModelError: the model failed, or the request does not fit.
        """
        self._make_room()
        asked, limits, window = self.request, self.request.limits, self.request.context.window
        last_word = (Message("user", (Text(note, note=True),)),) if note else ()
        longest = limits.budget.output
        if self._used + longest > window:
            longest = min(longest, window - limits.budget.hard)  # what is kept free
        request = Request(
            model=limits.name,
            system=asked.system,
            messages=(*asked.history, *self._shown, *last_word),
            tools=asked.tools,
            max_tokens=longest,
            thinking=asked.thinking,
            language=asked.language,
            now=asked.context.now,
            begins=len(asked.history),
            cite=asked.cite,
            may_call=may_call,
            deadline=self._limit.when() if self._limit is not None else None,
            on_usage=self.meter.hear,
            on_asked=self._asks,
            on_thought=self._think,
            folding=asked.folding,
            tokens=self._used,
        )
        reply: Reply | None = None
        async with aclosing(self.meter.stream(limits.model, request, self._weigh)) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    self._write(event.text, anew=event.anew)
                else:
                    reply = event
        if reply is None:
            raise ModelBadReply
        thought = self._tokens(self._thinking)
        self._only_thought = bool(self._thinking.strip()) and not reply.message.text.strip()
        self._forget_thoughts()
        message = storable(reply.message)
        if not any(isinstance(block, ToolUse) for block in message.blocks):
            self._thought_tokens += thought
        else:
            self._only_thought = False
        if not may_call:  # whatever it calls now is not run
            words = tuple(b for b in message.blocks if not isinstance(b, ToolUse))
            message = replace(message, blocks=words)
        said = spoken(message.text)
        has_token = said.strip() != message.text.strip()
        self._silent = self._silent or (has_token and (asked.unasked or not said.strip()))
        self._said.append(said)
        self._writing = self._partial = ""
        if message.blocks:
            self._add(message)
        self._model = reply.model or self._model
        self._left_out |= dict.fromkeys(reply.left_out)
        reported, estimated = reply.usage.context_tokens, self._used + thought
        if not tokens.is_plausible(reported, estimated):
            name = self._model or limits.name
            log.warning("usage.not_believed", model=name, reported=reported, estimated=estimated)
            reported = 0
        self._context_tokens = reported
        self._used = reported or self._used
        return replace(reply, message=message)

    def _asks(self, model: str) -> None:
        """The request goes out, perhaps once more: what was thought for nothing is paid for too."""
        if self._thinking:
            self.meter.broke_off(ModelBadReply(), sent=self._used, written=self._weigh())
            self._forget_thoughts()
        self.meter.asks(model)

    def _weigh(self) -> int:
        return self._tokens(self._thinking) + self._tokens(self._writing)

    def _think(self, words: str) -> None:
        self._thinking += words
        self.on_thought(self._thinking)

    def _forget_thoughts(self) -> None:
        if self._thinking:
            self.on_thought("")
        self._thinking = ""

    def _write(self, words: str, *, anew: bool = False) -> None:
        """More words came, or the first: show them, unless they may still become silence."""
        if anew:  # all that came before was a thought, and was told as one
            self._writing = self._partial = ""
        if self._thinking and not self._writing:
            self.on_thought("")
        self._writing += words
        if self.request.unasked and _TOKEN.match(self._writing):
            return
        shown = well_formed(_sure(self._writing))
        if not (self._partial or anew) and may_become_silent(shown):
            return
        self._partial = shown
        self.on_text(self._text())

    def _add(self, message: Message) -> None:
        self._messages.append(message)
        self._shown.append(message)
        self._used += self._weight((message,))

    def _tokens(self, words: str) -> int:
        limits = self.request.limits
        return round(limits.count(words) * limits.factor)

    def _weight(self, messages: Sequence[Message]) -> int:
        limits = self.request.limits
        return round(sum(size_of(m, limits.count) for m in messages) * limits.factor)

    def _make_room(self) -> None:
        """Cut this turn's own results when the next request would not fit, oldest first.

        Raises:
            ModelContextFull: it would not fit without them either.
        """
        most = self.request.limits.budget.hard
        for index, message in enumerate(self._shown):
            if self._used <= most:
                return
            cut = _cut(message)
            self._used += self._weight((cut,)) - self._weight((message,))
            self._shown[index] = cut
        if self._used > most:
            raise ModelContextFull("the messages alone fill the window")

    def _text(self) -> str:
        """The reply so far, as the person reads it."""
        if self._silent and self.request.unasked:
            return ""
        parts = (part.strip() for part in (*self._said, self._partial))
        return "\n\n".join(part for part in parts if part)

    def _result(
        self, *, stop: StopReason = "end", stopped: bool = False, error: ModelError | None = None
    ) -> TurnResult:
        messages, reply = self._messages, self._text()
        if self._partial.strip():
            messages = [*messages, Message("assistant", (Text(self._partial),))]
        return TurnResult(
            messages=tuple(repaired(messages)),
            reply=reply,
            stop=stop,
            used=self.meter.used,
            context_tokens=max(0, self._context_tokens - self._thought_tokens),
            stopped=stopped,
            silent=self._silent and not reply,
            exhausted=self._exhausted,
            was_cut=self._shown != self._messages,
            asked=None if stopped or error is not None else self._asked,
            error=error,
            model=self._model,
            left_out=tuple(self._left_out),
            only_thought=self._only_thought and not reply,
        )


def _cut(message: Message) -> Message:
    """The message with long tool results cut short."""
    blocks = [
        replace(block, text=f"{block.text[:CUT_RESULT]}\n[… cut here to make room …]")
        if isinstance(block, ToolResult) and len(block.text) > CUT_RESULT
        else block
        for block in message.blocks
    ]
    return Message(message.role, tuple(blocks))


def call_of(tx: Transaction, question: Question) -> ToolUse | None:
    """The call that a question is about; None when it was forgotten, or is too old to be there."""
    entry = store.entry(tx, question.entry)
    if entry is None:
        return None
    (seen,) = store.veiled(tx, question.session_id, [entry])
    use, left = (_call_in(message_of(each), question.call) for each in (entry, seen))
    return use if use == left else None  # what is left of one that was forgotten is another call


def _call_in(message: Message, id_: str) -> ToolUse | None:
    return next((b for b in message.blocks if isinstance(b, ToolUse) and b.id == id_), None)
