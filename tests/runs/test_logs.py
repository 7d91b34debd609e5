"""What a run writes as it goes on: evaluations that change nothing, metrics that cost nothing, and other loggers."""

import csv
import dataclasses
import json
import shutil

import numpy as np
import pytest
from commands import run

from purerl import a2c, counters, dqn, ppo
from purerl import config as cfg
from purerl.formulas import schedules
from purerl.learners.parts import from_replay, settings
from purerl.runs.describing import run_directory
from purerl.runs.running import logs, training

SMALL = ["--env", "CartPole-v1", "--num-envs", "2", "--num-steps", "8", "--hidden-sizes", "8", "--eval-episodes", "2"]
RUN = ["train", "ppo", *SMALL, "--total-steps", "512", "--num-seeds", "3", "--agents-at-once", "2"]


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same training with nothing but its own logs, and with all there is."""
    folder = tmp_path_factory.mktemp("runs")
    run(*RUN, "--out", folder / "plain")
    run(*RUN, "--out", folder / "watched", "--eval-every", 100, "--log", "csv")
    return folder / "plain", folder / "watched"


@pytest.mark.weekly
def test_evaluating_and_logging_change_no_bit(runs):
    for name in ("policy.safetensors", run_directory.METRICS, run_directory.QUANTILES):
        plain, watched = ((directory / name).read_bytes() for directory in runs)
        assert plain == watched
    assert not (runs[0] / run_directory.EVALUATIONS).exists() and not (runs[0] / "log.csv").exists()


@pytest.mark.rest
def test_evaluations(runs):
    """Every 100 frames, which are 7 iterations of 16, of each agent, and at the end, as in the summary."""
    result, summary = rows(runs[1] / run_directory.EVALUATIONS), json.loads((runs[1] / "summary.json").read_text())
    due = [7, 14, 21, 28, 32]
    assert [(r["iteration"], r["seed"]) for r in result] == [
        *((i, seed) for i in due for seed in (0, 1)),
        *((i, 2) for i in due),
    ]
    assert all(row["env_steps"] == 16 * row["iteration"] for row in result)
    last = {row["seed"]: row for row in result if row["iteration"] == 32}
    for key, name in (("eval_return", "return_per_seed"), ("eval_length", "length_per_seed")):
        np.testing.assert_allclose([last[seed][key] for seed in range(3)], summary[name])


def check_table(table, times):
    """It has a point for each line of times, and of each of the ten evaluations."""
    points = [(int(row["env_steps"]), float(row["seconds"])) for row in table if row["loss"]]
    assert points == [(row["env_steps"], row["seconds"]) for row in times]
    assert sum(bool(row["eval_return"]) for row in table) == len(table) - len(points) == 10


@pytest.mark.rest
def test_times_and_the_table(runs):
    """A line for each chunk, seconds that rise, and the table of the same points; a picture."""
    times, table = rows(runs[1] / run_directory.TIMES), list(csv.DictReader((runs[1] / "log.csv").open()))
    assert [row["first_member"] for row in times] == sorted(row["first_member"] for row in times)
    assert np.all(np.diff([row["seconds"] for row in times]) > 0)
    assert {row["iteration"] for row in times if row["first_member"] == 2} >= {7, 14, 21, 28, 32}
    check_table(table, times)
    assert {"learning_rate", "policy_lag", "alive"} <= set(table[0])
    for directory in runs:
        assert (directory / "curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.rest
def test_going_on_with_evaluations(runs, tmp_path, monkeypatch):
    """After a kill the logs are those of a run that nothing interrupted, but for times. It goes on from the checkpoint
    before the last one, so that an evaluation comes again."""
    write, count = training.metrics.quantile_rows, []

    def fail(*given):
        count.append(given)
        if len(count) == 4:
            raise OSError(28, "No space left on device")
        return write(*given)

    monkeypatch.setattr(training.metrics, "quantile_rows", fail)
    watched = ["--eval-every", 100, "--log", "csv", "--checkpoint-seconds", 1e-9]
    run(*RUN, "--out", tmp_path / "run", *watched, expect=5)
    steps = sorted((tmp_path / "run" / "checkpoints" / "0").iterdir(), key=lambda path: int(path.name))
    shutil.rmtree(steps[-1])
    for name, half in ((run_directory.TIMES, '{"half a li'), ("log.csv", "112,0.")):
        with open(tmp_path / "run" / name, "a") as file:
            file.write(half)
    before = list(csv.DictReader((tmp_path / "run" / "log.csv").open()))
    assert any(row["eval_return"] for row in before) and int(before[-2]["env_steps"]) > 16 * int(steps[-2].name)
    run("resume", tmp_path / "run")
    for name in (run_directory.METRICS, run_directory.QUANTILES, run_directory.EVALUATIONS):
        assert (tmp_path / "run" / name).read_bytes() == (runs[1] / name).read_bytes()
    times = rows(tmp_path / "run" / run_directory.TIMES)
    assert times[-1]["iteration"] == 32
    check_table(list(csv.DictReader((tmp_path / "run" / "log.csv").open())), times)


def test_learning_rates_are_those_of_the_schedule():
    config = dataclasses.replace(
        ppo.Config(total_steps=10 * 512), learning_rate=np.array([1e-3, 2e-3]), learning_rate_decay=np.array([1.0, 0.5])
    )
    result = logs.derived(config, np.arange(1, 11))["learning_rate"]
    for m, (rate, decay) in enumerate(((1e-3, 1.0), (2e-3, 0.5))):
        schedule = schedules.linear_decay(rate, decay, config.total_updates)
        expected = [float(schedule(counters.of(16 * i))) for i in range(1, 11)]
        np.testing.assert_allclose(result[:, m], expected, rtol=1e-5, atol=1e-9)
    assert "learning_rate" not in logs.derived(config, np.arange(3), own_optimiser=True)


@cfg.config
class WithoutUpdates(settings.StepSize, settings.OnPolicy):
    """Somebody's own settings, which do not say how many gradient steps there are."""


@cfg.config
class OffPolicy(settings.Adam, from_replay.ReplayConfig):
    """Somebody's own settings, whose number of gradient steps is that of the replay."""


def test_own_settings_need_not_know_the_number_of_updates():
    assert list(logs.derived(WithoutUpdates(), np.arange(1, 3))) == ["learning_rate"]
    config = OffPolicy(num_envs=2, num_steps=4, num_updates=3, warmup_steps=16, total_steps=160)
    assert config.total_updates == 3 * (160 - 16) // 8 and "policy_lag" in logs.derived(config, np.arange(2))


def test_replays_and_lags():
    """Beside a ring that is filled row by row, each row with the update at which it came."""
    config = dqn.Config(num_envs=2, num_steps=4, num_updates=2, capacity=48, warmup_steps=16, total_steps=160)
    iterations = np.arange(1, 9)
    result = logs.derived(config, iterations)
    ring = [0.0] * config.warmup_rows
    for i in iterations:
        ring = (ring + [0.0] * config.num_steps)[-config.capacity_rows :]
        ages = np.arange(len(ring))[::-1] * config.num_envs
        np.testing.assert_allclose(result["replay_fill"][i - 1, 0], len(ring) / config.capacity_rows)
        np.testing.assert_allclose(result["replay_age"][i - 1, 0], ages.mean())
        np.testing.assert_allclose(result["policy_lag"][i - 1, 0], ages.mean() / (2 * 4) * 2)
    epochs = ppo.Config(lag=3.0, max_lag=3)
    lags = [3 * 16 + update for update in range(16)]
    np.testing.assert_allclose(logs.derived(epochs, np.arange(1, 2))["policy_lag"], np.mean(lags))
    assert logs.derived(a2c.Config(), np.arange(1, 2))["policy_lag"] == 0
