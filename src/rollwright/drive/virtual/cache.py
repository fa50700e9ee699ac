"""What modelled workers have cached: prompts and streams; with a limit, the least recently used go first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from rollwright.drive.virtual.content import Request
from rollwright.tree import GroupId

Key = tuple[GroupId, str]  # a group and a stream of it; "" is its prompt


class Cache:
    """Tokens by group, life of a worker and stream.

    What a worker has cached of a stream reaches from the root on; two streams share what lies before
    their fork. A worker gets a new life when it loses its cache (a failure, new weights).
    """

    def __init__(self) -> None:
        self._known: dict[GroupId, dict[tuple[int, str], int]] = {}
        self._idle: dict[int, OrderedDict[Key, int]] = {}  # life -> idle entries, the oldest first
        self._num_idle: dict[int, int] = {}

    def have(self, life: int, request: Request, num_context: int) -> int:
        """Return how many of a request's first ``num_context`` tokens the worker of ``life`` holds.

        They are the path's, and then its own that were made before.
        """
        known = self._known.get(request.command.group)
        if not known:
            return 0
        most = min(known.get((life, request.stream), 0), num_context)
        for stream, end in request.ends.items():
            held = known.get((life, stream), 0)
            most = max(most, min(held, end))
        return most

    def note(self, life: int, request: Request, num: int) -> None:
        """The worker holds the stream up to ``num`` tokens from the root, and the prompt."""
        known = self._known.setdefault(request.command.group, {})
        root, num_root = request.path[0]
        known[life, root.stream] = num_root
        known[life, request.stream] = num

    def lives(self, group: GroupId) -> Iterator[int]:
        """Yield the lives that hold something of a group; some may be over."""
        yield from dict.fromkeys(life for life, _ in self._known.get(group, ()))

    def retire(self, group: GroupId) -> None:
        """Forget a group."""
        for life, stream in self._known.pop(group, {}):
            self.rouse(life, (group, stream))

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()
        self._idle.clear()
        self._num_idle.clear()

    def end(self, life: int) -> None:
        """A worker lost its cache: nothing of that life is found any more."""
        self._idle.pop(life, None)
        self._num_idle.pop(life, None)

    # ------------------------------------------------------------ workers with a limit

    def idle_tokens(self, life: int) -> int:
        """Return the tokens that a worker keeps for asks that may come."""
        return self._num_idle.get(life, 0)

    def rest(self, life: int, key: Key, num: int) -> None:
        """Nothing live uses the entry any more: it stays, as the most recently used, if it was made."""
        group, stream = key
        if (life, stream) not in self._known.get(group, ()):
            return
        idle = self._idle.setdefault(life, OrderedDict())
        self._num_idle[life] = self._num_idle.get(life, 0) + num - idle.pop(key, 0)
        idle[key] = num

    def rouse(self, life: int, key: Key) -> None:
        """Something live uses the entry from now on."""
        if life in self._idle:
            self._num_idle[life] -= self._idle[life].pop(key, 0)

    def shrink(self, life: int, num_free: int) -> None:
        """Let go of the least recently used entries until no more than ``num_free`` tokens are idle."""
        idle = self._idle.get(life)
        while idle and self._num_idle[life] > num_free:
            (group, stream), num = idle.popitem(last=False)
            self._num_idle[life] -= num
            self._known.get(group, {}).pop((life, stream), None)
