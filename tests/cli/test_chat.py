"""`rollwright chat`: what it says is what the engine samples, and Ctrl-C ends an answer only."""

from __future__ import annotations

import io
import os
import re
import signal
from pathlib import Path

import pytest

from rollwright.chat import ChatTemplate, Dialogue
from rollwright.cli.chat import printable
from rollwright.engine.checkpoint import load_model, load_tokenizer, save_model
from rollwright.engine.inprocess import LocalEngine
from rollwright.engine.model import DecoderConfig, new_model
from rollwright.events import Submit
from rollwright.rng import stream_key
from rollwright.serve.text import TextStream
from rollwright.tasks.tokenizer import EOS, byte_tokenizer, save_tokenizer
from rollwright.tree import Sampling

TEMPLATE = (
    "{% for m in messages %}{{ m.role[0] + ':' + m.content + '" + EOS + "\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'a:' }}{% endif %}"
)
STATS = re.compile(r"(\d+) tokens, [\d.]+ tokens/s; (\d+) new tokens read in [\d.]+ s(.*)")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model with a chat template, of 300 positions."""
    folder = tmp_path_factory.mktemp("model")
    inner = byte_tokenizer()
    shape = {"hidden_size": 32, "intermediate_size": 32, "num_layers": 1, "num_heads": 2, "num_kv_heads": 1}
    cfg = DecoderConfig(
        "llama", inner.get_vocab_size(), head_dim=16, max_positions=300, eos_ids=(1,), **shape
    )
    save_model(new_model(cfg, 0), folder)
    save_tokenizer(inner, folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture
def say(rollwright, monkeypatch):
    """Run a chat with these lines as its input."""

    def run(model: Path | str, *lines: str, **flags: object):
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        given = {"threads": 1, "max-tokens": 12, "temperature": 1, "top-p": 1} | flags
        return rollwright("chat", model, *(w for key, value in given.items() for w in (f"--{key}", value)))

    return run


def expected(folder: Path, *lines: str, num: int = 12) -> list[tuple[str, int, int]]:
    """(text, tokens sampled, tokens read) of each answer, from a whole prompt and an engine of its own."""
    tokenizer = load_tokenizer(folder)
    talk, messages, found = Dialogue(ChatTemplate(TEMPLATE), tokenizer), [], []
    for number, line in enumerate(lines, 1):
        messages.append({"role": "user", "content": line})
        turn = talk.prompt(messages)
        where = {"parent": "r", "at": len(turn.ids), "start": len(turn.ids), "max_tokens": num}
        key = stream_key(0, "chat", str(number))
        engine = LocalEngine(load_model(folder), tokenizer)
        engine.submit(Submit(ask="a", group="g", stream=key, sampling=Sampling(), **where), turn.ids)
        (event,) = engine.step()
        text = printable(TextStream(tokenizer).push(event.tokens, event.stop))
        found.append((text, len(event.tokens), turn.num_new))
        messages.append(talk.record(turn, event.tokens))
    return found


def stats(err: str) -> list[tuple[int, int, str]]:
    return [(int(a), int(b), why) for a, b, why in STATS.findall(err)]


def test_a_dialogue_is_what_the_engine_samples(say, model):
    """Oracle: another engine from whole prompts. Broken by: reading the history again in each turn."""
    result = say(model, "Hi", "", "And you?", "/quit", "not read")
    want = expected(model, "Hi", "And you?")
    assert result.code == 0 and result.out == "".join(f"{text}\n" for text, *_ in want)
    assert [row[:2] for row in stats(result.err)] == [tuple(row[1:]) for row in want]


def test_one_prompt(say, model):
    """Oracle: the dialogue's first answer."""
    result = say(model, prompt="Hi")
    assert (result.code, result.out) == (0, expected(model, "Hi")[0][0] + "\n")
    assert len(result.err.splitlines()) == 1


def test_reset_forgets(say, model):
    """Oracle: the tokens that are read: those of a first turn again. Unknown commands are not asked."""
    result = say(model, "Hi", "/rest", "/reset", "Hi")
    first, second = stats(result.err)
    assert first[1] == second[1] and "unknown command '/rest'" in result.err and "forgotten" in result.err


def test_ctrl_c_ends_the_answer_and_not_the_program(say, model, monkeypatch):
    """Oracle: hand: three tokens were out, one more step may be; the dialogue goes on from the cut answer."""
    push, calls = TextStream.push, []

    def press(self, tokens, stop=None):
        calls.append(stop)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return push(self, tokens, stop)

    monkeypatch.setattr(TextStream, "push", press)
    result = say(model, "Hi", "And you?")
    first, second = stats(result.err)
    assert result.code == 0 and 3 <= first[0] <= 4 and first[2] == "; stopped"
    assert second[1] == len("\u2403\nu:And you?\u2403\na:")  # the end that the cut answer lacks comes first
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    del calls[:]
    assert say(model, prompt="Hi").code == 130


def test_a_full_context_is_said_and_loses_nothing(say, model):
    """Oracle: hand: the long line is taken back, and the next one is answered."""
    result = say(model, "Hi", "x" * 400, "Hi")
    assert "fill the context; /reset begins anew" in result.err
    assert len(stats(result.err)) == 2 and result.code == 0


def test_a_model_without_a_template_continues_lines(say):
    """Oracle: the message, and that a line's answer does not depend on lines before it (greedy)."""
    lines = ["2 6 7 +-*:8", "é", "7 4 8 +-*:5"]
    result = say("countdown", *lines, temperature=0)
    assert "no chat template" in result.err and "no tokens for this text" in result.err
    answers = result.out.splitlines()
    assert len(answers) == 2
    assert say("countdown", lines[2], temperature=0).out.splitlines() == answers[1:]


def test_a_template_that_rewrites_is_announced_and_seen(say, model, tmp_path):
    """Oracle: hand: a template that shouts what was said before."""
    folder = tmp_path / "m"
    folder.mkdir()
    for file in model.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    shouting = TEMPLATE.replace("m.content", "(m.content if loop.last else m.content | upper)")
    (folder / "chat_template.jinja").write_text(shouting)
    result = say(folder, "hi", "and you?")
    assert "its template rewrites history after a second question" in result.err
    assert "at character" in result.err and len(stats(result.err)) == 2


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"max-tokens": 0}, "--max-tokens is 0"),
        ({"temperature": -1}, "--temperature -1"),
        ({"top-p": 0}, "a share"),
    ],
)
def test_wrong_flags(say, flags, said):
    """Oracle: the message, before anything is loaded."""
    result = say("nowhere", **flags)
    assert result.code == 2 and said in result.err


def test_text_cannot_steer_the_terminal():
    """Oracle: hand."""
    assert printable("a\x1b[2J\tb\n\x07é\x9b") == "a\\x1b[2J\tb\n\\x07é\\x9b"
