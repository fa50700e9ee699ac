"""What the engine answers: chunks, stops, aborts, forks, counts and refusals."""

from __future__ import annotations

import random

import pytest
import torch
from engine_help import Answer, ask, characters, config, lively_model, run

from rollwright.engine.inprocess import LocalEngine
from rollwright.errors import EngineError, ModelError
from rollwright.rng import stream_key
from rollwright.tree import Sampling, StopReason

PROMPT = [5, 9, 13, 20, 21, 22, 40]


@pytest.fixture(scope="module")
def model():
    return lively_model()


def engine(model, **changes) -> LocalEngine:
    return LocalEngine(model, characters(eos=()), **changes)


def test_records_agree_with_a_plain_forward_pass(model):
    """Oracle: the packed forward: logprob and entropy of every step, to 1e-4."""
    asks = [ask(f"a{i}", PROMPT[: i + 1], sampling=Sampling(temperature=0.7)) for i in range(7)]
    answers = run(engine(model), asks)
    for command, prefix in asks:
        got = answers[command.ask]
        tokens = torch.tensor(prefix + list(got.tokens))
        with torch.no_grad():
            logits = model.logits(model.hidden_packed(tokens, [len(tokens)])) / 0.7
        logp = torch.log_softmax(logits, -1)[len(prefix) - 1 : -1]
        want = logp.gather(1, tokens[len(prefix) :, None])[:, 0]
        torch.testing.assert_close(torch.tensor(got.logprobs), want, atol=1e-4, rtol=0)
        entropy = -(logp * logp.exp()).sum(-1)
        torch.testing.assert_close(torch.tensor(got.entropies), entropy, atol=1e-4, rtol=0)
        assert got.kept_masses == () and got.stop is StopReason.LENGTH and len(got.tokens) == 20


def test_cut_distributions_carry_their_kept_mass(model):
    """Oracle: the packed forward: ln p of the token minus ln of the kept mass."""
    (_, prefix), *_ = asks = [ask("a", PROMPT, sampling=Sampling(top_k=3))]
    got = run(engine(model), asks)["a"]
    tokens = torch.tensor(prefix + list(got.tokens))
    with torch.no_grad():
        logp = torch.log_softmax(model.logits(model.hidden_packed(tokens, [len(tokens)])), -1)
    logp = logp[len(prefix) - 1 : -1]
    mass = logp.exp().topk(3).values.sum(-1)
    torch.testing.assert_close(torch.tensor(got.kept_masses), mass, atol=1e-4, rtol=0)
    want = logp.gather(1, tokens[len(prefix) :, None])[:, 0] - mass.log()
    torch.testing.assert_close(torch.tensor(got.logprobs), want, atol=1e-4, rtol=0)


def test_a_groups_prompt_is_prefilled_once(model):
    """Oracle: closed form: 7 prompt tokens, 8 samples: 6 prefilled (the last is the first decode step)."""
    answers = run(engine(model), [ask(f"a{i}", PROMPT) for i in range(8)])
    assert sorted(a.prefilled for a in answers.values()) == [0] * 7 + [len(PROMPT) - 1]
    assert len({a.tokens for a in answers.values()}) == 8


def test_chunks_depend_on_the_sequences_own_count(model):
    """Oracle: closed form: 20 tokens in chunks of 6, whatever runs beside."""
    for others in (0, 5):
        asks = [ask("a", PROMPT, chunk=6)] + [ask(f"o{i}", [3], chunk=i, max_tokens=9) for i in range(others)]
        assert run(engine(model), asks)["a"].chunks == (6, 6, 6, 2)
    assert run(engine(model), [ask("a", PROMPT)])["a"].chunks == (20,)


def test_max_tokens_and_context_end_a_node(model):
    """Oracle: closed form: LENGTH at max_tokens, CONTEXT when 256 positions are full."""
    answers = run(engine(model), [ask("a", PROMPT, max_tokens=1), ask("b", [4] * 250, max_tokens=50)])
    assert (answers["a"].stop, len(answers["a"].tokens)) == (StopReason.LENGTH, 1)
    assert (answers["b"].stop, len(answers["b"].tokens)) == (StopReason.CONTEXT, 6)


def test_end_tokens_and_stop_ids_are_kept_as_last_step(model):
    """Oracle: the run without them, cut after the first hit."""
    free = run(engine(model), [ask("a", PROMPT, max_tokens=60)])["a"].tokens
    hit = free[10]
    num = free.index(hit) + 1
    other = next(i for i in range(64) if i not in free)
    stopped = run(engine(model), [ask("a", PROMPT, max_tokens=60, sampling=Sampling(stop_ids=(other, hit)))])[
        "a"
    ]
    assert (stopped.tokens, stopped.stop) == (free[:num], StopReason.STOP)
    ended = run(LocalEngine(model, characters(eos=(hit,))), [ask("a", PROMPT, max_tokens=60)])["a"]
    assert (ended.tokens, ended.stop) == (free[:num], StopReason.EOS)


def test_stop_strings_end_with_the_token_that_completes_them(model):
    """Oracle: decoding the free run in full (case T06): nothing after the completing token."""
    tokenizer = characters(eos=())
    free = run(engine(model), [ask("a", PROMPT, max_tokens=60)])["a"]
    text = tokenizer.decode(list(free.tokens))
    string = next(text[i : i + 3] for i in range(20, 50) if "<" not in text[i - 3 : i + 6])
    want = next(n for n in range(61) if string in tokenizer.decode(list(free.tokens[:n])))
    got = run(engine(model), [ask("a", PROMPT, max_tokens=60, sampling=Sampling(stop_strings=(string,)))])[
        "a"
    ]
    assert (got.tokens, got.stop) == (free.tokens[:want], StopReason.STOP)
    assert len(got.logprobs) == len(got.tokens) == len(got.entropies)
    assert got.logprobs == free.logprobs[:want]


def test_a_stop_string_may_span_an_interruption(model):
    """Oracle: the uninterrupted run. Broken by: dropping turn_start from the check."""
    tokenizer = characters(eos=())
    free = run(engine(model), [ask("a", PROMPT, max_tokens=60)])["a"].tokens
    text = tokenizer.decode(list(free))
    string = next(text[i : i + 3] for i in range(20, 50) if "<" not in text[i - 3 : i + 6])
    how = Sampling(stop_strings=(string,))
    whole = run(engine(model), [ask("a", PROMPT, max_tokens=60, sampling=how)])["a"].tokens
    made = list(whole[:-1])
    key = stream_key(0, "g", "a")
    rest = ask("b", PROMPT + made, stream=key, sampling=how, turn_start=len(PROMPT), max_tokens=9)
    assert run(engine(model), [rest])["b"].tokens == whole[-1:]
    without = ask("b", PROMPT + made, stream=key, sampling=how, max_tokens=9)
    assert len(run(engine(model), [without])["b"].tokens) > 1


def test_forced_first_token_and_alternatives(model):
    """Oracle: the packed forward: the model's own logprob, and its most likely tokens."""
    command = ask("a", PROMPT, first=33, num_top=4, max_tokens=5)
    got = run(engine(model), [command, ask("b", PROMPT)])["a"]
    assert got.tokens[0] == 33
    with torch.no_grad():
        logp = torch.log_softmax(model.logits(model.hidden_packed(torch.tensor(PROMPT), [7])), -1)[-1]
    assert got.logprobs[0] == pytest.approx(logp[33].item(), abs=1e-4)
    assert [i for i, _ in got.top[0]] == logp.topk(4).indices.tolist()
    assert len(got.top) == 5 and all(len(t) == 4 for t in got.top)


def test_abort_returns_what_was_made(model):
    """Oracle: the uninterrupted run's beginning."""
    whole = run(engine(model), [ask("a", PROMPT)])["a"]
    local = engine(model)
    local.submit(*ask("a", PROMPT))
    local.submit(*ask("b", PROMPT, max_tokens=5))
    local.step()
    answer = local.abort("a")
    assert answer.stop is StopReason.INTERRUPTED
    assert answer.tokens == whole.tokens[:5] and answer.logprobs == whole.logprobs[:5]
    assert local.num_live == 0 and local.step() == []
    with pytest.raises(EngineError, match="no ask 'a'"):
        local.abort("a")


def test_abort_of_a_waiting_ask_is_empty(model):
    """Oracle: closed form: nothing was sampled."""
    local = engine(model, max_batch=1)
    local.submit(*ask("a", PROMPT))
    local.submit(*ask("b", PROMPT))
    local.step()
    local.submit(*ask("c", PROMPT))
    answer = local.abort("c")
    assert (answer.tokens, answer.logprobs, answer.stop) == ((), (), StopReason.INTERRUPTED)
    assert local.num_live == 1


def test_a_fork_needs_no_prefill_and_equals_a_fresh_one(model):
    """Oracle: the same ask on an engine that never saw the parent, bit for bit."""
    local = engine(model)
    local.submit(*ask("parent", PROMPT, chunk=8, max_tokens=30))
    (first,) = local.step()
    prefix = [*PROMPT, *first.tokens[:5]]
    forks = [ask(f"fork{i}", prefix, first=50 + i) for i in range(3)]
    for fork in forks:
        local.submit(*fork)
    answers = {f"fork{i}": Answer() for i in range(3)} | {"parent": Answer()}
    while local.num_live:
        for event in local.step():
            answers[event.ask].add(event)
    fresh = run(engine(model), forks)
    for name in fresh:
        assert answers[name].prefilled == 0
        assert answers[name].exact == fresh[name].exact
    assert (
        answers["parent"].tokens
        == run(engine(model), [ask("parent", PROMPT, max_tokens=30)])["parent"].tokens[8:]
    )


def test_the_next_turn_prefills_only_what_is_new(model):
    """Oracle: closed form: 4 observation tokens and the turn's last token, which was not fed yet."""
    local = engine(model)
    turn = run(local, [ask("a", PROMPT)])["a"]
    prefix = [*PROMPT, *turn.tokens, 8, 8, 7, 6]
    second = run(local, [ask("b", prefix)])["b"]
    assert second.prefilled == 4
    fresh = run(engine(model), [ask("b", prefix)])["b"]
    assert second.exact == fresh.exact and fresh.prefilled == len(prefix) - 1


def test_retired_groups_leave_the_cache(model):
    """Oracle: closed form: after retire the prompt is prefilled again; before it is not."""
    local = engine(model)
    run(local, [ask("a", PROMPT)])
    assert run(local, [ask("b", PROMPT)])["b"].prefilled == 0
    local.retire("g")
    assert local.memory_report()["kv_cached_bytes"] == 0
    assert run(local, [ask("c", PROMPT)])["c"].prefilled == len(PROMPT) - 1


def test_case_l03_answers_are_joined_by_ask(model):
    """Oracle: case L03: contexts A+x, A+y, B+z each get the completion of their own context."""
    contexts = {"0": [4, 5, 10], "1": [4, 5, 11], "2": [6, 7, 12]}
    together = run(engine(model), [ask(name, prefix) for name, prefix in contexts.items()])
    for name, prefix in contexts.items():
        assert together[name].exact == run(engine(model), [ask(name, prefix)])[name].exact


def test_cases_d01_d02_seeds_reach_the_sampler(model):
    """Oracle: cases D01 and D02: another seed, other samples; the same seed, the same; a group differs."""

    def answers(seed):
        asks = [
            ask(f"{g}.{k}", [g + 3, 4, 5], group=f"g{g}", stream=stream_key(seed, f"t{g}", f"0/{k}"))
            for g in range(8)
            for k in range(8)
        ]
        return {name: a.tokens for name, a in run(engine(model), asks).items()}

    one, two, again = answers(1), answers(2), answers(1)
    assert one == again and all(one[name] != two[name] for name in one)
    for g in range(8):
        assert len({one[f"{g}.{k}"] for k in range(8)}) == 8


@pytest.mark.parametrize("num_workers", [1, 2, 4])
def test_case_d03_workers_do_not_change_samples(model, num_workers):
    """Oracle: case D03: 1, 2 or 4 engines give the same four completions."""
    asks = [ask(f"p{i}", PROMPT) for i in range(4)]
    got = {}
    for worker in range(num_workers):
        got |= run(engine(model), asks[worker::num_workers])
    want = run(engine(model), asks)
    assert {n: a.exact for n, a in got.items()} == {n: a.exact for n, a in want.items()}


def test_case_d05_events_of_one_step_come_in_submit_order(model):
    """Oracle: case D05: ends [2, 0, 3, 1] by length, yet events that are due together are in start order."""
    local = engine(model)
    for i, num in enumerate([8, 16, 4, 12]):
        local.submit(*ask(f"s{i}", PROMPT, max_tokens=num, chunk=4))
    seen = []
    while local.num_live:
        seen.append([e.ask for e in local.step()])
    assert seen == [["s0", "s1", "s2", "s3"], ["s0", "s1", "s3"], ["s1", "s3"], ["s1"]]


def test_asks_that_cannot_be_served_are_refused(model):
    """Oracle: the message says what was given and what to do."""
    local = engine(model, kv_budget_bytes=64 * 2**10)
    with pytest.raises(EngineError, match="empty prefix"):
        local.submit(*ask("a", []))
    with pytest.raises(EngineError, match="no room in a context of 256"):
        local.submit(*ask("a", [1] * 256))
    with pytest.raises(EngineError, match="outside the vocabulary"):
        local.submit(*ask("a", [64]))
    with pytest.raises(EngineError, match="max_tokens is 0"):
        local.submit(*ask("a", [1], max_tokens=0))
    with pytest.raises(EngineError, match="raise kv_budget_bytes"):
        local.submit(*ask("a", [1], max_tokens=250))
    with pytest.raises(EngineError, match="temperature"):
        local.submit(*ask("a", [1], sampling=Sampling(temperature=-1.0)))
    with pytest.raises(EngineError, match="stop strings need a tokenizer"):
        LocalEngine(model).submit(*ask("a", [1], sampling=Sampling(stop_strings=("x",))))
    with pytest.raises(ModelError, match="end token 99 is outside"):
        LocalEngine(model, characters(eos=(99,)))
    local.submit(*ask("a", [1]))
    with pytest.raises(EngineError, match="in flight already"):
        local.submit(*ask("a", [1]))


def test_a_small_budget_only_takes_longer(model):
    """Metamorphic: the answers are those of a large budget, and the budget holds at every step."""
    rng = random.Random(0)
    asks = [
        ask(f"a{i}", [rng.randrange(64)] * rng.randint(1, 60), max_tokens=rng.randint(1, 80))
        for i in range(30)
    ]
    want = run(engine(model), asks)
    budget = 5 * 144 * engine(model).kv.bytes_per_token
    local = engine(model, kv_budget_bytes=budget)
    for command, prefix in asks:
        local.submit(command, prefix)
    got = {command.ask: Answer() for command, _ in asks}
    while local.num_live:
        for event in local.step():
            got[event.ask].add(event)
        report = local.memory_report()
        assert report["kv_bytes"] <= budget and report["kv_bytes"] == local.kv.pool.nbytes
    assert all(got[n].exact == want[n].exact for n in want)


def test_sleep_frees_what_it_says(model):
    """Oracle: the report before and after; the next ask runs as if nothing had been."""
    local = engine(model)
    want = run(local, [ask("a", PROMPT)])["a"].exact
    before = local.memory_report()
    freed = local.sleep()
    after = local.memory_report()
    assert before["kv_bytes"] > 0 and after["kv_bytes"] == after["packed_bytes"] == 0
    assert freed == before["kv_bytes"] + before["packed_bytes"]
    assert run(local, [ask("a", PROMPT)])["a"].exact == want
    local.submit(*ask("b", PROMPT))
    with pytest.raises(EngineError, match="in flight"):
        local.sleep()


def test_weights_without_numbers_are_an_error_not_a_sample():
    """Oracle: the message; once the weights are repaired every ask goes on as if nothing had been."""
    model = lively_model()
    asks = [ask("a", PROMPT, chunk=4), ask("b", [3, 4])]
    want = run(LocalEngine(model), asks)
    local = LocalEngine(model)
    got = {"a": Answer(), "b": Answer()}
    for item in asks:
        local.submit(*item)
    got["a"].add(*local.step())
    weight = model.layers[0].down_proj.weight
    good = weight[0, 0].item()
    with torch.no_grad():
        weight[0, 0] = float("nan")
    local.publish(1)
    for event in local.step():
        got[event.ask].add(event)
    with pytest.raises(EngineError, match="not finite"):
        local.step()
    with torch.no_grad():
        weight[0, 0] = good
    local.publish(2)
    while local.num_live:
        for event in local.step():
            got[event.ask].add(event)
    assert all(got[name].exact == want[name].exact for name in want)
    assert set(got["b"].versions) == {0, 2}


def test_one_broken_sequence_does_not_spoil_the_others():
    """Oracle: the others alone. Broken by: going on with wiped keys after the error."""
    model = lively_model(config(tie_embeddings=False))
    with torch.no_grad():
        model.embed[50] = float("nan")
    good = [ask("a", PROMPT, chunk=4), ask("c", [3, 4], sampling=Sampling(top_k=3))]
    want = run(LocalEngine(model), good)
    local = LocalEngine(model)
    got = {"a": Answer(), "c": Answer()}
    local.submit(*good[0])
    got["a"].add(*local.step())
    local.submit(*ask("b", [4, 50, 5]))
    local.submit(*good[1])
    with pytest.raises(EngineError, match="logits of ask 'b' are not finite"):
        local.step()
    local.abort("b")
    while local.num_live:
        for event in local.step():
            got[event.ask].add(event)
    assert all(got[name].exact == want[name].exact for name in want)


def test_qwen3_and_llama_shapes_run(model):
    """Oracle: the packed forward, for head norms, one kv head and odd sizes."""
    for changes in (
        {
            "family": "qwen3",
            "qkv_bias": False,
            "qk_norm": True,
            "head_dim": 24,
            "num_heads": 3,
            "num_kv_heads": 1,
        },
        {"family": "llama", "qkv_bias": False, "tie_embeddings": False, "vocab_size": 61, "o_bias": True},
    ):
        other = lively_model(config(**changes))
        got = run(LocalEngine(other), [ask("a", PROMPT, max_tokens=40), ask("b", [3])])["a"]
        tokens = torch.tensor(PROMPT + list(got.tokens))
        with torch.no_grad():
            logp = torch.log_softmax(other.logits(other.hidden_packed(tokens, [len(tokens)])), -1)
        want = logp[len(PROMPT) - 1 : -1].gather(1, tokens[len(PROMPT) :, None])[:, 0]
        torch.testing.assert_close(torch.tensor(got.logprobs), want, atol=1e-4, rtol=0)
