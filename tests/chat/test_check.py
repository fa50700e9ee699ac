"""Templates that rewrite history are found before they do harm."""

from __future__ import annotations

import pytest
from chat_help import CHATML, DEFAULT_SYSTEM, SYSTEM_LAST, THOUGHTLESS, TOOLS, TRIMMING, user

from rollwright.chat import ChatTemplate, Rewrite, check_append_only, inserted_system
from rollwright.chat.check import first_difference

# a generation prompt that no finished answer has
GENERATION = CHATML.replace("assistant\\n' }}{% endif", "assistant\\n<think>\\n' }}{% endif")
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + CHATML


@pytest.mark.parametrize(
    ("text", "situations"),
    [
        (CHATML, []),
        (DEFAULT_SYSTEM, []),
        (NO_SYSTEM, []),
        (TOOLS, []),
        (THOUGHTLESS, ["a thought before the answer"]),
        (TRIMMING, ["an answer with space around it"]),
        (SYSTEM_LAST, ["a second question under a system prompt"]),
    ],
)
def test_each_kind_of_rewriting_is_found(text, situations):
    """Oracle: hand: what each template was written to do. Broken by: a probe without that situation."""
    assert [rewrite.what for rewrite in check_append_only(ChatTemplate(text))] == situations


def test_a_generation_prompt_that_history_lacks_is_found_everywhere():
    """Oracle: hand. Seven situations, all of them with an answer in the history."""
    assert len(check_append_only(ChatTemplate(GENERATION))) == 7


def test_the_first_difference_is_shown():
    """Oracle: hand."""
    (found,) = check_append_only(ChatTemplate(THOUGHTLESS))
    assert found.before[: found.at] == found.after[: found.at]
    assert found.before[found.at :].startswith("<think>") and found.after[found.at :].startswith("\n\nDown")
    assert "'…" in str(found) and "<think>" in str(found) and f"character {found.at} " in str(found)
    assert str(Rewrite("x", "ab", "ac")).endswith("at character 1 'ab' became 'ac'")
    assert [first_difference(*pair) for pair in [("", "a"), ("ab", "ab"), ("ab", "ac"), ("abc", "ab")]] == [
        0,
        2,
        1,
        2,
    ]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (CHATML, ""),
        (DEFAULT_SYSTEM, "<|im_start|>system\nBe kind.<|im_end|>\n"),
        ("{{ bos_token }}" + CHATML, "<s>"),
        (THOUGHTLESS, ""),
    ],
)
def test_what_a_template_writes_before_the_first_turn(text, want):
    """Oracle: hand. Broken by: taking the whole first turn for inserted text."""
    template = ChatTemplate(text, bos="<s>")
    assert inserted_system(template) == want
    assert template.render([user("Hi")]).startswith(want)
