"""The state machine that every driver runs."""

from rollwright.runner.core import Runner
from rollwright.runner.settings import Settings

__all__ = ["Runner", "Settings"]
