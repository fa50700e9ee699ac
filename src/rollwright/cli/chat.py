"""`rollwright chat`."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console

from rollwright.errors import ConfigError, DataError, EngineError, RollwrightError

if TYPE_CHECKING:
    from rollwright.chat import ChatTemplate
    from rollwright.engine.checkpoint import Tokenizer
    from rollwright.engine.inprocess import LocalEngine
    from rollwright.tree import Sampling, StopReason

_HELP = "/reset forgets the dialogue, /quit ends (so does Ctrl-D); Ctrl-C stops an answer"
_GROUP = "chat"


def chat(
    model: str,
    /,
    *,
    prompt: str | None = None,
    system: str | None = None,
    temperature: float = 0.7,
    top_p: float = 0.9,
    top_k: int = 0,
    max_tokens: int = 512,
    seed: int = 0,
    threads: int | None = None,
) -> int:
    """Talk with a model in the terminal, through its own chat template.

    Answers come as they are sampled; Ctrl-C stops an answer, `/reset` forgets the dialogue and `/quit`
    ends. What was said before is never read again: a new turn costs its own tokens only. A model without
    a chat template continues each line by itself.

    For example:

    `rollwright chat smollm2`

    `rollwright chat smollm2 --temperature 0.2 --prompt "What is the capital of France?"`

    `rollwright chat path/to/model --system "Answer in one sentence."`

    Args:
        model: A checkpoint folder, a `.gguf` file, or the name of a model that is shipped.
        prompt: Ask this, print the answer and end.
        system: A system prompt; the template's own without it.
        temperature: Divides the logits; 0 always takes the most likely token.
        top_p: Sample from the smallest set of tokens with at least this share of the probability.
        top_k: Sample from so many tokens; 0 from all.
        max_tokens: The longest answer.
        seed: Of the sampling noise; the same questions get the same answers.
        threads: Of PyTorch; one per core without it.
    """
    if max_tokens < 1:
        raise ConfigError(f"--max-tokens is {max_tokens}; expected at least 1")
    if temperature < 0 or not 0 < top_p <= 1 or top_k < 0:
        raise ConfigError(
            f"--temperature {temperature}, --top-p {top_p}, --top-k {top_k}: expected at least 0, a share in"
            " (0, 1], at least 0"
        )
    console, notes = Console(), Console(stderr=True)
    with notes.status(f"loading {model}"):
        speaker = Speaker.load(model, threads, max_tokens, seed, (temperature, top_p, top_k))
    talk = _Talk(speaker, system, console, notes)
    if prompt is not None:
        return 130 if talk.ask(prompt).is_interrupted else 0
    talk.introduce(model)
    return talk.run()


@dataclass(frozen=True, slots=True)
class Answer:
    """What was sampled, and how.

    Args:
        ids: the sampled ids, with the end token if there was one.
        stop: why it ended.
        seconds: from the prompt to the last token.
        first: seconds to the first token: the prompt was read in them.
    """

    ids: tuple[int, ...]
    stop: StopReason
    seconds: float
    first: float

    @property
    def is_interrupted(self) -> bool:
        return self.stop.value == "interrupted"


class Speaker:
    """A model that answers one prompt at a time, token by token."""

    def __init__(
        self,
        engine: LocalEngine,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        sampling: Sampling,
        max_tokens: int,
        seed: int,
    ) -> None:
        self.engine, self.tokenizer, self.template = engine, tokenizer, template
        self.sampling, self.max_tokens, self.seed = sampling, max_tokens, seed
        self._num_asked = 0

    @classmethod
    def load(
        cls, model: str, threads: int | None, max_tokens: int, seed: int, how: tuple[float, float, int]
    ) -> Speaker:
        import torch

        from rollwright.chat import load_template
        from rollwright.engine.checkpoint import load_model, load_tokenizer
        from rollwright.engine.inprocess import LocalEngine
        from rollwright.tree import Sampling

        torch.set_num_threads(threads or os.cpu_count() or 1)
        tokenizer = load_tokenizer(model)
        engine = LocalEngine(load_model(model), tokenizer)
        return cls(engine, tokenizer, load_template(model), Sampling(*how), max_tokens, seed)

    def answer(self, ids: Sequence[int], show: Callable[[str], None]) -> Answer:
        """Sample an answer to a prompt, and show its text as it comes; Ctrl-C ends it.

        Raises:
            DataError: the prompt fills the context.
        """
        from rollwright.events import Submit
        from rollwright.rng import stream_key
        from rollwright.serve.text import TextStream

        room = self.engine.cfg.max_positions - len(ids)
        if room < 1:
            raise DataError(f"the dialogue has {len(ids)} tokens, which fill the context; /reset begins anew")
        self._num_asked += 1
        ask = f"{_GROUP}/{self._num_asked}"
        stream = stream_key(self.seed, _GROUP, str(self._num_asked))
        where = {"parent": _GROUP, "at": len(ids), "start": len(ids)}
        began = time.monotonic()
        command = Submit(
            ask=ask,
            group=_GROUP,
            stream=stream,
            max_tokens=min(self.max_tokens, room),
            sampling=self.sampling,
            chunk=1,
            **where,  # type: ignore[arg-type]
        )
        self.engine.submit(command, ids)
        text, sampled, first = TextStream(self.tokenizer), [], 0.0
        with _ctrl_c() as is_pressed:
            for event in self._events(ask, is_pressed):
                first = first or time.monotonic() - began
                sampled += event.tokens
                show(text.push(event.tokens, event.stop))
        return Answer(tuple(sampled), event.stop, time.monotonic() - began, first)

    def forget(self) -> None:
        self.engine.retire(_GROUP)

    def _events(self, ask: str, is_pressed: Callable[[], bool]) -> Iterator[Any]:
        """Yield what the engine samples, up to the event that says why it stopped."""
        while True:
            events = self.engine.step()
            yield from events
            if any(event.stop is not None for event in events):
                return
            if is_pressed():
                yield self.engine.abort(ask)
                return


@contextmanager
def _ctrl_c() -> Iterator[Callable[[], bool]]:
    """Note Ctrl-C instead of raising: the engine must not be left in the middle of a step."""
    pressed: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


class _Talk:
    """The dialogue of a terminal with a speaker."""

    def __init__(self, speaker: Speaker, system: str | None, console: Console, notes: Console) -> None:
        self.speaker, self.system, self.console, self.notes = speaker, system, console, notes
        self.begin()

    def begin(self) -> None:
        from rollwright.chat import Dialogue

        template = self.speaker.template
        self.dialogue = None if template is None else Dialogue(template, self.speaker.tokenizer)
        self.messages = [] if self.system is None else [{"role": "system", "content": self.system}]
        self.speaker.forget()

    def introduce(self, model: str) -> None:
        from rollwright.chat import check_append_only

        self.note(f"{model}: {_HELP}")
        if self.speaker.template is None:
            self.note("this model has no chat template: each line is continued as it stands, by itself")
            return
        for rewrite in check_append_only(self.speaker.template):
            self.note(f"its template rewrites history after {rewrite.what}; what it changes is read again")

    def run(self) -> int:
        """Answer line after line until the end of the input."""
        while True:
            try:
                line = self.console.input("[bold]> [/bold]") if sys.stdin.isatty() else input()
            except EOFError:
                return 0
            except KeyboardInterrupt:
                self.note(f"\n{_HELP}")
                continue
            if line.strip() == "/quit":
                return 0
            if line.strip() == "/reset":
                self.begin()
                self.note("forgotten")
            elif line.startswith("/") and " " not in line.strip():
                self.note(f"unknown command {line.strip()!r}; {_HELP}")
            elif line.strip():
                self._try(line)

    def _try(self, line: str) -> None:
        """Answer a line; what cannot be answered is said and leaves the dialogue as it was."""
        num = len(self.messages)
        try:
            self.ask(line)
        except (DataError, EngineError) as error:
            del self.messages[num:]
            self.note(str(error))

    def ask(self, line: str) -> Answer:
        """Answer a line, show it, and say what it took."""
        if self.dialogue is None:
            ids = self._encode(f"{line}\n")
            answer = self.speaker.answer(ids, self.show)
            self.summarise(answer, len(ids))
            return answer
        self.messages.append({"role": "user", "content": line})
        turn = self.dialogue.prompt(self.messages)
        if turn.rewrite is not None:
            self.note(f"{turn.rewrite}")
        answer = self.speaker.answer(turn.ids, self.show)
        self.messages.append(self.dialogue.record(turn, answer.ids))
        self.summarise(answer, turn.num_new)
        return answer

    def _encode(self, text: str) -> list[int]:
        try:
            return self.speaker.tokenizer.encode(text)
        except RollwrightError:
            raise
        except Exception as error:  # the tokenizers library raises bare Exception
            raise DataError(f"the model has no tokens for this text ({error})") from error

    def show(self, text: str) -> None:
        self.console.print(printable(text), end="", markup=False, highlight=False, soft_wrap=True)
        self.console.file.flush()

    def note(self, text: str) -> None:
        self.notes.print(printable(text), style="dim", markup=False, highlight=False, soft_wrap=True)

    def summarise(self, answer: Answer, num_read: int) -> None:
        self.console.print()
        num = len(answer.ids)
        rate = (num - 1) / (answer.seconds - answer.first) if num > 1 else num / answer.seconds
        why = {
            "length": "; cut at --max-tokens",
            "interrupted": "; stopped",
            "context": "; the context is full",
        }.get(answer.stop.value, "")
        self.note(
            f"{num} tokens, {rate:.1f} tokens/s; {num_read} new tokens read in {answer.first:.2f} s{why}"
        )


def printable(text: str) -> str:
    """Return text that cannot steer the terminal: control characters but newline and tab are spelled out."""
    kept = "\n\t"
    return "".join(
        c if c in kept or unicodedata.category(c) != "Cc" else c.encode("unicode_escape").decode()
        for c in text
    )
