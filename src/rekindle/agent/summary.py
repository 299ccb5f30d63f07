"""Summarize messages in pieces that each fit the model's context."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rekindle.agent.model.client import Model
from rekindle.agent.model.context_meter import estimate_message
from rekindle.agent.tools.truncate import truncate_middle
from rekindle.errors import CompressionFailed, ContextTooLong, ModelError, ModelRequestRejected
from rekindle.knowledge.tokens import estimate_text_tokens
from rekindle.routing.speaker import format_speaker_mark
from rekindle.types import Message, Tokens

from .context_space import ContextSpace

SUMMARY_PROMPT = (
    "Summarize the conversation below for yourself, so that you can continue it without having seen"
    " it. Keep: the user's goals and preferences, decisions and their reasons, completed work,"
    " files, commands, names and values that are still needed, failures and their causes, and"
    " remaining tasks. Omit greetings and settled matters. Write plain text, at most {words} words."
)
_SO_FAR = "[Summary of what came before; write one summary of this and of what follows]"
_NEXT = "[The conversation goes on]"
_LEFT_OUT = "[A part that could not be summarized began with]"

_MAX_TEXT_CHARS, _MAX_RESULT_CHARS = 40_000, 4_000  # of one message in the request
_MAX_PIECES = 24
_MIN_PIECE_CHARS = 120
_EXCERPT_CHARS = 300
_LEAST_TOKENS = 24  # of a summary
_WORDS_PER_TOKEN = 0.6
_CHARS_PER_TOKEN = 3.5


class Summary(NamedTuple):
    """A summary and the tokens it took."""

    text: str
    tokens: Tokens = Tokens()


async def summarize_messages(
    model: Model, messages: Sequence[Message], space: ContextSpace, max_tokens: int
) -> Summary:
    """Return a summary of at most `max_tokens`; raise `CompressionFailed` if the model fails."""
    summarizer = _Summarizer(model, space, max_tokens)
    pieces = deque(summarizer.split_pieces(messages))
    most = max(map(len, pieces), default=0)
    while pieces:
        piece = pieces.popleft()
        try:
            if len(piece) <= most:
                await summarizer.add_piece(piece)
                continue
        except ContextTooLong as error:  # the context is smaller than we know
            is_shorter = summarizer.shorten()
            if len(piece) < 2 * _MIN_PIECE_CHARS and not is_shorter:
                raise summarizer.build_error(error) from error
            most = max(_MIN_PIECE_CHARS, (len(piece) + 1) // 2)
        pieces.extendleft((piece[most:], piece[:most]))
    return Summary(summarizer.text, summarizer.tokens)


class _Summarizer:
    """A summary that grows piece by piece and never gets longer than it may."""

    def __init__(self, model: Model, space: ContextSpace, max_tokens: int) -> None:
        self.text = ""
        self.tokens = Tokens()
        self._model = model
        self._space = space
        self._max_tokens = max_tokens
        words = max(20, int(max_tokens * _WORDS_PER_TOKEN))
        self._prompt = Message("system", SUMMARY_PROMPT.format(words=words))

    def split_pieces(self, messages: Sequence[Message]) -> Iterator[str]:
        """Yield the text of the messages in pieces that fit a request."""
        room = self._space.request_tokens - self._space.adapt(estimate_message(self._prompt))
        chars = int(room * _CHARS_PER_TOKEN / self._space.ratio)
        chars = max(_MIN_PIECE_CHARS, chars - len(_SO_FAR) - len(_NEXT))
        pending = ""
        for text in _format_messages(messages, chars):
            if pending and not self._is_short(f"{pending}\n\n{text}", room):
                yield pending
                pending = ""
            pending = f"{pending}\n\n{text}" if pending else text
            while not self._is_short(pending, room) and len(pending) > _MIN_PIECE_CHARS:
                size = self._find_cut(pending, chars, room)
                yield pending[:size]
                pending = pending[size:]
        if pending:
            yield pending

    def _is_short(self, text: str, room: int) -> bool:
        return self._space.adapt(estimate_text_tokens(text)) <= room

    def _find_cut(self, text: str, chars: int, room: int) -> int:
        """Return the length of the longest beginning that fits; scripts differ in bytes."""
        size = min(chars, len(text))
        while size > _MIN_PIECE_CHARS and not self._is_short(text[:size], room):
            size = max(_MIN_PIECE_CHARS, size // 2)
        return size

    async def add_piece(self, piece: str) -> None:
        """Add a piece to the summary; keep its beginning if the model has nothing to say about it."""
        text = piece if not self.text else f"{_SO_FAR}\n{self.text}\n\n{_NEXT}\n{piece}"
        answer = ""
        for _ in range(2):
            answer = await self._ask_model(text)
            if answer:
                break
        if not answer:
            answer = f"{self.text}\n\n{_LEFT_OUT}\n{piece[:_EXCERPT_CHARS]}".strip()
        self.text = self._cut(answer)

    async def _ask_model(self, text: str) -> str:
        try:
            response = await self._model.complete([self._prompt, Message("user", text)])
        except ContextTooLong:
            raise
        except ModelRequestRejected as error:
            if error.status in (400, 422):  # this text is not accepted, whoever asks again
                return ""
            raise self.build_error(error) from error
        except ModelError as error:
            raise self.build_error(error) from error
        self.tokens = self.tokens.add(response.tokens)
        return response.message.text.strip()

    def shorten(self) -> bool:
        """Make the summary shorter, and return whether it has changed."""
        before, self._max_tokens = self.text, max(_LEAST_TOKENS, self._max_tokens * 3 // 4)
        self.text = self._cut(self.text)
        return self.text != before

    def build_error(self, error: ModelError) -> CompressionFailed:
        """Return the error for a summary that failed, with the tokens it took so far."""
        text = f"The conversation is too long and could not be summarized: {error}"
        return CompressionFailed(text, self.tokens, can_retry=True)

    def _cut(self, text: str) -> str:
        chars = len(text)
        while chars > 40 and self._space.adapt(estimate_text_tokens(text)) > self._max_tokens:
            chars = min(chars * 3 // 4, int(self._max_tokens * _CHARS_PER_TOKEN))
            text = truncate_middle(text, chars)
        return text


def _format_messages(messages: Sequence[Message], piece_chars: int) -> list[str]:
    """Format messages for a summary, in so few characters that a bounded number of requests will do."""
    most = min(_MAX_TEXT_CHARS, piece_chars * 4)
    texts = [_format_message(message, most) for message in messages]
    room = piece_chars * _MAX_PIECES
    total = sum(map(len, texts))
    if total > room:
        share = max(80, room // len(texts))
        texts = [truncate_middle(text, share) for text in texts]
        total = sum(map(len, texts))
    if total > room:  # too many messages: leave out those in the middle
        half = max(1, room // (2 * max(map(len, texts))))
        omitted = len(texts) - 2 * half
        texts = [*texts[:half], f"[… {omitted:,} messages left out …]", *texts[-half:]]
    return texts


def _format_message(message: Message, limit: int) -> str:
    calls = "".join(f"\n→ {call.name} {call.arguments}" for call in message.tool_calls)
    text = (
        f"{format_speaker_mark(message)} {message.text}{truncate_middle(calls, _MAX_RESULT_CHARS)}"
    )
    most = min(limit, _MAX_RESULT_CHARS) if message.role == "tool" else limit
    name = f" ({message.name})" if message.name else ""
    return f"## {message.role}{name}\n{truncate_middle(text.lstrip(), most)}"
