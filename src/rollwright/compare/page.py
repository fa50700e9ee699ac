"""The report as one page of HTML that asks for nothing: no script, no outside asset."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from rollwright.compare import svg
from rollwright.compare.arms import Band
from rollwright.compare.budget import AXES, short
from rollwright.compare.contrast import Contrast, points, span
from rollwright.compare.result import ArmResult, Result
from rollwright.compare.survival import ToTarget
from rollwright.ledger import Fate

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2430; --muted: #5b6472; --line: #d9dee6; --paper: #ffffff; --card:
#f6f8fa;
  --c0: #2563eb; --c1: #c2410c; --c2: #047857; --c3: #7c3aed; --c4: #be123c; --c5: #0e7490; --c6: #a16207;
  --c7: #4b5563; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --muted: #a3adbd; --line: #39414f; --paper:
#14171d;
  --card: #1c212a; --c0: #7aa8ff; --c1: #fb923c; --c2: #4ade80; --c3: #c4b5fd; --c4: #fda4af; --c5: #67e8f9;
  --c6: #fcd34d; --c7: #cbd5e1; } }
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
h3 { font-size: .95rem; margin: 0 0 .25rem; font-weight: 600; }
.muted { color: var(--muted); } .verdict { background: var(--card); border-left: 4px solid var(--c7);
  padding: .6rem .9rem; margin: .5rem 0; } .verdict.found { border-color: var(--c2); font-weight: 600; }
.wide { overflow-x: auto; } table { border-collapse: collapse; min-width: 40rem; }
th, td { text-align: right; padding: .3rem .7rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } td.text { text-align: left; white-space: normal; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1rem; }
figure { margin: 0; background: var(--card); padding: .7rem; border-radius: .4rem; } svg { width: 100%;
height: auto; } .tick, .name { fill: var(--muted); font-size: 12px; } .grid { stroke: var(--line); } .zero {
stroke: var(--muted); } .line { fill: none; stroke-width: 2.2; stroke: currentColor; } .band { opacity: .16;
fill: currentColor; } .bar { stroke: var(--c0); stroke-width: 2; opacity: .6; } .mean { stroke: var(--c0);
stroke-width: 3; } .pair { fill: var(--c1); } .legend span { margin-right: 1rem; white-space: nowrap; }
.legend i { display: inline-block; width: .8rem; height: .8rem; margin-right: .3rem; background: currentColor;
}
""" + "\n".join(f".c{k} {{ color: var(--c{k}); }}" for k in range(svg.NUM_COLOURS))


def page(result: Result) -> str:
    """Return the report."""
    plan = result.plan
    title = f"{plan.task}: {', '.join(arm.label for arm in plan.arms)} at {plan.budget}"
    num = min(arm.num_done for arm in result.arms)
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>",
            f"<h1>{escape(title)}</h1>",
            _muted(
                f"{num} of {len(plan.seeds)} seeds are done in every arm. Runs with one seed share noise, "
                "prompts and held-out tasks. Success is that of samples at temperature 1 on held-out tasks."
            ),
            *(_verdict(one) for one in result.contrasts),
            _success(result),
            _curves(result),
            _pairs(result),
            _target(result),
            _waste(result),
            _spent(result),
            _missing(result),
            _notes(result),
            "</main></body></html>\n",
        ]
    )


def _verdict(one: Contrast) -> str:
    return f'<p class="verdict{" found" if one.is_found else ""}">{escape(one.sentence)}</p>'


def _muted(text: str) -> str:
    return f'<p class="muted">{escape(text)}</p>'


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f'<th scope="col">{escape(text)}</th>' for text in head)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    table = f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide" tabindex="0">{table}</div>'


def percent(band: Band | None) -> str:
    """Return a mean over seeds with its interval, in per cent."""
    if band is None:
        return "-"
    text = f"{100 * band.mean:.1f}%"
    if band.low is None or band.high is None:
        return text
    return f"{text} [{100 * max(band.low, 0):.1f}, {100 * min(band.high, 1):.1f}]"


def _success(result: Result) -> str:
    head = ("arm", "seeds", "before", f"at {result.plan.budget}", "mean over the budget", "greedy", "updates")
    rows = [
        (
            arm.label,
            str(arm.num_done),
            *(percent(band) for band in (arm.start, arm.final, arm.area, arm.greedy)),
            "-" if arm.updates is None else f"{arm.updates:.1f}",
        )
        for arm in result.arms
    ]
    return f"<h2>Success, with 95% intervals over seeds</h2>{_table(head, rows)}"


def _curves(result: Result) -> str:
    figures = []
    for axis in [result.plan.budget.unit, *(axis for axis in AXES if axis != result.plan.budget.unit)]:
        for k in sorted({curve.k for arm in result.arms for curve in arm.curves}):
            name = "success" if k == 1 else f"pass@{k}"
            lines = [
                svg.Line(
                    arm.label,
                    number,
                    curve.amounts,
                    [band.mean for band in curve.bands],
                    [band.low for band in curve.bands if band.low is not None],
                    [band.high for band in curve.bands if band.high is not None],
                )
                for number, arm in enumerate(result.arms)
                for curve in arm.curves
                if curve.axis == axis and curve.k == k
            ]
            title = f"{name} against {AXES[axis]}"
            picture = svg.chart(lines, AXES[axis], name, short, lambda y: f"{100 * y:.0f}%", title)
            figures.append(f"<figure><h3>{escape(title)}</h3>{picture}</figure>")
    legend = "".join(
        f'<span><i class="c{k % svg.NUM_COLOURS}"></i>{escape(arm.label)}</span>'
        for k, arm in enumerate(result.arms)
    )
    return f'<h2>Curves</h2><p class="legend">{legend}</p><div class="charts">{"".join(figures)}</div>'


def _pairs(result: Result) -> str:
    figures = []
    for one in result.contrasts:
        title = f"{one.label} − {one.baseline}, after each pair"
        picture = svg.looks(
            [look.low for look in one.looks],
            [look.high for look in one.looks],
            [look.mean for look in one.looks],
            one.differences,
            points,
            title,
        )
        figures.append(f"<figure><h3>{escape(title)}</h3>{picture}</figure>")
    if not figures:
        return ""
    text = (
        "Points are pairs, in percentage points; dashes their mean so far; bars the interval that holds at "
        "all looks at once."
    )
    return f'<h2>Pairs</h2>{_muted(text)}<div class="charts">{"".join(figures)}</div>'


def to_target_text(found: ToTarget | None) -> str:
    """Return what a target takes: ``38.2k [31k, >40k]``."""
    if found is None:
        return "-"

    def text(value: float | None) -> str:
        return f">{short(found.horizon)}" if value is None else short(value)

    interval = f" [{text(found.low)}, {text(found.high)}]" if found.num > 1 else ""
    return text(found.median) + interval


def ratio_text(arm: ArmResult) -> str:
    """Return an arm's price of the target as a share of the baseline's: ``×0.81 [0.70, 0.95]``."""
    if arm.ratio is None:
        return "-"
    ratio, low, high = arm.ratio
    return f"×{ratio:.2f}" if low is None or high is None else f"×{ratio:.2f} [{low:.2f}, {high:.2f}]"


def _target(result: Result) -> str:
    if result.target is None:
        return ""
    how = (
        "halfway from the start to the best end: chosen from these runs"
        if result.is_target_chosen
        else "as given"
    )
    rows = []
    for arm in result.arms:
        one = next(iter(arm.to_target.values()), None)
        cells = [to_target_text(arm.to_target.get(axis)) for axis in AXES]
        rows.append((arm.label, f"{one.num_reached} of {one.num}" if one else "-", *cells, ratio_text(arm)))
    head = ("arm", "reached", *AXES.values(), "against the baseline")
    text = (
        f"The target is {how}. Median of the Kaplan-Meier curve with its interval over seeds (95%; the least "
        "and the largest of fewer than six); runs that never reached it count as more than they spent. Last "
        "column: ratio of restricted means with its paired bootstrap interval, on the axis of the budget; "
        "below 1 is cheaper."
    )
    return f"<h2>What {100 * result.target:.1f}% success takes</h2>{_muted(text)}{_table(head, rows)}"


def _waste(result: Result) -> str:
    fates = [fate.value for fate in Fate if any(fate.value in arm.fates for arm in result.arms)]
    fates = [
        name for name in fates if any(arm.fates.get(name) and arm.fates[name].mean > 0 for arm in result.arms)
    ]
    rows = [(arm.label, *(percent(arm.fates.get(name)) for name in fates)) for arm in result.arms]
    chosen = [
        (
            arm.label,
            one.measure,
            *("-" if x is None else f"{x:.4g}" for x in (one.mean_sampled, one.mean_trained, one.distance)),
            f"{one.num_suspect} of {one.num}",
        )
        for arm in result.arms
        for one in arm.selection
    ]
    head = ("arm", "measure", "mean sampled", "mean trained", "distance", "runs with p < 0.05")
    return (
        f"<h2>Where the sampled tokens went</h2>{_table(('arm', *fates), rows)}"
        f"<h2>What was sampled against what was trained</h2>{_table(head, chosen)}"
    )


def _spent(result: Result) -> str:
    units = sorted({unit for arm in result.arms for unit, amount in arm.spent.items() if amount})
    rows = [(arm.label, *(short(arm.spent.get(unit, 0.0)) for unit in units)) for arm in result.arms]
    return f"<h2>Spent, mean of a run</h2>{_table(('arm', *(u.replace('_', ' ') for u in units)), rows)}"


def _missing(result: Result) -> str:
    rows = [(arm.label, str(seed), why) for arm in result.arms for seed, why in arm.failed.items()]
    return f"<h2>Runs that are left out</h2>{_table(('arm', 'seed', 'why'), rows)}" if rows else ""


def _notes(result: Result) -> str:
    rows = [
        (
            one.label,
            str(len(one.looks)),
            span(one.looks[-1].low, one.looks[-1].high) if one.looks else "-",
            "-" if one.p_value is None else f"{one.p_value:.3g}",
            "-" if one.p_adjusted is None else f"{one.p_adjusted:.3g}",
            "-" if one.num_more is None else str(one.num_more),
            "-" if one.detectable is None else points(one.detectable, signed=False),
        )
        for one in result.contrasts
    ]
    head = ("arm", "pairs", "interval", "p", "p of all", "more pairs", "found with 80%, points")
    text = (
        f"The chance of any false finding is at most {result.alpha:.0%}, however often one looks and "
        "whenever one stops (e-process of the paired t-test; Holm's rule over arms). It takes the "
        "differences of pairs as normal. It is about these held-out tasks: other tasks may differ."
    )
    return f"<h2>The test</h2>{_table(head, rows)}{_muted(text)}" if rows else ""
