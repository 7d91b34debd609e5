"""scripts/field.py: its options, its counts, and checks that can fail. The cases themselves are run by hand."""

import collections
import json

import field
import field_cases
import pytest
from field_cases import Case, words
from field_checks import Ran, Seen, failed, made, printed, progress, refused, returns


def test_cases_are_chosen():
    given = field.parser().parse_args(["--only", "^B sums", "--fast"])
    found = field.chosen(given.only, given.fast)
    assert found and all(case.kind == "B" and case.name.startswith("sums") for case in found)


def test_cases_have_names_and_environments():
    names = [case.name for case in field_cases.CASES]
    assert len(set(names)) == len(names)
    folder = field.ROOT / "tests" / "field"
    for case in field_cases.CASES:
        for command in [case.commands] if isinstance(case.commands, str) else case.commands:
            first, *rest = words(command)
            env = rest[rest.index("--env") + 1] if "--env" in rest else rest[0] if first == "check-env" else ""
            if first.endswith(".py"):
                assert (folder / first).exists()
            elif ":" in env and case.folder == "":
                module = env.removeprefix("gymnasium/").partition(":")[0].removeprefix("./").removesuffix(".py")
                assert (folder / f"{module}.py").exists(), env


@pytest.mark.parametrize(("command", "closed"), [("looped.py", 2), ("looped.py leave", 1)])
def test_a_case_is_run_and_counted(command, closed, tmp_path):
    result = field.outcome(Case("looped", "looped", command, printed("looped")), field.ROOT, tmp_path)
    assert result.ok and result.even == (closed == 2)
    assert (result.made, result.closed, result.stepped, result.moved, result.left) == (2, closed, 2, 0, 0)


def seen(folder, code=0, err="", began=0.0, sent=0.0, ended=9.0, **counts):
    lines = [(float(i), line) for i, line in enumerate(err.splitlines())]
    return Seen(folder, (Ran(code, "", lines, began, ended, sent, False, 0),), collections.Counter(counts))


@pytest.mark.parametrize("value", [10.0, 10.1, None])
def test_returns(value, tmp_path):
    (tmp_path / "run").mkdir()
    rows = [{"episode_return": None}, {"episode_return": value}]
    (tmp_path / "run" / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "run" / "summary.json").write_text(json.dumps({"return_mean": 10.0}))
    assert returns(10)(seen(tmp_path))[0] == (value == 10.0)


def test_lines_of_errors(tmp_path):
    line = "purerl: error: env = 'a:B': step returns None, must return five values (a.py:3)"
    assert refused("step")(seen(tmp_path, 2, line))[0]
    assert not refused("reset")(seen(tmp_path, 2, line))[0]
    assert not refused("step")(seen(tmp_path, 2, f"compiling ...\n{line}"))[0]
    assert failed("step")(seen(tmp_path, 1, f"compiling ...\n{line}"))[0]
    assert not failed("step")(seen(tmp_path, 1, f"Traceback\n{line}"))[0]
    assert not failed("step")(seen(tmp_path, 1, line.replace("step", "step: KeyError")))[0]


def test_counts(tmp_path):
    assert made(2)(seen(tmp_path, made=2, closed=2, stepped=2))[0]
    for wrong in ({"closed": 1}, {"stepped": 3}, {"closed_again": 1}, dict.fromkeys(("made", "closed", "stepped"), 3)):
        assert not made(2)(seen(tmp_path, **{"made": 2, "closed": 2, "stepped": 2, **wrong}))[0]


def test_times(tmp_path):
    err = "started\nsteps\nending\nends"  # a line a second
    assert progress(1.0, 1.0, 3.0)(seen(tmp_path, 130, err, sent=1.5, ended=4.0))[0]
    assert not progress(1.0, 1.0, 3.0)(seen(tmp_path, 130, err, sent=1.5, ended=5.0))[0]
    assert not progress(1.0, 1.0, 3.0)(seen(tmp_path, 130, err, sent=0.5, ended=3.0))[0]
