"""Reward functions of users, in the conventions of this project, TRL and verl."""

from rollwright.grade.reward.conventions import Call
from rollwright.grade.reward.function import Reward, RewardFunction, load_reward, load_rewards
from rollwright.grade.reward.load import load_function, load_module
from rollwright.grade.reward.settings import RewardSettings

__all__ = [
    "Call",
    "Reward",
    "RewardFunction",
    "RewardSettings",
    "load_function",
    "load_module",
    "load_reward",
    "load_rewards",
]
