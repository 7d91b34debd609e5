"""What is seen of a case of `scripts/field.py`, and the checks that say whether it is right.

A check takes what is seen and returns whether it is right, and what it was in a few words.
"""

import collections
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Ran(NamedTuple):
    """A command that ended: its code, what it printed, the lines of stderr with their times, and when it was what."""

    code: int
    out: str
    lines: list[tuple[float, str]]
    began: float
    ended: float
    sent: float
    hung: bool
    left: int


class Seen(NamedTuple):
    """What came of a case's commands, in the folder in which they ran."""

    folder: Path
    ran: tuple[Ran, ...]
    counts: collections.Counter

    @property
    def code(self) -> int:
        """The last command's exit code."""
        return self.ran[-1].code

    @property
    def err(self) -> str:
        """All that the commands wrote to stderr."""
        return "\n".join(line for ran in self.ran for _, line in ran.lines)

    @property
    def out(self) -> str:
        """What the last command wrote to stdout."""
        return self.ran[-1].out

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the run's log."""
        return [json.loads(line) for line in (self.folder / "run" / "metrics.jsonl").read_text().splitlines()]

    def summary(self) -> dict[str, Any]:
        """The run's summary."""
        return json.loads((self.folder / "run" / "summary.json").read_text())

    def errors(self) -> list[str]:
        """The lines of errors."""
        return [line.removeprefix("purerl: error: ") for line in self.err.splitlines() if "error: " in line]

    def says(self) -> str:
        """How the last command ended, in words."""
        if any(ran.hung for ran in self.ran):
            return "did not end"
        if self.code:
            last = [line for line in self.err.splitlines() if line.strip()][-1:] or ["no line"]
            trace = "a traceback; " if "Traceback" in self.err else ""
            return f"exit {self.code}: {trace}{(self.errors() or last)[-1]}"
        return "exit 0"


Check = Callable[[Seen], tuple[bool, str]]


def near(value: Any, right: float, tolerance: float = 1e-6) -> bool:
    """Whether a number is what it should be, relatively."""
    return value is not None and math.isclose(value, right, rel_tol=tolerance, abs_tol=tolerance * 1e-3)


def span(values: list[float]) -> str:
    """Numbers in words."""
    if not values:
        return "none"
    low, high = min(values), max(values)
    return f"{low:.10g}" if low == high else f"{low:.10g} to {high:.10g}"


def returns(right: float, evaluated: float | None = None, tolerance: float = 1e-6) -> Check:
    """Each return of the log is ``right``, and that of the evaluation ``evaluated`` (default: the same)."""
    expected = right if evaluated is None else evaluated

    def check(seen: Seen) -> tuple[bool, str]:
        if seen.code:
            return False, seen.says()
        found = [row["episode_return"] for row in seen.rows() if row["episode_return"] is not None]
        mean = seen.summary()["return_mean"]
        ok = bool(found) and all(near(each, right, tolerance) for each in found) and near(mean, expected, tolerance)
        return ok, f"log {span(found)}, evaluation {mean}"

    return check


def logged(right: float) -> Check:
    """Each return of the log is ``right``."""

    def check(seen: Seen) -> tuple[bool, str]:
        if seen.code:
            return False, seen.says()
        found = [row["episode_return"] for row in seen.rows() if row["episode_return"] is not None]
        return bool(found) and all(near(each, right) for each in found), f"log {span(found)}"

    return check


def trains(seen: Seen) -> tuple[bool, str]:
    """The command ends with 0, all agents alive, and an evaluation of finished episodes."""
    if seen.code:
        return False, seen.says()
    summary = seen.summary()
    alive = all(summary["alive_per_seed"])
    return alive and summary["return_mean"] is not None, f"{'' if alive else 'diverged; '}{summary['return_mean']}"


def tells(*patterns: str) -> Check:
    """The last command ends with 0 and stderr has each of the patterns."""

    def check(seen: Seen) -> tuple[bool, str]:
        missing = [each for each in patterns if not re.search(each, seen.err, re.IGNORECASE)]
        return seen.code == 0 and not missing, seen.says() + (f"; nothing tells of {missing[0]}" if missing else "")

    return check


def _one(lines: list[str], patterns: tuple[str, ...]) -> bool:
    """Whether there is one line, which has each of the patterns, and does not leave it at an error of Python."""
    return (
        len(lines) == 1
        and all(re.search(each, lines[0], re.IGNORECASE) for each in patterns)
        and not re.search("KeyError|AssertionError|IndexError|AttributeError", lines[0])
    )


def refused(*patterns: str) -> Check:
    """One line, which has each of the patterns and is no error of Python, and exit code 2 before anything compiles."""

    def check(seen: Seen) -> tuple[bool, str]:
        lines = seen.errors()
        found = _one(lines, patterns)
        quiet = "Traceback" not in seen.err and "compil" not in seen.err.lower()
        return seen.code == 2 and found and quiet, seen.says()

    return check


def failed(*patterns: str) -> Check:
    """One line, which has each of the patterns and is no error of Python, and an exit code, at whatever time."""

    def check(seen: Seen) -> tuple[bool, str]:
        lines = seen.errors()
        found = _one(lines, patterns)
        return seen.code > 0 and found and "Traceback" not in seen.err, seen.says()

    return check


def either(*checks: Check) -> Check:
    """Any of the checks; what is told is of the first that is right, or of the first."""

    def check(seen: Seen) -> tuple[bool, str]:
        results = []
        for each in checks:
            try:
                results.append(each(seen))
            except (OSError, LookupError, ValueError, TypeError) as error:
                results.append((False, f"{seen.says()} ({type(error).__name__})"))
        return next((result for result in results if result[0]), results[0])

    return check


def both(*checks: Check) -> Check:
    """All of the checks; what is told is of the first that is wrong, or of all."""

    def check(seen: Seen) -> tuple[bool, str]:
        results = [each(seen) for each in checks]
        wrong = next((result for result in results if not result[0]), None)
        return wrong or (True, "; ".join(dict.fromkeys(text for _, text in results)))

    return check


def made(most: int, code: int = 0) -> Check:
    """As many are made as are stepped and closed, at most ``most``, and none is closed twice."""

    def check(seen: Seen) -> tuple[bool, str]:
        counts = seen.counts
        equal = counts["made"] == counts["closed"] == counts["stepped"]
        ok = seen.code == code and equal and 0 < counts["made"] <= most and not counts["closed_again"]
        text = f"{seen.says()}; made {counts['made']}, closed {counts['closed']}, stepped {counts['stepped']}"
        return ok, text

    return check


def stepped(most: int) -> Check:
    """All commands together take at most so many steps."""

    def check(seen: Seen) -> tuple[bool, str]:
        return seen.code == 0 and 0 < seen.counts["steps"] <= most, f"{seen.says()}; {seen.counts['steps']} steps"

    return check


def drawn(no_modes: bool = True) -> Check:
    """No picture is drawn, and no instance has a `render_mode`; or, in a film, one draws."""

    def check(seen: Seen) -> tuple[bool, str]:
        modes = {name.removeprefix("mode_"): n for name, n in seen.counts.items() if name.startswith("mode_")}
        text = f"{seen.says()}; {seen.counts['drew']} pictures; {', '.join(f'{n} {mode}' for mode, n in modes.items())}"
        if no_modes:
            return seen.code == 0 and set(modes) == {"None"} and not seen.counts["drew"], text
        return seen.code == 0 and "human" not in modes and modes.get("rgb_array") == 1, text

    return check


def printed(pattern: str) -> Check:
    """The last command prints what is asked for, and ends with 0."""

    def check(seen: Seen) -> tuple[bool, str]:
        found = re.search(pattern, seen.out, re.DOTALL) is not None
        return seen.code == 0 and found, " ".join(seen.out.split()) if seen.code == 0 else seen.says()

    return check


def is_json(seen: Seen) -> tuple[bool, str]:
    """What the last command prints is one JSON document."""
    try:
        json.loads(seen.out)
    except ValueError:
        return False, f"stdout begins with {seen.out[:30]!r}"
    return seen.code == 0, "JSON"


def arrived(*values: Any) -> Check:
    """The parameters of `modes:Modes` arrive in every instance as the values of these types."""

    def check(seen: Seen) -> tuple[bool, str]:
        path = seen.folder / "seen.txt"
        lines = set(path.read_text().splitlines()) if path.exists() else set()
        return seen.code == 0 and lines == {json.dumps(list(values))}, f"{seen.says()}; {' '.join(sorted(lines))}"

    return check


def lengths(most: float, least: float = 1.0) -> Check:
    """The log's episodes have lengths within these."""

    def check(seen: Seen) -> tuple[bool, str]:
        if seen.code:
            return False, seen.says()
        found = [row["episode_length"] for row in seen.rows() if row["episode_length"] is not None]
        return bool(found) and max(found) <= most and min(found) >= least, f"lengths {span(found)}"

    return check


def info(**values: float) -> Check:
    """The last row of the log has ``info/NAME`` for each name, which is a pattern, and so has the summary."""

    def check(seen: Seen) -> tuple[bool, str]:
        if seen.code:
            return False, seen.says()
        last, summary = seen.rows()[-1], json.dumps(seen.summary())
        keys = {name: next((key for key in last if re.fullmatch(f"info/{name}", key)), "") for name in values}
        ok = all(
            near(last.get(keys[name]), value) and keys[name].removeprefix("info/") in summary
            for name, value in values.items()
        )
        return ok, ", ".join(f"{key or name}: {last.get(key)}" for name, key in keys.items())

    return check


def no_return(seen: Seen) -> tuple[bool, str]:
    """Says that no episode ended, with a way out, and claims no return."""
    last = [line for _, line in seen.ran[-1].lines if "completed" in line][-1:] or [seen.says()]
    told = re.search(r"no episode (has )?(ended|finished)|never end|did not end", seen.err, re.IGNORECASE)
    way = "max_episode_steps" in seen.err
    claims = re.search(r"return \d", seen.err) or seen.summary()["return_mean"] is not None
    return seen.code == 0 and bool(told) and way and not claims, last[0]


def progress(within: float, answered: float, over: float) -> Check:
    """Progress is told ``within`` seconds of the start, a signal ``answered``, and all is ``over`` in so many more."""

    def check(seen: Seen) -> tuple[bool, str]:
        ran = seen.ran[0]
        start = next((at for at, line in ran.lines if "started" in line), None)
        if start is None or not ran.sent:
            return False, seen.says()
        told = next((at - start for at, line in ran.lines if start < at < ran.sent), None)
        after = next((at - ran.sent for at, line in ran.lines if at > ran.sent), None)
        took = ran.ended - ran.sent
        ok = told is not None and told <= within and after is not None and after <= answered and took <= over
        words = [f"{'-' if x is None else f'{x:.1f} s'}" for x in (told, after, None if ran.hung else took)]
        return ok and ran.code == 130, f"told after {words[0]}, answered in {words[1]}, over in {words[2]}"

    return check


def kept(seen: Seen) -> tuple[bool, str]:
    """What was finished before the interrupt is there, and `resume` finishes the rest."""
    rows = seen.rows()
    status = seen.summary()["status"]
    return seen.code == 0 and len(rows) > 1 and status == "completed", f"{seen.says()}; {len(rows)} rows, {status}"


def values(seen: Seen) -> tuple[bool, str]:
    """The values of both agents are 1 and 0, to 0.05."""
    found = dict(re.findall(r"value (\w) (\S+)", seen.out))
    if seen.code or set(found) != {"x", "y"}:
        return False, seen.says()
    x, y = float(found["x"]), float(found["y"])
    return abs(x - 1) < 0.05 and abs(y) < 0.05, f"{x:.3f} and {y:.3f}"


def in_place(seen: Seen) -> tuple[bool, str]:
    """The run is written where it was told to be."""
    ok = seen.code == 0 and (seen.folder / "run" / "summary.json").exists()
    return ok, f"{seen.says()}; {[str(path.relative_to(seen.folder)) for path in seen.folder.rglob('summary.json')]}"


def project(seen: Seen) -> tuple[bool, str]:
    """Wandb gets the project of the environment variable, or none given, so that the variable counts."""
    given = json.loads((seen.folder / "wandb_init.json").read_text())
    return given.get("project") in (None, "mine") and given.get("name") in (None, "first"), f"{given}"


def trained(least: int, most: int = 10**9) -> Check:
    """The training takes as many steps."""

    def check(seen: Seen) -> tuple[bool, str]:
        if seen.code:
            return False, seen.says()
        steps = seen.summary()["env_steps"]
        return least <= steps <= most, f"{steps} steps"

    return check


def interrupted(seen: Seen) -> tuple[bool, str]:
    """The command ends as interrupted ones do."""
    return seen.code == 130, seen.says()


def on_device(seen: Seen) -> tuple[bool, str]:
    """Each row's mean is one of returns of 10 and of 2e8."""
    if seen.code:
        return False, seen.says()
    wrong = []
    for row in seen.rows():
        if count := row["episodes"]:
            total = row["episode_return"] * count
            rich = round((total - 10 * count) / (2e8 - 10))
            if not near(row["episode_return"], (10 * (count - rich) + 2e8 * rich) / count):
                wrong.append(row["episode_return"])
    return not wrong, f"{len(wrong)} rows are wrong: {span(wrong)}"
