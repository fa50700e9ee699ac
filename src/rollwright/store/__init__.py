"""What a run leaves on disk: the journal, metrics, Parquet shards and checkpoints (docs/formats.md)."""
