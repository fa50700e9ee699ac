"""Chat templates, and dialogues as exact records of tokens."""

from rollwright.chat.check import Rewrite, check_append_only, inserted_system
from rollwright.chat.dialogue import Dialogue, Piece, Row, Turn
from rollwright.chat.format import ChatFormat
from rollwright.chat.load import load_template
from rollwright.chat.template import ChatTemplate, Message

__all__ = [
    "ChatFormat",
    "ChatTemplate",
    "Dialogue",
    "Message",
    "Piece",
    "Rewrite",
    "Row",
    "Turn",
    "check_append_only",
    "inserted_system",
    "load_template",
]
