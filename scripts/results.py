"""The table of results: trainings, kept as lines of JSON, and the page made of these.

Each row of `rows.ROWS` is one ``purerl train``. The returns of its seeds become a line of ``results.jsonl`` as
soon as it is trained, so that what is interrupted goes on with the next row. A later line replaces an earlier one of
the same row. The page, ``results.md``, is made of the lines alone, and never typed.
"""

import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import first_screen
from published import CAUSES, PUBLISHED, Published
from result_lines import SAME_TASK, in_order, interval, is_of_a_cpu, read, speed
from rows import ROWS, Row, learns_from_play

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
LINES, PAGE = "results.jsonl", "results.md"
RUN = "run"
"""The folder of a training, in a folder of its own."""
CURVES = 6
"""The largest number of curves in a picture: what the eye can tell apart."""


def arguments(row: Row, scale: str) -> list[str]:
    """Of ``purerl train``. At the scale ci: two seeds and a hundredth of the frames, but two iterations at least."""
    if scale == "full":
        return [*row.words, "--out", RUN]

    from purerl.cli import parsing
    from purerl.runs.describing.options import TrainOptions

    options = ["--env", row.env, *row.options.split()]
    config = parsing.training("train", row.algo, TrainOptions, options).config
    if learns_from_play(row.options):
        least = 2 * config.num_updates
    else:
        least = config.num_envs * (getattr(config, "warmup_rows", 0) + 2 * config.num_steps)
    frames = max(round(row.frames / 100), least)
    sizes = ["--total-steps", str(frames), "--num-seeds", "2", "--eval-episodes", "2"]
    return ["train", row.algo, *options, *sizes, "--out", RUN]


def train(row: Row, scale: str) -> dict[str, Any]:
    """Trains a row and returns its line. Raises `SystemExit` with the code of a command that did not end with 0."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for words in (*map(str.split, row.before), arguments(row, scale)):
            code, peak = in_a_process([sys.executable, "-m", "purerl.cli", *words])
            if code:
                raise SystemExit(code)
        run = Path(RUN)
        summary = json.loads((run / "summary.json").read_text())
        offline = learns_from_play(row.options)
        curve = {} if offline else {"curve": points(run)}
    returns = [
        x if alive else None for x, alive in zip(summary["return_per_seed"], summary["alive_per_seed"], strict=True)
    ]
    return {
        "row": row.name,
        "algo": row.algo,
        "env": row.env,
        "env_params": summary["env_params"],
        "command": row.command,
        "frames": summary["updates" if offline else "env_steps"],
        "returns": returns,
        **({"sampled": True} if summary.get("sampled") else {}),
        **curve,
        "seconds": round(summary["wall_seconds"], 1),
        "compile_seconds": round(summary["compile_seconds"], 1),
        "peak_mib": round(peak / 2**20),
        "cores": summary["device"]["cores"],
        "device": summary["device"]["kind"],
        "jax": summary["versions"]["jax"],
        "commit": commit(),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
    }


def in_a_process(command: Sequence[str]) -> tuple[int, int]:
    """Runs a command of this checkout; returns its exit code and its largest size in memory, in bytes."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path})
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def points(run: Path) -> dict[str, list[float]]:
    """The returns while training, over frames: the interquartile mean over seeds, and the 5 % and 95 % quantiles."""
    import numpy as np

    from purerl.display import lines as display
    from purerl.runs.reading import results

    frames, middle, quantiles = results.population(run)
    levels = list(quantiles.values())
    frames, values = display.binned(frames, np.stack([middle, levels[0], levels[-1]]), 2 * display.width(frames))
    known = np.isfinite(values).all(axis=0)
    rounded = lambda x: [float(f"{each:.5g}") for each in x[known]]
    return dict(zip(("frames", "iqm", "low", "high"), map(rounded, (frames, *values)), strict=True))


def commit() -> str:
    """That of the checkout, with a plus where something in the package is not committed; ? without git."""
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        git = lambda *words: subprocess.check_output(["git", "-C", str(ROOT), *words], text=True).strip()
        return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "purerl") else "")
    return "?"


def page(lines: Iterable[dict[str, Any]]) -> str:
    """The lines as a page: the first screen, then a table for each environment."""
    ordered = in_order(lines)
    text = ["# Results\n", first_screen.text(ordered), HEAD]
    for env in dict.fromkeys(line["env"] for line in ordered):
        text.append(f"\n## {env}\n\n| algorithm | frames | seeds | return | worst seed | cost | command | commit |")
        text.append("|---|---|---|---|---|---|---|---|")
        here = [line for line in ordered if line["env"] == env]
        text += map(cells, here)
        text += [f"\n![Returns while training, in {env}](curves/{name})" for name in pictures(env, here)]
        if env in PUBLISHED:
            text.append("\n| published | algorithm | frames | return | where |\n|---|---|---|---|---|")
            text += [f"| {' | '.join(figure.cells)} |" for figure in PUBLISHED[env]]
    return "\n".join([*text, compared(ordered), TAIL])


def compared(lines: Sequence[dict[str, Any]]) -> str:
    """The rows that stay below a published figure, and how many there are of them."""
    pairs = [(line, figure) for line in lines for figure in PUBLISHED.get(line["env"], ()) if same(line, figure)]
    below = [(line, figure) for line, figure in pairs if interval(line["returns"]).high < figure.value]
    names = lambda pairs: {line["row"] for line, _ in pairs}
    table = ["| row | return | published | cause |", "|---|---|---|---|"] if below else []
    table += [
        f"| {line['row']} | {interval(line['returns']).value:.2f} | {figure.value:g}, {figure.who} | "
        f"{CAUSES.get(line['row'], 'not known')} |"
        for line, figure in below
    ]
    seconds = sum(line["seconds"] + line.get("compile_seconds", 0) for line in lines)
    return COMPARED.format(
        below=len(names(below)), rows=len(names(pairs)), hours=seconds / 3600, table="\n".join(table)
    )


def same(line: dict[str, Any], figure: Published) -> bool:
    """Returns whether a figure is of the algorithm and the frames of a line, in the same task."""
    return not line.get("env_params", {}).keys() - SAME_TASK and figure.is_comparable(line["algo"], line["frames"])


def pictures(env: str, lines: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The files with the curves of an environment, and the lines that each of them shows."""
    name, drawn = re.sub(r"[^\w.-]+", "-", env), [line for line in lines if "curve" in line]
    groups = [drawn[i : i + CURVES] for i in range(0, len(drawn), CURVES)]
    return {f"{name}-{i}.png" if i > 1 else f"{name}.png": group for i, group in enumerate(groups, start=1)}


def draw(folder: Path, lines: Iterable[dict[str, Any]]) -> None:
    """Draws the curves of each environment into ``folder``."""
    import numpy as np

    from purerl.display import curves, plots
    from purerl.display.lines import Line

    folder.mkdir(exist_ok=True)
    lines = in_order(lines)
    for env in dict.fromkeys(line["env"] for line in lines):
        here = [line for line in lines if line["env"] == env]
        for name, group in pictures(env, here).items():
            of_rows = [
                Line(
                    f"{title(line, here)} ({len(line['returns'])} seeds)",
                    np.array(line["curve"]["frames"]),
                    np.array([line["curve"]["iqm"]]),
                )
                for line in group
            ]
            axes = "frames of a seed", "interquartile mean of returns while training"
            plots.save(folder / name, curves.learning_figure(of_rows, axes, env))


def title(line: dict[str, Any], lines: Iterable[dict[str, Any]]) -> str:
    """The algorithm of a line, with the frames and options that not all of ``lines`` of that algorithm have."""
    parts = lambda line: re.split(" (?=--)", line["row"].split(" ", 2)[2])
    shared = set.intersection(*(set(parts(other)) for other in lines if other["algo"] == line["algo"]))
    return " ".join([line["algo"], *(part for part in parts(line) if part not in shared)])


def missing(rows: Iterable[Row], lines: dict[str, dict[str, Any]]) -> list[tuple[Row, str, float | None]]:
    """The rows that are to be trained, why, and the hours they are expected to take.

    Those without a line come first, those that lack seeds next, and those without a curve last. What learns from
    recorded play alone has none.
    """
    entries = []
    for row in rows:
        line = lines.get(row.name, {})
        seeds = len(line.get("returns", ()))
        if not seeds:
            urgency, why = 0, "no line"
        elif seeds < row.seeds:
            urgency, why = 1, f"{seeds} of {row.seeds} seeds"
        elif "curve" not in line and not learns_from_play(row.options):
            urgency, why = 2, "no curve"
        else:
            continue
        entries.append((urgency, row, why, expected_hours(row, lines.values())))
    return [entry[1:] for entry in sorted(entries, key=lambda entry: entry[0])]


def expected_hours(row: Row, lines: Iterable[dict[str, Any]]) -> float | None:
    """The hours of a row on a CPU, at the median speed of the lines that are nearest to it; None without any.

    Nearest are those of the same algorithm, preset and environment, then those in an environment of the same family.
    Without these it is the slower of what the algorithm has elsewhere, and the family with other algorithms; None where
    the family is a library without such lines, of whose speed nothing is known. Frames are compared with frames alone,
    and gradient steps on recorded play with such.
    """
    offline = learns_from_play(row.options)
    timed = [line for line in lines if "seconds" in line and is_of_a_cpu(line)]
    timed = [line for line in timed if learns_from_play(line["row"]) == offline]
    of_algo = [line for line in timed if line["algo"] == row.algo]
    of_family = [line for line in timed if family(line["env"]) == family(row.env)]
    both = [line for line in of_family if line["algo"] == row.algo and preset(line["row"]) == preset(row.name)]
    elsewhere = [of_algo, of_family] if of_family or "/" not in row.env else []
    for near in ([[line for line in both if line["env"] == row.env]], [both], elsewhere):
        if speeds := [statistics.median(map(speed, group)) for group in near if group]:
            return row.seeds * row.frames / min(speeds) / 3600
    return None


def family(env: str) -> str:
    """The library of an environment, or what its name ends with, as in Breakout-MinAtar; CartPole-v1 is its own."""
    library, slash, _ = env.partition("/")
    end = env.rpartition("-")[2]
    return library if slash else env if re.fullmatch(r"v\d+", end) else end


def preset(name: str) -> str:
    """The preset in the name of a row."""
    return name.partition("--preset ")[2].partition(" ")[0]


def cells(line: dict[str, Any]) -> str:
    """A line as a row of its table."""
    result, alive = interval(line["returns"]), [x for x in line["returns"] if x is not None]
    worst = "died" if len(alive) < len(line["returns"]) else f"{min(alive):.2f}"
    cores = f"{line['cores']} core" + "s" * (line["cores"] != 1)
    machine = cores if is_of_a_cpu(line) else line["device"]
    cost = f"{line['seconds'] / 60:.1f} min, {machine}, {speed(line):,.0f}/s"
    cost += f", {line['peak_mib']:,} MiB" if "peak_mib" in line else ""
    drawn = " sampled" if line.get("sampled") else ""
    command = line["command"] if "`" in line["command"] else f"`{line['command']}`"
    return (
        f"| {line['algo']} | {line['frames']:,} | {len(line['returns'])} | **{result.value:.2f}** [{result.low:.2f}, "
        f"{result.high:.2f}]{drawn} | {worst} | {cost} | {command} | {line['commit']} |"
    )


def main(
    scale: str,
    out: Path | None,
    names: Sequence[str] = (),
    budget_seconds: float = float("inf"),
    again: bool = False,
    only_list: bool = False,
) -> None:
    """Trains the rows that are `missing` and writes the page and its pictures.

    - ``scale``: full, or ci, a hundredth of it, of which nothing is learned.
    - ``out``: folder of the lines and of the page; None: that of the documentation, or ``runs/results-ci``.
    - ``names``: words, one of which is in a row's command; none: all rows.
    - ``budget_seconds``: after so many no other row begins; 0 writes the page alone.
    - ``again``: trains rows that have a line as well, as is due when defaults have changed.
    - ``only_list``: prints what is missing, and trains and writes nothing.
    """
    folder = out or (DOCS if scale == "full" else Path("runs/results-ci"))
    rows = [row if scale == "full" else row._replace(seeds=2) for row in ROWS]
    rows = [row for row in rows if not names or any(name in row.command for name in names)]
    wanted = missing(rows, {} if again else read(folder / LINES))
    if only_list:
        for row, why, hours in wanted:
            print(f"{why:14} {'   ?' if hours is None else f'{hours:4.1f}'} h   {row.command}")
        known = [hours for *_, hours in wanted if hours is not None]
        rest = f" and {len(wanted) - len(known)} of unknown length" if len(known) < len(wanted) else ""
        print(f"{len(wanted)} of {len(rows)} rows, {sum(known):.1f} h{rest}")
        return
    folder.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    for row, *_ in wanted:
        if time.perf_counter() - start >= budget_seconds:
            break
        if not row.is_installed:
            print(f'not trained, needs pip install "purerl[{row.family}]": {row.command}', flush=True)
            continue
        print(row.command, flush=True)
        line = train(row, scale)
        with (folder / LINES).open("a") as file:
            file.write(json.dumps(line) + "\n")
        write(folder)
    write(folder)


def write(folder: Path) -> None:
    """Writes the page and its pictures."""
    from purerl.display import plots

    lines = read(folder / LINES).values()
    (folder / PAGE).write_text(page(lines))
    if chosen := first_screen.choices(lines):
        plots.save(folder / first_screen.FIGURE, first_screen.figure(chosen))
    draw(folder / "curves", lines)


HEAD = """
## How to read the tables

They have greedy returns over 100 episodes a seed, or returns of sampled actions where a row says so: the interquartile
mean over seeds with its bootstrapped 95 % interval, and the worst seed; a row of one seed has no interval. The frames
of rows that learn from recorded play alone (`--data`) are gradient steps. A cost names what it was measured on, cores
of a CPU or a GPU, which mostly ran other trainings at the same time: on the other core, or up to four others on the
GPU. A plus after a commit means that the package had changes that were not yet committed.
Published figures follow ours, with their sources; most are of one seed or do not give a number of seeds.

This page is generated from [results.jsonl](results.jsonl), which has the returns of all seeds:

```sh
python scripts/reproduce.py results --scale full
```

The command trains the rows that are not in that file yet, have too few seeds or no curve. `--missing` lists these rows
with the hours that they are expected to take. With `--budget-seconds 0` it only writes the page. With `--scale ci`
every training has a hundredth of the length, and the output is in `runs/results-ci`. `purerl compare` takes a row in
place of a run: `purerl compare "docs/results.jsonl:ppo CartPole-v1 500000" runs/mine`."""

COMPARED = """
## Below a published figure

{below} of the {rows} rows that have a published figure of the same algorithm at the same frames, within a tenth, stay
below one: the upper end of their interval is less. Rows whose environment is changed by parameters are not compared.
[Step sizes](evidence/minatar.md#ppos-step-size-on-minatar) has the experiments on MinAtar.

{table}

The rows of this page took {hours:.1f} hours, compiling included."""

TAIL = """
To add an algorithm, add a row to `ROWS` in `scripts/rows.py`, and train it.

[Evidence](evidence/index.md) has the experiments of each family, brax and meta-evolution, [benchmarks](benchmarks.md)
the speed compared with PureJaxRL, Rejax and flashbax, with the machine and the spread.
"""
