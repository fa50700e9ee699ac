"""Simulation: the real runner on a virtual clock with a modelled engine (docs/simulator.md)."""

from rollwright.drive.virtual.driver import VirtualDriver
from rollwright.drive.virtual.model import (
    Constant,
    Empirical,
    EngineModel,
    LearnerModel,
    LogNormal,
    Model,
    ServiceModel,
    TaskModel,
)

__all__ = [
    "Constant",
    "Empirical",
    "EngineModel",
    "LearnerModel",
    "LogNormal",
    "Model",
    "ServiceModel",
    "TaskModel",
    "VirtualDriver",
]
