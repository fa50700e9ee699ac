"""A whole run: built from its config, driven, recorded, evaluated, resumed."""

from rollwright.training.loop import Training

__all__ = ["Training"]
