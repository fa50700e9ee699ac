"""The state machine that every driver runs."""

from rollwright.runner.core import Runner
from rollwright.runner.settings import Settings
from rollwright.runner.waits import Wait

__all__ = ["Runner", "Settings", "Wait"]
