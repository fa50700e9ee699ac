"""Checkpoints: weights, optimizer, version; written whole or not at all.

A checkpoint is a folder ``v00000012`` with a Hugging Face model (model.safetensors, config.json and, if
given, the tokenizer), optimizer.safetensors, reference.safetensors where the objective reads a reference,
and state.json, which holds the version, the sizes and hashes of the other files and the caller's own
values. It is written under another name, flushed to the disk and renamed, so no crash leaves half of one.
The learner's randomness depends on its seed and version only, so no generator has to be saved.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from rollwright.engine.checkpoint import Tokenizer, load_model, save_model
from rollwright.errors import ModelError, StoreError
from rollwright.learn.learner import Learner

FORMAT = 1
STATE = "state.json"
_MOMENTS = ("exp_avg", "exp_avg_sq", "step")
_log = logging.getLogger(__name__)


def save_checkpoint(
    folder: str | Path,
    learner: Learner,
    extra: Mapping[str, Any] | None = None,
    keep: int = 2,
    tokenizer_from: str | Path | Tokenizer | None = None,
) -> Path:
    """Write a checkpoint of the learner's version; remove all but the newest ``keep``.

    Args:
        folder: where the checkpoints of the run lie; made if missing.
        learner: what to save.
        extra: JSON values of the caller (journal position, seeds, ...), given back by `load_checkpoint`.
        keep: how many to keep, ≥ 1.
        tokenizer_from: whose tokenizer files to add, so that the folder loads as a model of its own.

    Returns:
        The checkpoint's folder.

    Raises:
        StoreError: it cannot be written, for example because the disk is full; earlier checkpoints are
            as they were.
    """
    num_bytes = 4 * sum(p.numel() * p.element_size() for p in learner.model.parameters())

    def write(partial: Path) -> None:
        _write(partial, learner, dict(extra or {}), tokenizer_from)

    return _keep(Path(folder), learner.version, write, num_bytes, keep)


def files_of(path: str | Path) -> dict[str, bytes]:
    """Return a checkpoint's files by name, to be sent elsewhere: see `keep_files`."""
    return {file.name: file.read_bytes() for file in sorted(Path(path).iterdir())}


def keep_files(folder: str | Path, files: Mapping[str, bytes], keep: int = 2) -> Path:
    """Write a checkpoint that was made elsewhere (``files`` is what `files_of` gave); see `save_checkpoint`.

    Raises:
        StoreError: the files are not a whole checkpoint, or cannot be written; earlier checkpoints are as
            they were.
    """

    def write(partial: Path) -> None:
        partial.mkdir()
        for name, content in files.items():
            (partial / name).write_bytes(content)
            _sync(partial / name)
        if problem := damage(partial):
            raise StoreError(
                f"the checkpoint that was sent is damaged: {problem}; resume from an earlier one"
            )
        _sync(partial)

    if STATE not in files:
        raise StoreError(f"the files that were sent are no checkpoint: {sorted(files)} lack {STATE}")
    version = json.loads(files[STATE])["version"]
    return _keep(Path(folder), version, write, sum(map(len, files.values())), keep)


def _keep(folder: Path, version: int, write: Callable[[Path], None], num_bytes: int, keep: int) -> Path:
    """Let a checkpoint be written aside and put it in place; remove the oldest."""
    target = folder / f"v{version:08d}"
    partial = folder / f".partial-{target.name}"
    with _told_where(target, num_bytes):
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        try:
            write(partial)
            _put_in_place(partial, target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    older = [path for path in checkpoints(folder) if path < target]
    for path in older[: len(older) - (keep - 1)]:
        shutil.rmtree(path)
    return target


def _put_in_place(partial: Path, target: Path) -> None:
    """Rename the finished folder; one of the same version, from before a resume, makes room."""
    before = target.with_name(f".before-{target.name}")
    shutil.rmtree(before, ignore_errors=True)
    if target.exists():
        target.rename(before)
    partial.rename(target)
    _sync(target.parent)
    shutil.rmtree(before, ignore_errors=True)


def checkpoints(folder: str | Path) -> list[Path]:
    """Return the checkpoints in ``folder``, oldest first, damaged ones among them."""
    return sorted(p for p in Path(folder).glob("v*") if p.is_dir() and p.name[1:].isdigit())


def newest(folder: str | Path) -> Path | None:
    """Return the newest whole checkpoint, or None if there is no checkpoint at all.

    A damaged one is passed over with a warning in the log; it is never loaded.

    Raises:
        StoreError: there are checkpoints, but none is whole.
    """
    found = checkpoints(folder)
    problems = []
    for path in reversed(found):
        problem = damage(path)
        if problem is None:
            return path
        problems.append(problem)
        _log.warning("checkpoint passed over: %s", problem)
    if found:
        raise StoreError(f"no whole checkpoint in {folder}: {'; '.join(problems)}; start a new run")
    return None


def damage(path: Path) -> str | None:
    """Return what is wrong with a checkpoint, or None if it is whole."""
    try:
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
        files: dict[str, dict[str, Any]] = state["files"]
        for name, want in files.items():
            size = (path / name).stat().st_size
            if size != want["size"]:
                return f"{path / name} has {size} bytes, expected {want['size']}"
            if _hash(path / name) != want["blake2b"]:
                return f"{path / name} does not have the content that was written"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{path}: {type(error).__name__}: {error}"
    if state.get("format") != FORMAT:
        return f"{path} has format {state.get('format')}, expected {FORMAT}"
    return None


def load_checkpoint(path: str | Path, learner: Learner) -> dict[str, Any]:
    """Fill the learner (weights in place) from a checkpoint folder; return the caller's ``extra``.

    Raises:
        StoreError: the checkpoint is damaged or of another model or objective; the learner is unchanged.
    """
    path = Path(path)
    if problem := damage(path):
        raise StoreError(f"the checkpoint is damaged: {problem}; load an earlier one")
    state = json.loads((path / STATE).read_text(encoding="utf-8"))
    reference = path / "reference.safetensors"
    if learner.ref_model is not None and not reference.exists():
        raise StoreError(f"checkpoint {path} has no reference, but {learner.objective} reads one")
    try:
        weights: dict[str, Tensor] = dict(load_model(path).named_parameters())
        moments = load_file(path / "optimizer.safetensors")
        ref_weights = load_file(reference) if learner.ref_model is not None else {}
    except (ModelError, SafetensorError, OSError) as error:
        raise StoreError(f"checkpoint {path} cannot be loaded: {error}") from error
    _check_fits(path, weights, learner)
    _copy_into(learner.model, weights)
    if learner.ref_model is not None:
        _copy_into(learner.ref_model, ref_weights)
    _load_moments(learner, moments)
    learner.version, learner.num_steps = state["version"], state["num_steps"]
    return dict(state["extra"])


def _write(
    partial: Path, learner: Learner, extra: dict[str, Any], tokenizer_from: str | Path | Tokenizer | None
) -> None:
    partial.mkdir()
    save_model(learner.model, partial, tokenizer_from)
    save_file(_moments(learner), partial / "optimizer.safetensors")
    if learner.ref_model is not None:
        save_file(_tensors(learner.ref_model), partial / "reference.safetensors")
    for file in sorted(partial.iterdir()):
        _sync(file)
    state = {
        "format": FORMAT,
        "version": learner.version,
        "num_steps": learner.num_steps,
        "config": asdict(learner.cfg),
        "torch": torch.__version__,
        "files": {
            file.name: {"size": file.stat().st_size, "blake2b": _hash(file)}
            for file in sorted(partial.iterdir())
        },
        "extra": extra,
    }
    (partial / STATE).write_text(json.dumps(state, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    _sync(partial / STATE)
    _sync(partial)


@contextmanager
def _told_where(target: Path, num_bytes: int) -> Iterator[None]:
    """Turn a failure to write into a StoreError that says what to do."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        place = target.parent if target.parent.exists() else target.parent.parent
        free = shutil.disk_usage(place).free if place.exists() else 0
        raise StoreError(
            f"checkpoint {target} could not be written ({error}); it needs about {num_bytes / 1e6:.1f} MB and"
            f" {free / 1e6:.1f} MB are free. Make room or give another folder, then resume the run: earlier"
            " checkpoints are as they were"
        ) from error


def _tensors(model: torch.nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().cpu().contiguous().clone() for name, p in model.named_parameters()}


def _moments(learner: Learner) -> dict[str, Tensor]:
    """Return the optimizer's tensors as ``"<moment>/<parameter>"``."""
    found = {}
    for name, parameter in learner.model.named_parameters():
        for moment, value in learner.optimizer.state.get(parameter, {}).items():
            found[f"{moment}/{name}"] = value.detach().cpu().clone()
    return found


def _load_moments(learner: Learner, tensors: Mapping[str, Tensor]) -> None:
    learner.optimizer.state.clear()
    for name, parameter in learner.model.named_parameters():
        if f"step/{name}" in tensors:
            moments = {moment: tensors[f"{moment}/{name}"].clone() for moment in _MOMENTS}
            for moment in _MOMENTS:
                moments[moment] = moments[moment].to(parameter.device)
            learner.optimizer.state[parameter] = moments


def _check_fits(path: Path, tensors: Mapping[str, Tensor], learner: Learner) -> None:
    ours = {name: tuple(p.shape) for name, p in learner.model.named_parameters()}
    theirs = {name: tuple(value.shape) for name, value in tensors.items()}
    if ours != theirs:
        off = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
        raise StoreError(
            f"checkpoint {path} is of another model: {off[0]} is {theirs.get(off[0])} there and"
            f" {ours.get(off[0])} in the learner ({len(off)} tensors differ); resume with the run's own model"
        )


@torch.no_grad()
def _copy_into(model: torch.nn.Module, tensors: Mapping[str, Tensor]) -> None:
    for name, parameter in model.named_parameters():
        parameter.copy_(tensors[name])


def _hash(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _sync(path: Path) -> None:
    """Flush a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
