"""Loggers beside a run's own files: what they keep, and that none of them stops a run."""

import csv
import sys
import types

import pytest

from purerl.store import metrics

POINTS = [(8, {"loss": 0.5, "episode_return": 1.0}), (16, {"loss": float("nan"), "episode_return": 2.0})]


def opened(names, directory, messages, *known):
    return metrics.opened_loggers(names, directory, {"algo": "ppo"}, metrics.Known(*known), messages.append)


def test_a_table_goes_on_where_it_was(tmp_path):
    messages = []
    for points in (POINTS, [(16, {"eval_return": 9.0})]):
        with opened(["csv"], tmp_path, messages) as logger:
            for step, point in points:
                logger.write(step, point)
    rows = list(csv.DictReader((tmp_path / "log.csv").open()))
    assert [row["env_steps"] for row in rows] == ["8", "16", "16"] and rows[0]["loss"] == "0.5"
    assert [row["eval_return"] for row in rows] == ["", "", "9.0"] and not messages


@pytest.mark.parametrize("fails", ["makes", "writes", "closes"])
def test_what_fails_is_told_once(fails, tmp_path, monkeypatch):
    """And the others go on."""

    def fail(*args):
        raise RuntimeError("no space\nat all")

    closed = []
    quiet = lambda *args: closed.append(args) if not args else None
    parts = fail if fails == "writes" else quiet, fail if fails == "closes" else quiet
    monkeypatch.setitem(metrics.MAKERS, "wandb", fail if fails == "makes" else lambda *_: metrics.Logger(*parts))
    messages = []
    with opened(["wandb", "csv"], tmp_path, messages) as logger:
        for step, point in POINTS:
            logger.write(step, point)
    assert messages == ["--log wandb: RuntimeError: no space; the run goes on without it"]
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 3
    assert len(closed) == (fails == "writes")


def test_a_library_that_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    messages = []
    with opened(["tensorboard"], tmp_path, messages) as logger:
        logger.write(*POINTS[0])
    assert len(messages) == 1 and "pip install 'purerl[tensorboard]'" in messages[0]


def test_tensorboard(tmp_path):
    """The numbers, read back from the events; nan is left out. What is not known of an earlier process is purged."""
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto import event_pb2
    from tensorboardX.record_writer import RecordWriter  # noqa: F401 - the format that is read here

    (tmp_path / "later" / "tensorboard").mkdir(parents=True)
    for folder, known, start in ((tmp_path / "first", 0, []), (tmp_path / "later", 6, [7])):
        folder.mkdir(exist_ok=True)
        with opened(["tensorboard"], folder, [], known) as logger:
            for step, point in POINTS:
                logger.write(step, point)
        [path] = (folder / "tensorboard").iterdir()
        raw, result, starts = path.read_bytes(), [], []
        while raw:
            size = int.from_bytes(raw[:8], "little")
            event = event_pb2.Event.FromString(raw[12 : 12 + size])
            result += [(event.step, value.tag, value.simple_value) for value in event.summary.value]
            starts += [event.step] if event.session_log.status == event_pb2.SessionLog.START else []
            raw = raw[16 + size :]
        assert result == [(8, "loss", 0.5), (8, "episode_return", 1.0), (16, "episode_return", 2.0)]
        assert starts == start


def test_wandb_stays_offline_unless_told(tmp_path, monkeypatch):
    """By what is asked of it."""
    options_given, logged = {}, []

    def init(**options):
        options_given.update(options)
        return types.SimpleNamespace(log=logged.append, finish=lambda: None)

    fake = types.SimpleNamespace(init=init, Settings=lambda **options: options)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    for name in ("MODE", "PROJECT", "NAME", "DIR"):
        monkeypatch.delenv(f"WANDB_{name}", raising=False)
    with opened(["wandb"], tmp_path, []) as logger:
        logger.write(*POINTS[0])
    assert (
        options_given["mode"] == "offline"
        and options_given["dir"] == str(tmp_path)
        and options_given["config"] == {"algo": "ppo"}
    )
    assert options_given["settings"]["symlink"] is False and logged == [{"env_steps": 8, **POINTS[0][1]}]
    assert options_given["project"] == "purerl" and options_given["name"] == tmp_path.name
    options_given.clear()
    for name in ("MODE", "PROJECT", "NAME"):
        monkeypatch.setenv(f"WANDB_{name}", "online")
    with opened(["wandb"], tmp_path, []):
        assert {"project", "name", "mode"}.isdisjoint(options_given) and options_given["dir"] == str(tmp_path)
