"""Simulation: the real runner on a virtual clock with a modelled engine (docs/simulator.md)."""

from rollwright.drive.virtual.distributions import Constant, Empirical, LogNormal, Pareto
from rollwright.drive.virtual.driver import VirtualDriver
from rollwright.drive.virtual.engine_model import Broadcast, Drafts, EngineModel
from rollwright.drive.virtual.model import Hard, LearnerModel, Model, ServiceModel, TaskModel

__all__ = [
    "Broadcast",
    "Constant",
    "Drafts",
    "Empirical",
    "EngineModel",
    "Hard",
    "LearnerModel",
    "LogNormal",
    "Model",
    "Pareto",
    "ServiceModel",
    "TaskModel",
    "VirtualDriver",
]
