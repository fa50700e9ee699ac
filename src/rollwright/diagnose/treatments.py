"""Which kind of stage a pathology belongs to, and what of this project treats it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Treatment:
    """What helps.

    Args:
        where: the part to look at first: a kind of stage, or ``"grade"``, ``"engine"``.
        stages: names of registered stages, ``"<kind>/<Class>"``.
        methods: names of registered methods.
        do: one sentence.
    """

    where: str
    stages: tuple[str, ...]
    methods: tuple[str, ...]
    do: str


TREATMENTS: dict[str, Treatment] = {
    "zero_variance": Treatment(
        "filter",
        ("filter/ZeroVariance", "allocate/Refill", "allocate/VarianceRounds", "select/EnvQuotas"),
        ("dapo", "vigor", "envsched"),
        "Drop such groups and ask for others, or spend rollouts where rewards vary.",
    ),
    "all_fail": Treatment(
        "select",
        ("select/EnvQuotas", "allocate/BySuccess", "replay/SuccessPool"),
        ("dart", "rlep", "envsched"),
        "Choose easier tasks first, give hard ones more rollouts, or mix in earlier successes; "
        "`rollwright warmstart` teaches the form first.",
    ),
    "entropy_collapse": Treatment(
        "objective",
        ("objective/PPOClip", "generate/LookaheadTree"),
        ("dapo", "latr"),
        "Raise the upper clip, or branch where the model hesitates; check the temperature.",
    ),
    "length_inflation": Treatment(
        "reduce",
        ("filter/Overlong", "reduce/TokenMean", "reduce/ConstantLength"),
        ("dapo", "single_rollout"),
        "Use a reduction in which long wrong answers are not cheap, and a soft penalty near the limit.",
    ),
    "repetition": Treatment(
        "filter",
        ("filter/Overlong", "generate/LookaheadTree"),
        ("dapo", "latr"),
        "Penalise answers that run to the limit, prune branches that say the same; look at some examples.",
    ),
    "truncation": Treatment(
        "filter",
        ("filter/Overlong", "control/KeepFlying", "control/CloseAtTarget"),
        ("dapo", "april", "copris"),
        "Raise max_tokens, penalise softly before the limit, or carry long rollouts over instead of cutting.",
    ),
    "idle_tail": Treatment(
        "control",
        ("control/CloseAtTarget", "control/KeepFlying", "generate/Divided", "allocate/Fill"),
        ("april", "copris", "seer", "areal"),
        "Close the step when the batch is full and carry the rest over, or let rollouts run ahead.",
    ),
    "staleness": Treatment(
        "objective",
        ("objective/DecoupledPPO", "objective/TwoSidedMask"),
        ("areal", "sao"),
        "Let fewer steps run ahead (num_ahead, max_age), or use an objective made for old rollouts.",
    ),
    "ratio_tails": Treatment(
        "objective",
        ("objective/TwoSidedMask", "objective/GSPO", "objective/DecoupledPPO"),
        ("sao", "areal"),
        "Lower the learning rate or the updates per batch, or mask tokens outside the trust region.",
    ),
    "mismatch": Treatment(
        "engine",
        ("objective/Reinforce", "objective/DecoupledPPO"),
        ("single_rollout", "areal"),
        "Sampler and learner disagree on one version: check weights, precision, temperature and cuts; "
        "truncated importance weights limit the harm.",
    ),
    "hacked_format": Treatment(
        "grade",
        ("filter/ZeroVariance",),
        ("dapo",),
        "Pay for the form only together with the answer: a rubric whose form is a gate, not a sum.",
    ),
    "hacked_cue": Treatment(
        "grade",
        (),
        (),
        "Read the examples; grade with an exact checker, or a judge that sees the final answer only.",
    ),
    "duplicates": Treatment(
        "generate",
        ("generate/LookaheadTree", "allocate/VarianceRounds", "allocate/BySuccess"),
        ("latr", "vigor", "dart"),
        "Ask for fewer rollouts where they agree, raise the temperature, or prune equal branches.",
    ),
    "tree_collapse": Treatment(
        "generate",
        ("generate/LookaheadTree", "generate/Independent"),
        ("latr", "grpo"),
        "Branch earlier or by a higher threshold, or start independent roots.",
    ),
    "starving": Treatment(
        "replay",
        ("control/KeepFlying", "control/CloseAtTarget", "objective/DecoupledPPO"),
        ("copris", "april", "areal"),
        "Carry slow rollouts over instead of dropping them, and allow a greater age.",
    ),
    "skewed": Treatment(
        "control",
        ("control/KeepFlying", "replay/FullBatch", "allocate/Even"),
        ("copris", "grpo"),
        "An early close or a limit of age prefers short rollouts: keep the surplus for the next batch.",
    ),
    "grader_errors": Treatment(
        "grade",
        (),
        (),
        "Read the failures in `rollwright show` and try the grader alone with `rollwright grade`; "
        "unscored rollouts are never trained.",
    ),
}
