"""The config: exact round trip, and nothing accepted and ignored (case G02)."""

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollwright.config import Deadlines, RunConfig, SamplingConfig, dump_config, load_config, parse_override
from rollwright.errors import ConfigError, UnknownName
from rollwright.ledger import Unit

texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
counts = st.integers(1, 10**12)
numbers = st.floats(0, exclude_min=True)
options = st.recursive(
    st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"), max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
configs = st.builds(
    RunConfig,
    task=texts,
    method=texts,
    model=st.none() | texts,
    seed=st.integers(),
    num_steps=counts,
    max_tokens=st.none() | counts,
    lr=numbers,
    betas=st.tuples(*[st.floats(0, 1, exclude_max=True)] * 2),
    max_grad_norm=numbers,
    threads=st.none() | counts,
    on_failure=st.sampled_from(["drop_sample", "drop_group", "stop"]),
    max_age=st.none() | st.integers(0, 9),
    out=st.none() | texts,
    sampling=st.builds(SamplingConfig, temperature=numbers, top_p=st.floats(0.1, 1), top_k=st.integers(0, 9)),
    deadlines=st.builds(Deadlines, rollouts_s=numbers),
    budget=st.dictionaries(st.sampled_from([unit.value for unit in Unit]), numbers, max_size=3),
    method_options=st.dictionaries(texts, options, max_size=3),
)


def written(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("config") / "config.toml"
    path.write_text(text, encoding="utf-8")
    return path


@given(configs)
@settings(max_examples=200, deadline=None)
def test_round_trip_is_exact(tmp_path_factory, config):
    """Oracle: the config itself; JSON tells 1 from 1.0 from true and every bit of a float.

    TOML sets tables after plain values, so the order of a method's options is not kept.
    """
    path = tmp_path_factory.getbasetemp() / "config.toml"
    path.write_text(dump_config(config), encoding="utf-8")
    read = load_config(path)
    assert read == config
    texts = [json.dumps(dataclasses.asdict(each), sort_keys=True) for each in (read, config)]
    assert texts[0] == texts[1]


def test_dump_is_full():
    """Oracle: the fields; every setting stands in the text, None ones as comments."""
    text = dump_config(RunConfig(task="calc"))
    for kind in (RunConfig, SamplingConfig, Deadlines):
        for setting in dataclasses.fields(kind):
            assert setting.name in text
    assert "# model is not set\n" in text


def case_g02(values):
    try:
        load_config(None, {"task": "calc"} | values)
    except ConfigError as error:
        return f"error: {error}"
    return "ok"


def test_case_g02():
    """Golden, case G02 (prime-rl#3268): resume needs checkpoints, a feature that is off needs nothing."""
    assert case_g02({"resume": "latest", "checkpoint_every": 0}).startswith("error: resume needs checkpoint")
    assert case_g02({"eval_every": 0, "eval_tasks": 0, "checkpoint_every": 0, "keep_checkpoints": 0}) == "ok"
    got = case_g02({"temprature": 0.7})
    assert got.startswith("error: unknown key 'temprature', did you mean 'temperature'?")


def test_checks_come_with_their_feature():
    """Metamorphic: the same value is refused once the feature is on."""
    assert case_g02({"eval_tasks": 0}) == "ok"
    assert case_g02({"eval_tasks": 0, "eval_every": 5}) == "error: eval_tasks: given 0, expected 1 or more"
    assert "keep_checkpoints: given 0" in case_g02({"keep_checkpoints": 0})


def test_resume_needs_a_run_that_can_go_on(tmp_path):
    """Never from scratch when the user asked to resume. Oracle: the message for each lack."""
    run = tmp_path / "run"
    assert "no run folder" in case_g02({"resume": str(run)})
    run.mkdir()
    (run / "config.toml").write_text('task = "calc"\n')
    assert "resume needs a checkpoint" in case_g02({"resume": str(run)})
    (run / "checkpoints" / "step-00000000").mkdir(parents=True)
    assert case_g02({"resume": str(run)}) == "ok"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('task = "calc"\nlearning_rat = 1', r"unknown key 'learning_rat'"),
        ('task = "calc"\nnum_step = 1', r"did you mean 'num_steps'\?"),
        (
            'task = "calc"\n[sampling]\ntop_q = 1',
            r"unknown key in \[sampling\] 'top_q', did you mean 'top_p'\?",
        ),
        ('task = "calc"\n[budget]\ntokens = 1', r"unknown unit in \[budget\] 'tokens'"),
    ],
)
def test_unknown_keys_are_refused(tmp_path_factory, text, message):
    """Oracle: the key in the message, with the closest known one."""
    with pytest.raises(UnknownName, match=message):
        load_config(written(tmp_path_factory, text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('lr = "fast"', r"lr: given 'fast' \(str\), expected a number"),
        ("lr = true", r"lr: given True \(bool\), expected a number"),
        ("lr = nan", "lr: given nan, expected a number > 0"),
        ("num_steps = 1.5", r"num_steps: given 1.5 \(float\), expected a whole number"),
        ("num_steps = true", r"num_steps: given True \(bool\), expected a whole number"),
        ("num_steps = 0", "num_steps: given 0, expected 1 or more"),
        ("model = 3", r"model: given 3 \(int\), expected a string"),
        ("betas = [0.9]", r"betas: given \[0.9\] \(list\), expected a list of 2 numbers"),
        ("betas = [0.9, 1.0]", "betas: given"),
        ('on_failure = "ignore"', r"on_failure: given 'ignore' \(str\), expected one of 'drop_sample'"),
        ("temperature = 0.7", r"key 'temperature' belongs into the section \[sampling\]"),
        ("sampling = 3", r"sampling: given 3, expected a table"),
        ("[sampling]\ntop_p = 0", r"sampling.top_p: given 0.0, expected a number in \(0, 1\]"),
        ("[sampling]\ntemperature = 0", "temperature: given 0.0, expected a number > 0: greedy"),
        ('[sampling]\ntop_k = "all"', r"sampling.top_k: given 'all' \(str\), expected a whole number"),
        ('[budget]\nrollouts = "1"', r"budget.rollouts: given '1' \(str\), expected a number"),
        ("[budget]\nrollouts = nan", "budget.rollouts: given nan, expected a number ≥ 0"),
        ("[budget]\nrollouts = -1", "budget.rollouts: given -1.0, expected a number ≥ 0"),
        ("[method_options]\nstart = 2020-01-01", r"method_options.start: given datetime.*expected a string"),
        ("method_options = 3", r"method_options: given 3 \(int\), expected a table"),
        ("lr = = 3", "is not TOML"),
    ],
)
def test_wrong_values_say_key_given_expected(tmp_path_factory, text, message):
    """Oracle: key, given and expected in the message."""
    with pytest.raises(ConfigError, match=message):
        load_config(written(tmp_path_factory, 'task = "calc"\n' + text))


def test_task_is_needed_and_file_must_exist(tmp_path):
    """Oracle: the messages."""
    with pytest.raises(ConfigError, match="no task is given"):
        load_config()
    with pytest.raises(ConfigError, match="cannot read the config"):
        load_config(tmp_path / "none.toml")


def test_none_in_options_is_refused():
    """TOML has no null, so None could not round-trip. Oracle: the message."""
    with pytest.raises(ConfigError, match=r"method_options\.a\.b: given None.*leave the key out"):
        RunConfig(task="calc", method_options={"a": {"b": None}})
    assert RunConfig(task="calc", method_options={"a": (1, 2)}).method_options == {"a": [1, 2]}


def test_overrides_win(tmp_path_factory):
    """Golden: dotted keys, the last part of a section's key alone, None passed over, whole to number."""
    path = written(tmp_path_factory, 'task = "calc"\nlr = 1\n[sampling]\ntop_k = 3\n')
    config = load_config(
        path,
        {
            "lr": None,
            "seed": 5,
            "temperature": 0.5,
            "sampling.top_p": 0.9,
            "budget.rollouts": 10,
            "method_options.group.size": 8,
        },
    )
    assert (config.lr, config.seed) == (1.0, 5) and type(config.lr) is float
    assert config.sampling == SamplingConfig(temperature=0.5, top_p=0.9, top_k=3)
    assert config.budget == {"rollouts": 10.0}
    assert config.method_options == {"group": {"size": 8}}
    with pytest.raises(ConfigError, match="'lr' is no table"):
        load_config(path, {"lr.x": 3})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lr=1e-4", ("lr", 1e-4)),
        ("task=calc", ("task", "calc")),
        ('task = "calc"', ("task", "calc")),
        ("betas=[0.9, 0.95]", ("betas", [0.9, 0.95])),
        ("model=/a=b/c", ("model", "/a=b/c")),
        ("method_options.soft=true", ("method_options.soft", True)),
    ],
)
def test_override_text(text, expected):
    """Golden."""
    assert parse_override(text) == expected


def test_settings_of_rewards_need_a_reward(tmp_path):
    """Oracle: nothing is accepted and ignored; out of range is refused with the key; the table is read."""
    file = tmp_path / "c.toml"
    file.write_text('task = "lake"\n[rewards]\ntimeout_s = 5\n[rewards.weights]\nf = 2\n')
    with pytest.raises(ConfigError, match=r"\[rewards\] given without reward"):
        load_config(file)
    config = load_config(file, {"reward": "r.py:f"})
    assert config.rewards.timeout_s == 5.0 and config.rewards.weights == {"f": 2.0}
    with pytest.raises(ConfigError, match=r"rewards\.timeout_s: given 0"):
        load_config(file, {"reward": "r.py:f", "rewards.timeout_s": 0})


def test_override_without_value():
    """Oracle: the message."""
    for text in ("lr", "=3"):
        with pytest.raises(ConfigError, match="expected key=value"):
            parse_override(text)
