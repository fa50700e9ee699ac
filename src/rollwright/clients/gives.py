"""What servers can give, and the refusal of an ask that needs more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rollwright.events import Submit
from rollwright.tree import Sampling


@dataclass(frozen=True, slots=True)
class Gives:
    """What a server can give.

    Args:
        logprobs: of the sampled token: ``"sampled"`` is of the distribution it was drawn from, at any
            temperature; ``"raw"`` is before temperature, right at temperature 1 (and greedy) only.
        kept_mass: the kept set's share, and logprobs over the kept set, where sampling cuts.
        entropy: of the distribution that was sampled from.
        num_top: the most alternatives it lists at each token.
        first: whether it can be told the first token.
        noise: whether it takes noise keys, so that a stream samples the same anywhere.
        version: whether it says which weights sampled each chunk.
    """

    logprobs: Literal["sampled", "raw"] = "sampled"
    kept_mass: bool = False
    entropy: bool = False
    num_top: int = 0
    first: bool = False
    noise: bool = False
    version: bool = False

    @property
    def names(self) -> frozenset[str]:
        """What methods call it (`rollwright.method.ENGINE_CAN_GIVE`)."""
        pairs = {
            "entropy": self.entropy,
            "kept_mass": self.kept_mass,
            "top": self.num_top > 0,
            "fork": self.first,  # a branch begins with a token that the method chose
        }
        return frozenset(name for name, is_given in pairs.items() if is_given)

    def lack(self, command: Submit) -> str:
        """Return what the server lacks for an ask and what to do about it; "" if nothing."""
        sampling = command.sampling
        if self.logprobs == "raw" and sampling.temperature not in (0, 1):
            return (
                f"logprobs after temperature (it reports them before it, and this ask samples at "
                f"{sampling.temperature}); sample at 1, or start the server so that it reports those after"
            )
        if not self.kept_mass and cuts(sampling):
            return (
                "the mass of the kept set and logprobs over it, which top_p, top_k and min_p need "
                f"(given: {sampling.top_p}, {sampling.top_k}, {sampling.min_p}); sample without them"
            )
        if command.num_top > self.num_top:
            return f"{command.num_top} alternatives at each token (it lists {self.num_top}); ask for fewer"
        if command.first is not None and not self.first:
            return "a first token that the method chose; use a method that does not branch on tokens"
        return ""


def cuts(sampling: Sampling) -> bool:
    """Whether the kept set is smaller than the vocabulary; greedy sampling ignores cuts."""
    return sampling.cuts and sampling.temperature > 0
