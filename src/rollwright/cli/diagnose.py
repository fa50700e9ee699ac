"""`rollwright diagnose`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from rollwright.store.strict import dumps

if TYPE_CHECKING:
    from rollwright.diagnose.report import Diagnosis


def diagnose(
    run: Path,
    /,
    *,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Find what is wrong with a run, with evidence, and name what treats it.

    Exit code 0: nothing found, 1: something found, 2: the run cannot be read.

    For example:

    `rollwright diagnose runs/first`

    `rollwright diagnose runs/first --json`

    Args:
        run: The run folder; its shards alone will do.
        as_json: Print everything as one JSON object instead, for programs.
    """
    import dataclasses

    from rollwright.diagnose.report import diagnose as look
    from rollwright.errors import ConfigError, StoreError

    try:
        found = look(run)
    except StoreError as error:
        raise ConfigError(str(error)) from error
    if as_json:
        text, _ = dumps({"run": str(run), "diagnoses": [dataclasses.asdict(one) for one in found]})
        sys.stdout.write(text + "\n")
    else:
        console = Console()
        for line in lines(found):
            console.print(Text(line), soft_wrap=True)
    return int(any(one.finding.status == "found" for one in found))


def lines(found: list[Diagnosis]) -> list[str]:
    """Return the diagnoses as text: what was found in full, the rest in a line each."""
    text: list[str] = []
    for one in found:
        finding, treatment = one.finding, one.treatment
        if finding.status != "found":
            text.append(f"{finding.status:<11}  {one.name}: {finding.evidence}")
            continue
        text.append(f"FOUND        {one.name} ({finding.sure}): {finding.evidence}")
        if finding.steps is not None:
            text.append(f"             steps {finding.steps[0]} to {finding.steps[1]}")
        if finding.examples:
            text.append(f"             see {', '.join(finding.examples)}")
        names = [f"stages {', '.join(treatment.stages)}"] if treatment.stages else []
        names += [f"methods {', '.join(treatment.methods)}"] if treatment.methods else []
        text.append(f"             {treatment.where}: {treatment.do}")
        if names:
            text.append(f"             {'; '.join(names)}")
        text.append("")
    num = sum(one.finding.status == "found" for one in found)
    told = sum(one.finding.status != "cannot tell" for one in found)
    text.append(f"{num} found; {told} of {len(found)} detectors could tell")
    return text
