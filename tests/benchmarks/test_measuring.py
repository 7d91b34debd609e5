"""Workloads in fresh processes, and their figures, by hand."""

import jax
import numpy as np
import pytest

from purerl.benchmarks import measuring, named, trainings, turns
from purerl.cli import benchmark_worker
from purerl.errors import ConfigError
from purerl.runs.describing.description import describe

MACHINE = {
    "device": {"platform": "cpu", "kind": "cpu", "count": 2, "processes": 1, "cores": 2},
    "versions": {"python": "3.11.7", "purerl": "0.1.0", "jax": "0.10.2", "jaxlib": "0.10.2"},
    "flags": {},
}


def told(*seconds, frames=6400, compile_seconds=5.0, flags=None, **of_run):
    """What a process tells of rounds of so many ``seconds``."""
    run = {"cores": 1.5, "peak_bytes": 3 * 2**20, "peak_of": "process", **of_run}
    facts = {"frames": frames, "compile_seconds": compile_seconds, "compile_cached": False}
    facts["machine"] = MACHINE | {"flags": flags or {}}
    return {**facts, "rounds": [{"seconds": each, **run} for each in seconds]}


def test_figures_by_hand():
    processes = [told(1, 2, 9), told(4, 4, 4, compile_seconds=7.0), told(5, 2, 1, compile_seconds=1.0)]
    figures = measuring.figures(processes)
    assert figures["frames_per_second"] == {"median": 3200, "low": 1600, "high": 3200}
    assert figures["each_frames_per_second"] == [3200, 1600, 3200]  # of medians of 2, 4 and 2 seconds
    assert figures["compile_seconds"] == {"median": 5, "low": 1, "high": 7}  # apart
    assert figures["seconds"] == {"median": 4, "low": 1, "high": 9} and figures["peak_mib"]["median"] == 3
    threads = [measuring.figures([told(1, flags={"NPROC": number})])["threads"] for number in ("1", "")]
    assert figures["threads"] == 2 and threads == [1, 2]
    assert measuring.figures([]) == {}


def test_figures_of_a_process_of_its_own():
    """It tells of the machine, and how long it compiled, after a run."""
    run = {"seconds": 2.0, "cores": 1.0, "peak_bytes": 2**20, "peak_of": "process", "compile_seconds": 3.0}
    run["compile_cached"] = True
    processes = [{"frames": 800, "rounds": [{**run, "machine": MACHINE, "return": 1.0, "return_error": 0.0}]}]
    figures = measuring.figures(processes)
    assert figures["frames_per_second"]["median"] == 400 and figures["compile_seconds"]["median"] == 3
    assert figures["compile_cached"] and figures["return"] == 1.0 and figures["device"] == MACHINE["device"]


def measured(*names):
    return [measuring.Measured(named.Workload(name, name), {}, [name]) for name in names]


def test_processes_of_workloads_alternate_and_one_that_fails_is_left_alone(monkeypatch):
    asked, noted = [], []

    def measure_once(sides, rounds, number):
        (side,) = sides
        asked.append((side.name, rounds, number, side.request))
        if side.name == "b" and number == 1:
            raise turns.Failed("b", 1, ["why"])
        return {side.name: told(number + 1.0)}

    monkeypatch.setattr(turns, "measure_once", measure_once)
    note = lambda each, so_far, failed: noted.append((each.workload.name, len(so_far), failed and failed.code))
    measuring.measure(measured("a", "b"), measuring.Sizes(4, 5, 6), "a.module", note)
    order = ["a", "b", "b", "a", "a", "a"]
    assert [(name, number) for name, _, number, _ in asked] == list(zip(order, [0, 0, 1, 1, 2, 3], strict=True))
    assert asked[0][1] == 5 and asked[0][3] == {"options": ["a"], "warmups": 6}
    kept = [("a", 1, None), ("b", 1, None), ("b", 1, 1), ("a", 2, None), ("a", 3, None), ("a", 4, None)]
    assert noted == kept


def job(words, **more):
    given = benchmark_worker.read(words.split())
    return trainings.job(describe(given.algo, given.options, given.config), given.options, **more)


def test_frames_are_those_of_all_agents():
    """Whole iterations of 4 environments x 128 steps, of which 1500 frames hold two; and a replay's warm-up counts."""
    assert job("ppo --env CartPole-v1 --total-steps 1500").facts["frames"] == 2 * 512
    assert job("ppo --env CartPole-v1 --total-steps 1500 --num-seeds 5").facts["frames"] == 5 * 2 * 512
    replay = "--num-envs 2 --num-steps 8 --warmup-steps 100 --batch-size 8 --capacity 512 --num-seeds 3"
    assert job(f"dqn --env CartPole-v1 --total-steps 300 {replay}").facts["frames"] == 3 * (112 + 11 * 16)


def test_all_that_a_training_computes_is_a_result():
    """Otherwise XLA would leave it out, and the training would be faster than any that is logged."""
    given = job("reinforce --env CartPole-v1 --total-steps 256 --num-steps 16 --hidden-sizes 8 --num-seeds 3")
    results = given.lower().out_info
    assert {"episode_return", "loss", "entropy", "grad_norm"} <= set(results["metrics"])
    params = [leaf for leaf in jax.tree.leaves(results["learner"]) if len(leaf.shape) == 3]  # matrices of agents
    assert {leaf.shape[1:] for leaf in params} >= {(4, 8), (8, 2)} and results["alive"].shape[0] >= 3


def test_what_was_not_trained_fails():
    tally = job("ppo --env CartPole-v1 --total-steps 1024 --num-seeds 2").tally
    result = {"frames": np.array([1024, 1024]), "alive": np.array([True, True])}
    result["metrics"] = {"episode_return": np.ones((2, 2))}
    assert tally(result) == {"return": 1.0, "return_error": 0.0}
    with pytest.raises(SystemExit, match=r"took \[512, 1024\] frames, not 1024"):
        tally({**result, "frames": np.array([512, 1024])})
    with pytest.raises(SystemExit, match="1 of 2 agents diverged"):
        tally({**result, "alive": np.array([True, False])})


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("ppo --env CartPole-v1 --out x", "out = 'x': has no effect in a benchmark"),
        ("ppo --env CartPole-v1 --eval-every 5", "eval_every = 5: has no effect in a benchmark"),
        ("ppo --env gymnasium/CartPole-v1 --num-seeds 2", "num_seeds = 2: must be 1 for gymnasium/CartPole-v1"),
        ("ppo --env CartPole-v1 --lr 1", "unknown option"),
        ("pppo --env CartPole-v1", "nearest"),
    ],
)
def test_words_that_cannot_be_measured_are_refused(words, text):
    with pytest.raises(ConfigError, match=text):
        benchmark_worker.read(words.split())


def test_options_without_effect_are_options():
    usual = benchmark_worker.read(["ppo", "--env", "CartPole-v1"]).options
    assert set(benchmark_worker.NO_EFFECT) <= set(vars(usual))


@pytest.mark.parametrize("quick", [True, False])
def test_named_workloads_are_words_of_train(quick):
    for workload in (each.at(quick) for (each,) in named.EACH.values()):
        given = benchmark_worker.read(workload.words.split())
        assert given.config.total_steps >= 2 * given.config.num_envs * given.config.num_steps
        assert getattr(given.config, "warmup_steps", 0) < given.config.total_steps
    assert set(named.NAMED) == {"ppo-cartpole", "dqn", "sac", "minatar", "brax", "host"}
    sizes = [
        benchmark_worker.read(each.at(quick).words.split()).options.num_seeds for each in named.NAMED["ppo-cartpole"]
    ]
    assert sizes == [1, 64, 2048]
