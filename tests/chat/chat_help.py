"""Templates of the kinds that models have, and a tokenizer by words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
# writes a system turn where the dialogue has none
DEFAULT_SYSTEM = (
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nBe kind.<|im_end|>\\n' }}{% endif %}"
    + CHATML
)
# takes thoughts out of all answers but those after the last question, as reasoning models' templates do
THOUGHTLESS = (
    "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m['role'] == 'user' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}{% set text = m['content'] %}"
    "{% if m['role'] == 'assistant' and '</think>' in text and loop.index0 < ns.last %}"
    "{% set text = text.split('</think>')[-1] %}{% endif %}"
    "{{ '<|im_start|>' + m['role'] + '\\n' + text + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
# cuts the space around every text
TRIMMING = CHATML.replace("m['content']", "m['content'].strip()")
# puts the system prompt into the last question
SYSTEM_LAST = (
    "{% set ns = namespace(system='') %}{% for m in messages %}{% if m['role'] == 'system' %}"
    "{% set ns.system = m['content'] + ' ' %}{% elif m['role'] == 'user' %}"
    "{{ '[Q]' + (ns.system if loop.last else '') + m['content'] }}{% else %}"
    "{{ '[A]' + m['content'] + '[E]' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '[A]' }}{% endif %}"
)
# writes tool calls from their parsed form
TOOLS = (
    "{% if tools %}{{ '<|im_start|>system\\n' + (tools | tojson) + '<|im_end|>\\n' }}{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + (m['content'] or '') }}"
    "{% for call in m.tool_calls or [] %}{{ '<call>' + (call.function.arguments | tojson) + '</call>' }}"
    "{% endfor %}{{ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


class Words:
    """Longest match over a vocabulary, then single characters; it counts what it encodes.

    Like a BPE it knows ids whose texts join to another id's text, so encoding a text again can give other
    ids than those that were sampled.
    """

    def __init__(self, vocab: Mapping[str, int], eos_ids: Sequence[int] = (4,)) -> None:
        self.vocab, self.eos_ids = dict(vocab), tuple(eos_ids)
        self.texts = {number: text for text, number in vocab.items()}
        self.encoded: list[str] = []

    def encode(self, text: str) -> list[int]:
        self.encoded.append(text)
        ids = []
        while text:
            word = max((w for w in self.vocab if text.startswith(w)), key=len, default=text[0])
            ids.append(self.vocab.get(word, 1000 + ord(word[0])))
            text = text[len(word) :]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.texts[i] if i in self.texts else chr(i - 1000) for i in ids)


SPECIALS = {"<|im_start|>": 1, "assistant": 2, "\n": 3, "<|im_end|>": 4, "user": 5, "<|endoftext|>": 0}
VOCAB = SPECIALS | {"Hi": 10, "q": 11, "Ok": 12, "q2": 13, "H": 14, "i": 15}


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}
