"""Summaries and tables of runs, printed to the terminal."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from purerl.display import progress
from purerl.display.progress import say
from purerl.errors import printable


def print_summary(console: Console, directory: Path, summary: dict[str, Any]) -> None:
    """One line on a finished run: status, speed, time, returns and directory. Agents that died have no part in returns;
    the line has their number."""
    returns = [x for x, alive in zip(summary["return_per_seed"], summary["alive_per_seed"], strict=True) if alive]
    size, died = len(summary["alive_per_seed"]), len(summary["alive_per_seed"]) - len(returns)
    told = [f"return {math.fsum(returns) / len(returns):.1f} (worst agent {min(returns):.1f})"] if returns else []
    told += [f"{died} of {size} agents died"] if died else []
    if stopped := [at for at in summary.get("stopped_at_per_seed", []) if at is not None]:
        told.append(f"{len(stopped)} of {size} agents stopped early, the last after {max(stopped):,} frames")
    say(
        console,
        f"{summary['status']}: {progress.frames_per_second(summary['steps_per_second'])}, "
        f"{summary['wall_seconds']:.1f} s; {', '.join(told)}; {directory}",
    )


def print_evaluation(result: dict[str, Any]) -> None:
    """Prints an evaluation as a table with one row per agent, followed by the mean return."""
    names = list(result["members"][0])
    results = [name for name in ("won", "drawn", "lost") if f"{name}_per_seed" in result]
    title = f"{result['algo']} on {result['env']}"
    table = Table(*names, "return", "std", "length", "unfinished", *results, title=title)
    columns = ("return", "return_std", "length", "unfinished", *results)
    for label, mean, std, length, unfinished, *parts in zip(
        result["members"], *(result[f"{name}_per_seed"] for name in columns), strict=True
    ):
        numbers = f"{mean:.2f}", f"{std:.2f}", f"{length:.1f}", str(unfinished), *(f"{part:.1%}" for part in parts)
        table.add_row(*map(str, label.values()), *numbers)
    console = Console()
    console.print(table)
    console.print(
        f"mean return {result['return_mean']:.2f} over {result['episodes']} episodes an agent", highlight=False
    )


def print_comparison(comparison: dict[str, Any]) -> None:
    """Prints a comparison of runs as a table with one row per run."""
    table = Table("run", "algo", "frames", "agents", "IQM", "95 % interval", "P(first > this)", "95 % interval")
    for row in comparison["runs"]:
        iqm, better = row["return_iqm"], row["improvement_of_first"]
        table.add_row(
            escape(printable(row["run"])),
            row["algo"],
            f"{row['env_steps']:,}",
            str(row["agents"]),
            f"{iqm['value']:.1f}",
            interval(iqm),
            f"{better['value']:.2f}",
            f"[{better['low']:.2f}, {better['high']:.2f}]",
        )
    Console().print(table)


def interval(estimate: dict[str, float]) -> str:
    """An estimate's confidence interval as text."""
    return f"[{estimate['low']:.1f}, {estimate['high']:.1f}]"


def print_report(report: dict[str, Any]) -> None:
    """Prints a report on a learned function as a table with one row per environment and baseline."""
    table = Table(
        "environment", "baseline", "tuned to", "evolved", "baseline", "difference", "95 % interval", "verdict"
    )
    for row in report["rows"]:
        tuned = [f"{field} {value:.3g}" for field, value in row["tuned"].items()]
        gap = row["difference"]
        verdict = "better" if gap["low"] > 0 else "worse" if gap["high"] < 0 else "no difference seen"
        table.add_row(
            row["env"] + ("" if row["trained_on"] else " (held out)"),
            row["baseline"],
            "".join(tuned) + (" (edge)" if row["at_edge"] else ""),
            with_error(row["fitness"], row["fitness_error"], row["without"]),
            with_error(row["baseline_fitness"], row["baseline_error"], row["baseline_without"]),
            f"{gap['value']:+.2f}",
            f"[{gap['low']:.2f}, {gap['high']:.2f}]",
            verdict if np.isfinite(gap["value"]) else "no episode ended",
        )
    console = Console()
    console = console if console.is_terminal else Console(width=140)
    console.print(table)
    console.print(
        f"fitness over {report['seeds']} held-out seeds, paired; +- is one standard error; a training without fitness "
        "(it died, or no episode ended) counts as the worst of all",
        highlight=False,
    )


def with_error(mean: float, error: float, without: int) -> str:
    """A mean with its standard error as text, and the number of trainings ``without`` a fitness, if any."""
    return f"{mean:.1f} +- {error:.1f}" + (f" ({without} without)" if without else "")
