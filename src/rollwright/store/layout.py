"""Names of what lies in a run folder."""

from __future__ import annotations

CONFIG = "config.toml"
JOURNAL = "journal.jsonl"
METRICS = "metrics.jsonl"
LOCK = "lock"
SHARDS = "shards"
CHECKPOINTS = "checkpoints"
PLOTS = "plots"
DRAFT = ".part-"  # begins the name of a folder that is being written
