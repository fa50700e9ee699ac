"""Files of other frameworks as rows: JSON, JSON lines whose last line may be torn, Parquet, tensors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rollwright.errors import ConfigError, DataError
from rollwright.interop.dump import Notes

Row = dict[str, Any]


def rows_of(path: Path, notes: Notes) -> Iterator[Row]:
    """Yield the rows of a file, by its ending: .jsonl, .json (a list or one object), .parquet, .pt.

    Raises:
        ConfigError: there is no such file.
        DataError: it does not hold objects.
    """
    if not path.is_file():
        raise ConfigError(f"no file {path}; give the dump to import")
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=512):
                yield from batch.to_pylist()
        return
    if path.suffix == ".pt":
        yield _tensors(path)
        return
    whole = _json(path) if path.suffix in (".json", ".traj") else _lines(path, notes)
    for number, row in enumerate(whole, 1):
        if not isinstance(row, dict):
            raise DataError(f"{path}, row {number} is a {type(row).__name__}; expected an object")
        yield row


def _json(path: Path) -> list[Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path} is not JSON ({error}); is the file cut?") from error
    return found if isinstance(found, list) else [found]


def _lines(path: Path, notes: Notes) -> Iterator[Any]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                yield json.loads(line)
            except ValueError as error:
                if not line.endswith("\n"):
                    notes.add(f"the last line ({number}) is torn: left out")
                    return
                raise DataError(f"{path}, line {number} is not JSON ({error})") from error


def _tensors(path: Path) -> Row:
    """Load a file of `torch.save` without running what its pickle names."""
    import pickle

    import torch

    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise DataError(
            f"{path} holds objects that only code could make, and it is not run ({str(error)[:200]}); "
            "save plain lists, numbers, text and tensors"
        ) from error
    if not isinstance(found, dict):
        raise DataError(f"{path} holds a {type(found).__name__}; expected a mapping with 'samples'")
    return found


def need(row: Row, name: str, kind: type | tuple[type, ...] = object) -> Any:
    """Return a field that must be there.

    Raises:
        DataError: it is missing, or of another type.
    """
    if name not in row:
        raise DataError(
            f"a row has no {name!r}; its fields are {', '.join(row) or 'none'}: is it this format?"
        )
    if not isinstance(row[name], kind):
        raise DataError(f"{name!r} is a {type(row[name]).__name__}; is it this format?")
    return row[name]


def number(value: Any, name: str) -> float | None:
    """Return a reward as a number: older verl rows hold '3' or 'True'; NaN is not scored.

    Raises:
        DataError: it is no number.
    """
    if isinstance(value, str):
        value = {"True": 1.0, "False": 0.0, "None": None}.get(value, value)
    if value is None:
        return None
    try:
        found = float(value)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name!r} is {value!r}; expected a number") from error
    return None if found != found else found


def rest(row: Row, *names: str) -> Row:
    """Return what a row holds beside the fields named."""
    return {name: value for name, value in row.items() if name not in names}
