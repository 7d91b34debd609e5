"""Files of figures: two of them beside each other, by hand, and what is not read or replaced."""

import copy
import json

import pytest
from test_measuring import told

from purerl.benchmarks import files, measuring
from purerl.benchmarks.measuring import Sizes
from purerl.errors import ConfigError


def content(**workloads):
    """A file with figures of processes by workload."""
    facts = {"command": "purerl train ppo", "agents": 1, "settings": {"gamma": 0.99, "sizes": [8]}}
    rows = {name: {**facts, **measuring.figures(processes)} for name, processes in workloads.items()}
    return {**files.begun(Sizes(2, 1, 1)), "workloads": rows}


def test_ratios_by_hand():
    """6400 frames: 3200, 1600 frames/s before, 6400 and 3200 after."""
    before, after = content(a=[told(2), told(4)], b=[told(1)]), content(a=[told(1), told(2)], c=[told(1)])
    (row,), lines = files.compared(before, after, ("x", "y"))
    assert row["workload"] == "a" and (row["first"]["median"], row["second"]["median"]) == (2400, 4800)
    assert row["ratio"] == {"median": 2.0, "low": 3200 / 3200, "high": 6400 / 1600}
    assert lines == ["only in x: b", "only in y: c"]


def test_the_same_file_has_the_ratio_one_and_nothing_differs():
    same = content(a=[told(2)])
    (row,), lines = files.compared(same, copy.deepcopy(same), ("x", "y"))
    assert row["ratio"] == {"median": 1.0, "low": 1.0, "high": 1.0} and lines == []


def changed(before, part, name, value):
    after = copy.deepcopy(before)
    after["workloads"]["a"][part][name] = value
    return after


def test_other_settings_are_refused():
    before = content(a=[told(2)])
    with pytest.raises(ConfigError) as refused:
        files.compared(before, changed(before, "settings", "gamma", 0.9), ("x", "y"))
    assert str(refused.value) == "compare: a has other settings in y: gamma = 0.9, not 0.99"
    after = copy.deepcopy(before)
    after["workloads"]["a"]["command"] = "purerl train dqn"
    with pytest.raises(ConfigError, match="'purerl train dqn', not 'purerl train ppo'"):
        files.compared(before, after, ("x", "y"))
    with pytest.raises(ConfigError, match="no measured workload in common"):
        files.compared(before, content(b=[told(1)]), ("x", "y"))
    new = changed(before, "settings", "a_setting_of_a_later_version", 1)
    assert files.compared(before, new, ("x", "y"))[1] == []


@pytest.mark.parametrize(
    ("part", "name", "value", "line"),
    [
        ("device", "kind", "H100", "device, kind: cpu, then H100"),
        ("versions", "jax", "0.11.2", "versions, jax: 0.10.2, then 0.11.2"),
        ("flags", "XLA_FLAGS", "--a=1", "flags, XLA_FLAGS: not set, then --a=1"),
    ],
)
def test_other_devices_versions_and_flags_are_told(part, name, value, line):
    before = content(a=[told(2)])
    assert files.compared(before, changed(before, part, name, value), ("x", "y"))[1] == [line]


def test_another_number_of_threads_or_of_rounds_is_told():
    before, after = content(a=[told(2)]), content(a=[told(2, flags={"NPROC": "1"})])
    after |= {"rounds": 3, "processor": "another", "cores": before["cores"]}
    lines = files.compared(before, after, ("x", "y"))[1]
    assert "a, threads: 2, then 1" in lines and not any("NPROC" in line for line in lines)
    assert "rounds: 1, then 3" in lines and f"processor: {before['processor']}, then another" in lines


def test_a_range_needs_several_processes():
    before = content(a=[told(2)])
    (line,) = files.compared(before, before | {"processes": 1}, ("x", "y"))[1][1:]
    assert "a single process has no range" in line


def test_a_file_has_the_machine_and_is_read_back(tmp_path):
    written = content(a=[told(2)])
    assert written["date"].endswith("UTC") and written["cores"] >= 1 and written["processor"]
    assert {"purerl", "jax", "jaxlib", "python"} <= set(written["versions"])
    (tmp_path / "x.json").write_text(json.dumps(written))
    assert files.read(tmp_path / "x.json") == written
    files.check_replaced(tmp_path / "x.json")
    files.check_replaced(tmp_path / "none.json")


FOREIGN = ["text", "[1]", '{"format": "another"}', '{"format": "purerl benchmark", "version": 2}']
SPEED = {"median": 0, "low": 1, "high": 1}
DAMAGED = [
    [],
    {"a": 1},
    {"a": {}},
    {"a": {"command": "x", "frames_per_second": SPEED}},
    {"a": {"command": "x", "frames_per_second": 1, "settings": {}, "device": {}, "versions": {}, "flags": {}}},
]


@pytest.mark.parametrize(
    "text", FOREIGN + [json.dumps(files.begun(Sizes(1, 1, 1)) | {"workloads": x}) for x in DAMAGED]
)
def test_another_file_is_neither_read_nor_replaced(text, tmp_path):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ConfigError):
        files.read(tmp_path / "x.json")
    with pytest.raises(ConfigError, match="is not replaced"):
        files.check_replaced(tmp_path / "x.json")
