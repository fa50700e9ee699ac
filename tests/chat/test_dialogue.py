"""Dialogues as records: nothing is encoded twice, nothing is lost, nothing is patched."""

from __future__ import annotations

import random

import pytest
from chat_help import CHATML, THOUGHTLESS, TOOLS, TRIMMING, VOCAB, Words, user

from rollwright.chat import ChatTemplate, Dialogue
from rollwright.errors import DataError


def dialogue(text: str = CHATML, **more: int) -> Dialogue:
    return Dialogue(ChatTemplate(text), Words(VOCAB | more))


def test_case_m02_only_what_was_sampled_is_trainable():
    """Oracle: case M02 (NovaSky-AI/SkyRL#710). Broken by: marking the newline after the end token."""
    talk = dialogue()
    messages = [user("q")]
    turn = talk.prompt(messages)
    messages += [talk.record(turn, [10, 4]), user("q")]
    talk.record(talk.prompt(messages), [12, 4])
    (row,) = talk.rows
    start = len(turn.ids)
    assert row.ids[start:] == (10, 4, 3, 1, 5, 3, 11, 4, 3, 1, 2, 3, 12, 4)
    assert row.is_trainable[start:] == tuple(map(bool, (1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1)))
    assert sum(row.is_trainable) == 4


def test_case_t02_a_thought_taken_out_gives_a_second_row():
    """Oracle: case T02 (verl-project/verl#6854): rows, lengths, masks. Broken by: patching the one row."""
    talk = dialogue(THOUGHTLESS, **{"<think>": 20, "r": 21, "</think>": 22, "r2": 23})
    messages = [user("q")]
    first = talk.prompt(messages)
    assert first.ids == (1, 5, 3, 11, 4, 3, 1, 2, 3) and first.rewrite is None
    messages += [talk.record(first, [20, 21, 22, 10, 4]), user("q2")]
    second = talk.prompt(messages)
    assert second.ids == (1, 5, 3, 11, 4, 3, 1, 2, 3, 10, 4, 3, 1, 5, 3, 13, 4, 3, 1, 2, 3)
    before = (*first.ids, 20, 21, 22, 10, 4)
    assert next(i for i, (a, b) in enumerate(zip(before, second.ids, strict=False)) if a != b) == 9
    assert second.rewrite.before[second.rewrite.at :].startswith("<think>")
    talk.record(second, [20, 23, 22, 12, 4])
    rows = talk.rows
    assert [len(row.ids) for row in rows] == [14, 26]
    assert [sum(row.is_trainable) for row in rows] == [5, 5]


def test_case_t04_a_tool_call_stays_as_it_was_sampled():
    """Oracle: case T04 (smg-project/smg#1836): bytes. Broken by: rendering the parsed arguments."""
    sampled = '{"b":1, "a":"\\u00e9"}'
    talk = dialogue(TOOLS)
    messages = [user("q")]
    turn = talk.prompt(messages)
    ids = [*talk.tokenizer.encode(f"<call>{sampled}</call>"), 4]
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": "é", "b": 1}}}
    handed = {"role": "assistant", "content": None, "tool_calls": [call]}
    assert talk.record(turn, ids, message=handed) == handed
    # the client gives it back with its keys in another order, an empty value and another history
    again = {
        "tool_calls": [dict(reversed(call.items()))],
        "role": "assistant",
        "content": "",
        "refusal": None,
    }
    for history in ([user("q")], [user("q2")]):
        later = talk.prompt([*history, again, {"role": "tool", "content": "Ok"}])
        text = talk.tokenizer.decode(later.ids)
        assert sampled in text and '"a": ' not in text
    assert talk.prompt([user("q"), again, user("q2")]).ids[: len(turn.ids) + len(ids)] == turn.ids + tuple(
        ids
    )


def test_case_t05_one_begin_token():
    """Oracle: case T05 (huggingface/trl#3853). Broken by: a tokenizer that adds specials of its own."""
    tokenizers = pytest.importorskip("tokenizers")
    from rollwright.engine.checkpoint import Tokenizer

    words = {"<|begin_of_text|>": 0, "<|start_header_id|>": 1, "user": 2, "?": 3}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="?"))
    inner.add_special_tokens(list(words)[:2])
    inner.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 0)]
    )
    text = "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}{% endfor %}"
    template = ChatTemplate(text, bos="<|begin_of_text|>")
    assert Dialogue(template, Tokenizer(inner, "words", ())).prompt([user("x")]).ids == (0, 1, 2)


def test_sampled_ids_are_never_encoded_again():
    """Oracle: hand: H, i encode as one word, but were sampled as two. Broken by: encoding the history."""
    talk = dialogue()
    messages = [user("q")]
    turn = talk.prompt(messages)
    messages += [talk.record(turn, [14, 15, 4]), user("q2")]
    talk.tokenizer.encoded.clear()
    later = talk.prompt(messages)
    assert later.ids[len(turn.ids) :] == (14, 15, 4, 3, 1, 5, 3, 13, 4, 3, 1, 2, 3)
    assert talk.tokenizer.encoded == ["\n<|im_start|>user\nq2<|im_end|>\n<|im_start|>assistant\n"]
    assert later.num_new == 10


def test_a_turn_that_was_cut_gets_the_templates_end():
    """Oracle: hand. The end that nobody sampled is context, not a token to train."""
    talk = dialogue()
    messages = [user("q")]
    turn = talk.prompt(messages)
    messages += [talk.record(turn, [10]), user("q2")]
    later = talk.prompt(messages)
    assert later.ids[len(turn.ids) :] == (10, 4, 3, 1, 5, 3, 13, 4, 3, 1, 2, 3) and later.rewrite is None
    talk.record(later, [12, 4])
    (row,) = talk.rows
    assert sum(row.is_trainable) == 3 and not row.is_trainable[len(turn.ids) + 1]


def test_an_end_token_that_the_template_does_not_write_gives_a_second_row():
    """Oracle: hand. Broken by: dropping the sampled end, or leaving two ends in the context."""
    talk = Dialogue(ChatTemplate(CHATML), Words(VOCAB, eos_ids=(0, 4)))
    messages = [user("q")]
    turn = talk.prompt(messages)
    messages += [talk.record(turn, [10, 0]), user("q2")]
    later = talk.prompt(messages)
    assert later.ids == (*turn.ids, 10, 4, 3, 1, 5, 3, 13, 4, 3, 1, 2, 3) and later.rewrite is not None
    talk.record(later, [12, 4])
    assert [row.ids[len(turn.ids) :][:2] for row in talk.rows] == [(10, 0), (10, 4)]
    assert [sum(row.is_trainable) for row in talk.rows] == [2, 2]


def test_several_answers_to_one_prompt_are_rows_that_share_it():
    """Oracle: hand. Equal ids are still two samples. Broken by: putting an answer behind another answer."""
    talk = dialogue()
    turn = talk.prompt([user("q")])
    for _ in range(3):
        message = talk.record(turn, [10, 4], [-0.5, -0.25], version=3)
    retried = talk.prompt([user("q")])
    assert retried.num_new == 0 and retried.rewrite is None and retried.ids == turn.ids
    assert [row.num_shared for row in talk.rows] == [0, 1, 1]
    assert [sum(row.is_trainable) for row in talk.rows] == [2, 2, 2]
    later = talk.prompt([user("q"), message, user("q2")])
    talk.record(later, [12, 4])
    assert [len(row.pieces) for row in talk.rows] == [4, 2, 2]
    assert talk.rows[0].logprobs == (*[None] * 9, -0.5, -0.25, *[None] * 12)
    assert talk.rows[1].pieces[1].version == 3


def test_a_message_that_the_client_changed_begins_another_row():
    """Oracle: hand: the prompt up to the answer is shared, the changed answer is context."""
    talk = dialogue()
    turn = talk.prompt([user("q")])
    talk.record(turn, [10, 4])
    later = talk.prompt([user("q"), {"role": "assistant", "content": "Ok"}, user("q2")])
    assert later.rewrite is not None and later.ids[len(turn.ids)] == 12
    talk.record(later, [10, 4])
    assert [sum(row.is_trainable) for row in talk.rows] == [2, 2]


def test_an_answer_with_a_hidden_thought_is_found_by_its_history():
    """Oracle: hand: two answers look the same to the client, and each comes back with its own thought."""
    talk = dialogue(CHATML, **{"<a>": 30, "<b>": 31})
    hidden = {"role": "assistant", "content": "Hi"}
    messages = [user("q")]
    for thought in (30, 31):
        messages += [talk.record(talk.prompt(messages), [thought, 10, 4], message=hidden), user("q")]
    turn = talk.prompt(messages)
    assert [i for i in turn.ids if i in (30, 31)] == [30, 31] and turn.rewrite is None
    # another dialogue's answer of the same words has no thought
    assert 30 not in talk.prompt([user("q2"), hidden, user("q")]).ids


def test_space_that_a_template_trims_is_seen():
    """Oracle: hand."""
    talk = dialogue(TRIMMING)
    messages = [user("q")]
    messages += [talk.record(talk.prompt(messages), [3, 10, 4]), user("q2")]
    assert talk.prompt(messages).rewrite is not None


def test_logprobs_must_fit():
    """Oracle: the message."""
    talk = dialogue()
    with pytest.raises(DataError, match="1 logprobs were given for 2 ids"):
        talk.record(talk.prompt([user("q")]), [10, 4], [-1.0])


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_every_sampled_id_is_trainable_once_and_in_its_context(seed):
    """Oracle: slow reference: every prompt that was given out, with its answer, kept beside the record.

    Random dialogues branch, are retried, cut, edited and lose thoughts. Each (prompt, answer) must stand at
    the head of a row, and the trainable ids together must be the answers, each once.
    """
    rng = random.Random(seed)
    talk = dialogue(rng.choice([CHATML, THOUGHTLESS]), **{"<think>": 20, "</think>": 22})
    talks, seen = [[user("q")]], []
    for _ in range(25):
        messages = list(rng.choice(talks))
        turn = talk.prompt(messages)
        said = rng.choices([10, 12, 13, 14, 15, 3], k=rng.randint(0, 3))
        thought = rng.choice([[], [20, 15, 22]])
        ids = thought + said + rng.choice([[], [4], [4]])
        message = talk.record(turn, ids)
        seen.append((turn.ids, tuple(ids)))
        if rng.random() < 0.1:
            message = {"role": "assistant", "content": "edited"}
        talks.append([*messages, message, user(rng.choice(["q", "q2"]))])
    rows = talk.rows
    for prompt, answer in seen:
        whole = prompt + answer
        assert any(row.ids[: len(whole)] == whole for row in rows)
    trained = sorted(i for row in rows for i, is_on in zip(row.ids, row.is_trainable, strict=True) if is_on)
    assert trained == sorted(i for _, answer in seen for i in answer)
    assert all(len(row.ids) == len(row.is_trainable) == len(row.logprobs) for row in rows)
