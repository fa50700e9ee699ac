"""A model behind an OpenAI-compatible server as the judge of answers."""

from rollwright.grade.judge.cache import Cache
from rollwright.grade.judge.chat import Chat, Message, Reply, Scripted
from rollwright.grade.judge.endpoint import Endpoint, Usage
from rollwright.grade.judge.judge import Judge, Preference, Question

__all__ = [
    "Cache",
    "Chat",
    "Endpoint",
    "Judge",
    "Message",
    "Preference",
    "Question",
    "Reply",
    "Scripted",
    "Usage",
]
