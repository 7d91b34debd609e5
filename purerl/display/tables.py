"""Summaries and tables of runs, printed to the terminal, at most 80 columns wide."""

import itertools
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from purerl.display import output, progress, words
from purerl.display.progress import in_words, say
from purerl.display.words import STATISTIC, count, interval, shortened
from purerl.errors import printable
from purerl.formulas import aggregates
from purerl.names import shown

WIDTH = 80
"""The columns of a terminal for which tables are made."""
NAME = 30
"""The columns for the names of runs and environments, in tables of several."""
OUTCOMES = "won", "drawn", "lost"
"""The outcomes of a game, as they are named in results."""
LONG = 10
"""The letters from which on the name of a setting is a heading of several lines."""
BUSY = 0.5
"""The load of a machine above which others may compute on it."""
MOST_TOLD = 3
"""The largest number of numbers of an environment's own that get a column in the table of an evaluation."""
EACH = f"IQM: {STATISTIC} [its 95 % bootstrap interval, from {aggregates.LEAST} agents on]"


def print_summary(console: Console, directory: Path, summary: dict[str, Any]) -> None:
    """Prints one line on a finished run: status, speed, time, returns and directory.

    Agents that died do not count in returns; the line has their number. A sweep's line has no returns: its ranking has
    them. An agent of whose episodes none ended has none either.
    """
    size = len(summary["alive_per_seed"])
    died = summary["alive_per_seed"].count(False)
    parts = _played(summary) if died < size and not summary.get("swept") else []
    parts = [*filter(None, [*parts, cut_off(summary)])]
    parts += [f"{died} of {size} agents died"] if died else []
    frames, updates = ("frames", "all_env_steps", "steps_per_second"), ("updates", "all_updates", "updates_per_second")
    unit, taken, speed = updates if "updates" in summary else frames
    if stopped := [at for at in summary.get("stopped_at_per_seed", []) if at is not None]:
        parts.append(f"{len(stopped)} of {size} agents stopped early, the last after {max(stopped):,} {unit}")
    if select := summary.get("select"):
        parts.append(f"{select['kind']} took {summary[taken]:,} {unit} of all agents together")
    seconds = summary["wall_seconds"]  # nan where nobody measured it
    pace = f"{progress.frames_per_second(summary[speed], unit)}, {seconds:.1f} s" if seconds == seconds else ""
    told = filter(None, [pace, ", ".join(parts), shown(directory)])
    say(console, f"{summary['status']}: {'; '.join(told)}")


def _played(summary: dict[str, Any]) -> list[str]:
    """Returns in words what the living agents of a run have earned; in a zero-sum game how much they have won."""
    alive = summary["alive_per_seed"]
    returns = [x for x in itertools.compress(summary["return_per_seed"], alive) if np.isfinite(x)]
    if not returns:
        return ["no return"]
    by_seat = in_seats(summary, alive)
    if "seat_won_per_seed" in summary:
        return [f"{by_seat}{words.simulations(summary)}"]
    everyone = np.where(alive, summary["return_per_seed"], np.nan)
    least = float(np.nanmin(everyone))
    worst = f" (worst: agent {np.nanargmin(everyone)}, {least:.{words.digits(*returns)}f})"
    known = f"{in_words(np.array(returns))}{worst if len(returns) >= aggregates.LEAST else ''}"
    return [f"{sampled(summary)}return {known}{words.simulations(summary)}", by_seat]


def sampled(result: dict[str, Any]) -> str:
    """Returns the word before the returns of an evaluation with sampled actions; empty for the most likely ones."""
    return "sampled " if result.get("sampled") is True else ""


def cut_off(result: dict[str, Any]) -> str:
    """Returns in words how many episodes of an evaluation were cut off; empty if all ended."""
    about = result.get("cut_off")
    return about and "{episodes:,} of {of:,} episodes were cut off after {after_steps:,} steps".format(**about) or ""


def print_evaluation(result: dict[str, Any]) -> None:
    """Prints an evaluation as a table with one row per agent.

    In an environment of several agents one with a row for each seat follows, and unless the run is a sweep a line with
    the agents' returns, as `progress.in_words` has them, or with the games that were won if all would be 0.
    """
    names = list(result["members"][0])
    for name, before in (("chosen", ""), ("against", "against ")):
        if name in result:
            output.show(before + result[name]["words"])
    results = [name for name in OUTCOMES if f"{name}_per_seed" in result]
    told = dict(list(result.get("info_per_seed", {}).items())[:MOST_TOLD])
    played = f"{result['episodes']} {sampled(result)}episodes{words.simulations(result)}"
    title = f"{result['algo']} on {result['env']}, means of {played}"
    table = Table("agent", *names, "return", "std", "length", "unfinished", *results, *map(escape, told), title=title)
    columns = [result[f"{name}_per_seed"] for name in ("return", "return_std", "length", "unfinished")]
    columns += [_shares(result, name) for name in results]
    columns += [[f"{x:.3g}" for x in column] for column in told.values()]
    rows = zip(_numbers(result), result["members"], *columns, strict=True)
    for agent, label, average, std, length, unfinished, *parts in rows:
        numbers = f"{average:.2f}", f"{std:.2f}", f"{length:.1f}", str(unfinished), *parts
        table.add_row(agent, *map(str, label.values()), *numbers)
    _print(table)
    if result.get("seats"):
        _print(seats_table(result))
    if not result["swept"]:
        size = len(result["members"])
        agents = f" over {size} agents, {STATISTIC} with its 95 % interval" if size >= aggregates.LEAST else ""
        known = in_words(np.array(result["return_per_seed"]))
        of_all = f"{sampled(result)}return {known}{agents}" if known else "no return: no episode ended"
        is_game = "seat_won_per_seed" in result and "won_per_seed" not in result
        output.show(in_seats(result, [True] * size) if is_game and known else of_all)
    if line := cut_off(result):
        output.show(line)


def _numbers(result: dict[str, Any]) -> list[str]:
    """Returns the numbers of the agents of an evaluation, which `--agent` and ``RUN:N`` take."""
    return [str(result["chosen"]["agent"])] if "chosen" in result else list(map(str, range(len(result["members"]))))


def seats_table(result: dict[str, Any]) -> Table:
    """Makes the table of an evaluation in an environment of several agents with one row per seat.

    Shares have their 95 % intervals, unless they are means over several agents that play.
    """
    size = len(result["members"])
    names = [name for name in OUTCOMES if f"seat_{name}_per_seed" in result]
    table = Table("seat", "return", *names, title="by seat" + (f", means over {size} agents" if size > 1 else ""))
    for i, seat in enumerate(result["seats"]):
        of_seat = {name: [each[i] for each in column] for name, column in result.items() if name.startswith("seat_")}
        row = {name.removeprefix("seat_"): column for name, column in of_seat.items()}
        means = [f"{_mean(row[f'{name}_per_seed']):.1%}" for name in names]
        shares = means if size > 1 else [_shares(row, name)[0] for name in names]
        average = _mean(row["return_per_seed"])
        table.add_row(seat, f"{average:.2f}" if np.isfinite(average) else "-", *shares)
    return table


def _shares(result: dict[str, Any], name: str) -> list[str]:
    """Returns each agent's share of games that were won, drawn or lost, and below it its interval, as text."""
    shares, intervals = (result[f"{name}_{what}per_seed"] for what in ("", "interval_"))
    told = lambda share, low, high: f"{share:.1%}\n{100 * low:.0f}–{100 * high:.0f}%" if np.isfinite(share) else "-"
    return [told(share, *interval) for share, interval in zip(shares, intervals, strict=True)]


def in_seats(result: dict[str, Any], among: list[bool]) -> str:
    """Returns in words who won the games of an evaluation, or else the return of each seat.

    They are means over the agents in ``among`` ``[P]``. Empty for an environment of one agent.
    """
    means = lambda table: [_mean(column) for column in zip(*itertools.compress(table, among), strict=True)]
    if won := means(result.get("seat_won_per_seed", [])):
        each = [f"seat {seat} {100 * share:.1f} %" for seat, share in zip(result["seats"], won, strict=True)]
        return f"games won by {', '.join(each)}, drawn {max(100 * (1 - sum(won)), 0.0):.1f} %"
    returns = means(result.get("seat_return_per_seed", []))
    named = [f"seat {seat}" if seat.isdecimal() else seat for seat in result.get("seats", [])]
    each = [f"{name} {x:.1f}" for name, x in zip(named, returns, strict=False)]
    return f"by {', '.join(each)}" if each else ""


def _mean(values: Sequence[float]) -> float:
    """Computes the mean of the finite ones of some values; nan if there is none."""
    known = [x for x in values if np.isfinite(x)]
    return float(np.mean(known)) if known else np.nan


FEW_LEVELS = 20
"""The largest number of levels that get a row each."""


def print_levels(result: dict[str, Any]) -> None:
    """Prints an evaluation in chosen levels as a table with one row per agent.

    Its columns are means over all levels and over the worst ones: of the return and, if it is known, of the fraction of
    episodes that were solved. A table with one row per level follows if there are at most `FEW_LEVELS`, and then the
    means over agents.
    """
    kinds = {"return": "{:.3f}", "solved": "{:.1%}"}
    kinds = {kind: form for kind, form in kinds.items() if f"{kind}_per_seed" in result}
    names, agents = list(result["members"][0]), result["members"]
    played = f"{result['episodes']} {sampled(result)}episode(s) each{words.simulations(result)}"
    title = f"{result['algo']} on {result['env']}, {len(result['levels']):,} levels, {played}"
    shares = list(result["return_worst"])
    worst = [f"worst {float(share):.0%}" for share in shares]
    table = Table(
        "agent", *names, *(f"{kind}{each}" for kind in kinds for each in ("", *(f"\n{x}" for x in worst))), title=title
    )
    columns = [column for kind in kinds for column in _of_levels(result, kind, shares)]
    forms = [form for form in kinds.values() for _ in range(len(shares) + 1)]
    for agent, label, *numbers in zip(_numbers(result), agents, *columns, strict=True):
        texts = (form.format(x) for form, x in zip(forms, numbers, strict=True))
        table.add_row(agent, *map(str, label.values()), *texts)
    _print(table)
    if len(result["levels"]) <= FEW_LEVELS:
        each = Table("level", *kinds, title="means over agents")
        means = [np.mean(result[f"{kind}_per_level"], axis=0) for kind in kinds]
        for name, *numbers in zip(result["levels"], *means, strict=True):
            each.add_row(name, *(form.format(x) for form, x in zip(kinds.values(), numbers, strict=True)))
        _print(each)
    for kind, form in kinds.items():
        of_agents = [float(np.mean(column)) for column in _of_levels(result, kind, shares)]
        values_text = ", ".join(f"{what} {form.format(x)}" for what, x in zip(("mean", *worst), of_agents, strict=True))
        output.show(f"{kind}, means over agents: {values_text}")


def _of_levels(result: dict[str, Any], kind: str, shares: list[str]) -> list[list[float]]:
    """Returns each agent's mean over all levels, and those over the worst ``shares`` of them."""
    return [result[f"{kind}_per_seed"], *(result[f"{kind}_worst"][share] for share in shares)]


MOST_ROWS = 30
"""The largest number of rows of a comparison that are printed."""


def print_comparison(comparison: dict[str, Any]) -> None:
    """Prints a comparison of runs as a table with one row per run, and how much the settings of sweeps matter."""
    rows, title = comparison["runs"], comparison["title"]
    digits = 0 if title.startswith("frames") else words.digits(*(x for row in rows for x in row["per_seed"]))
    table = Table(Column("run", no_wrap=True), f"{title}, IQM", "P(first better)")
    for row in rows[:MOST_ROWS]:
        better = row["first_is_better"]
        taken = f"{count(row['updates'])} updates" if "updates" in row else f"{count(row['env_steps'])} frames"
        about = f"{row['algo']}, {taken}, {row['agents']} agent{'s'[: row['agents'] != 1]}"
        run, _, settings = printable(row["run"]).partition(": ")
        drawn = [*(["sampled actions"] if sampled(row) else []), *filter(None, [words.simulations(row)[2:]])]
        lines = [shortened(run, NAME), *textwrap.wrap(settings, NAME), shortened(about, NAME), *drawn]
        table.add_row(
            escape("\n".join(lines)),
            _with_interval(_number(row["iqm"]["value"], digits), row["iqm"], row["per_seed"], digits),
            _with_interval(f"{better['value']:.2f}", better, digits=2),
        )
    _print(table)
    if len(rows) > MOST_ROWS:
        output.show(f"{len(rows) - MOST_ROWS} more rows; --json has all")
    output.show(EACH)
    if comparison.get("told"):
        output.show(comparison["told"])
    if rows and not any(x for row in rows for x in row["per_seed"]):
        output.show("all returns are 0, as in a zero-sum game; purerl eval RUN --against OTHER tells who wins")
    for run, important in comparison["importance"].items():
        _print_importance(run, important)


def _print_importance(run: str, important: dict[str, Any]) -> None:
    """Prints which share of the variance of the scores each setting of a sweep explains."""
    if not important["shares"]:
        output.show(f"no importance of settings: {important['why']}")
        return
    table = Table("setting", "share of the variance", title=escape(f"{shortened(printable(run), NAME)}"))
    names = {"together": "settings together", "seeds": "seeds of a configuration"}
    for name, share in important["shares"].items():
        table.add_row(escape(names.get(name, name)), f"{share:.1%}")
    _print(table)
    output.show(f"by {important['method']}")


def print_offline(comparison: dict[str, Any]) -> None:
    """Prints what policies return that were chosen by few episodes, as a table with one row per number of episodes."""
    rows = comparison["runs"]
    digits = words.digits(*(x for row in rows for x in row["value"]))
    names = [f"{shortened(printable(row['run']), NAME)}\n{row['algo']}, {_policies(row)}" for row in rows]
    table = Table("episodes", *map(escape, names), title=escape(f"return in {rows[0]['env']} of the policy chosen by"))
    for i, after in enumerate(comparison["after"]):
        ends = [{"low": row["low"][i], "high": row["high"][i]} for row in rows]
        cells = [
            _with_interval(_number(row["value"][i], digits), end, digits=digits)
            for row, end in zip(rows, ends, strict=True)
        ]
        table.add_row(f"{after:,}", *cells)
    _print(table)
    output.show(
        f"expected over trials, each among {comparison['policies']} policies [95 % bootstrap interval over\n"
        f"the policies, from {aggregates.LEAST} on]; the return of a policy is the mean of\n"
        f"{comparison['episodes_each']:,} episodes other than those that it is chosen by"
    )
    for row in rows:
        best, mean = (f"{x:.{digits}f}" for x in (max(row["per_policy"]), np.mean(row["per_policy"])))
        output.show(f"{shortened(printable(row['run']), NAME)}: {_policies(row)}; mean {mean}, best {best}")


def _policies(row: dict[str, Any]) -> str:
    """Returns how many policies there are to choose among, and how many diverged."""
    return f"{row['agents']} polic{'y' if row['agents'] == 1 else 'ies'}" + (
        f", {row['diverged']} diverged" if row["diverged"] else ""
    )


def _number(value: float, digits: int) -> str:
    """Returns a number as text; a dash if it does not exist, because too many agents have none."""
    return f"{value:{'' if digits else ','}.{digits}f}" if np.isfinite(value) else "-"


def _with_interval(value: str, estimate: dict[str, Any], each: list[float] | None = None, digits: int = 1) -> str:
    """Returns a value and below it its interval, or ``each`` agent's score if there is no interval."""
    between = interval(estimate, digits)
    if between or each is None or len(each) == 1:
        return escape(f"{value}\n{between}")
    return escape(f"{value} of\n{', '.join(_number(x, digits) for x in each)}")


def print_dataset(name: str, about: dict[str, Any]) -> None:
    """Prints what is in the dataset of a name or a path: its numbers as a table, and who played in lines below."""
    params = ", ".join(f"{key}={value}" for key, value in (about["env_params"] or {}).items())
    env = f"{about['env'] or 'an unknown environment'}{params and f' with {params}'}"
    output.show(printable(f"{shortened(name, WIDTH)}: {env}"))
    title = f"{about['episodes']:,} episodes, {about['steps']:,} steps"
    table = Table("", "mean", "std", "least", "largest", title=title)
    for kind in ("return", "length"):
        row = [about[f"{kind}_{what}"] for what in ("mean", "std", "min", "max")]
        digits = words.digits(*row)
        table.add_row(kind, *(f"{x:,.{digits}f}" for x in row))
    _print(table)
    output.show(f"cut off: {about['truncated']:,} of {about['episodes']:,} episodes")
    output.show(f"without a last observation: {about['missing_last']:,} episodes")
    share = about["actions_at_bounds"]
    output.show(f"numbers of actions at a bound: {'not known' if share is None else f'{share:.2%}'}")
    for each in about["players"]:
        part = ": share {share:.4g}, {episodes:,} episodes, {steps:,} steps".format(**each) if "share" in each else ""
        output.show(f"played by {each['words']}{part}")
    if "sha256" in about:
        output.show(f"{about['bytes']:,} bytes, sha256 {about['sha256'][:12]}")


def print_speeds(measured: dict[str, Any]) -> None:
    """Prints the figures of ``purerl benchmark`` as a table with one row per workload, and about the machine below."""
    heads = "frames/s", "compile,\ns", "peak,\nMiB", "cores", "return"
    table = Table("workload", *(Column(head, justify="right") for head in heads))
    for name, row in measured["workloads"].items():
        if "frames_per_second" not in row:
            table.add_row(escape(printable(name)), "failed")
            continue
        cached = "*" if row["compile_cached"] else ""
        table.add_row(
            escape(printable(name)),
            _speed(row["frames_per_second"]) + ("!" if "failed" in row else ""),
            f"{row['compile_seconds']['median']:.1f}{cached}",
            f"{row['peak_mib']['median']:,.0f}",
            f"{row['cores']['median']:.1f}",
            f"{row['return']:,.{words.digits(row['return'])}f}" if "return" in row else "",
        )
    _print(table)
    many = lambda number, one, more: f"{number} {one if number == 1 else more}"
    taken = many(measured["processes"], "process", "processes"), many(measured["rounds"], "round", "rounds")
    output.show(f"frames/s: median [lowest, highest] of {taken[0]}, {taken[1]} each")
    for name, row in measured["workloads"].items():
        if failed := row.get("failed"):
            what = f"process {failed['process']} of {measured['processes']} failed, with code {failed['code']}"
            output.show(printable(f"{'!: ' if 'device' in row else ''}{name}: {what}: {failed['line']}"))
    rows = [row for row in measured["workloads"].values() if "device" in row]
    if any(row["compile_cached"] for row in rows):
        output.show("*: from JAX_COMPILATION_CACHE_DIR, where it may have been compiled before")
    for row in rows[:1]:
        device, versions = row["device"], row["versions"]
        kind = measured["processor"] if device["platform"] == "cpu" else device["kind"]
        told = ", ".join(f"{name} {versions[name]}" for name in ("purerl", "jax", "jaxlib", "python"))
        output.show(printable(f"{kind}, {measured['cores']} cores; {told}"))
    if measured["load"] > BUSY:
        load = f"load {measured['load']} before the first process"
        output.show(f"{load}: other programs computed, or had just ended; figures may be too low")


def _speed(value: dict[str, float]) -> str:
    """Returns frames/s with their range, unless there is but one number."""
    spread = f" [{count(value['low'])}, {count(value['high'])}]" if value["low"] < value["high"] else ""
    return escape(f"{count(value['median'])}{spread}")


def print_speeds_compared(rows: list[dict[str, Any]], lines: Sequence[str]) -> None:
    """Prints two files of ``purerl benchmark`` beside each other, and lines about what else differs."""
    heads = "first, frames/s", "second, frames/s", "ratio"
    table = Table("workload", *(Column(head, justify="right") for head in heads))
    for row in rows:
        ratio = "{median:.2f} [{low:.2f}, {high:.2f}]".format(**row["ratio"])
        speeds = (count(row[side]["median"]) for side in ("first", "second"))
        table.add_row(escape(printable(row["workload"])), *speeds, escape(ratio))
    _print(table)
    output.show("ratio: of the medians [lowest of the second over highest of the first, highest over lowest]")
    for line in lines:
        output.show(printable(line))


def print_ranking(ranking: dict[str, Any]) -> None:
    """Prints the ranking of a sweep as a table, and its best configuration in a line of its own.

    The frames of each configuration are told where a selection has stopped some.
    """
    names, rows = list(ranking["swept"]), ranking["ranked"]
    many = len(rows[0]["returns"]) >= aggregates.LEAST
    digits = words.digits(*(x for row in rows for x in row["returns"]))
    stopped = len({row.get("env_steps") for row in rows}) > 1
    score = "return, IQM" if many else "return of each seed"
    results = f"{sampled(ranking)}{score}", "worst seed", "died"
    headings = [escape(name if len(name) < LONG else name.replace("_", "_\n")) for name in names]
    table = Table("rank", "agents", *headings, *(["frames"] if stopped else []), *results)
    for place, row in enumerate(rows, start=1):
        died = int(np.isnan(row["returns"]).sum())
        worst = f"{np.nanmin(row['returns']):.{digits}f}" if died < len(row["returns"]) else "-"
        each = ", ".join(f"{x:.{digits}f}" for x in row["returns"] if np.isfinite(x)) or "-"
        text = f"{row['value']:.{digits}f} {interval(row, digits)}" if many else each
        frames = [f"{row['env_steps']:,}"] if stopped else []
        values = (escape(words.value(row[name])) for name in names)
        numbers = words.agents(row["config"], len(row["returns"]))
        table.add_row(str(place), numbers, *values, *frames, escape(text), worst, str(died))
    _print(table)
    best = ", ".join(f"{name} {words.value(rows[0][name])}" for name in names)
    output.show(f"best of {len(rows)}: {best}\n{EACH if many else f'ranked by the {STATISTIC} of the seeds'}")
    if stopped:
        output.show("configurations that trained for more frames are ranked before the others")


def print_report(report: dict[str, Any]) -> None:
    """Prints a report on a function as a table for each environment with one row per baseline."""
    origin = "written" if "function" in report else "evolved"
    for env in dict.fromkeys(row["env"] for row in report["rows"]):
        rows = [row for row in report["rows"] if row["env"] == env]
        place = shortened(env, NAME) + (" (held out)" if origin == "evolved" and not rows[0]["trained_on"] else "")
        table = Table("fitness, IQM of", "", f"{origin} is better by", title=escape(place))
        digits = words.digits(rows[0]["fitness_iqm"]["value"], *(row["baseline_iqm"]["value"] for row in rows))
        table.add_row(origin, _fitness(rows[0]["fitness_iqm"], rows[0]["without"], digits), "")
        for row in rows:
            tuned = "".join(f"{field} {value:.3g}" for field, value in row["tuned"].items())
            gap = row["iqm_difference"]
            verdict = "better" if gap["low"] > 0 else "worse" if gap["high"] < 0 else "no difference seen"
            verdict = verdict if interval(gap) else "too few seeds to tell"
            table.add_row(
                escape(f"{row['baseline']}\n{tuned}{' (edge)' if row['at_edge'] else ''}"),
                _fitness(row["baseline_iqm"], row["baseline_without"], digits),
                escape(f"{gap['value']:+.{max(digits, 2)}f} {interval(gap, max(digits, 2))}\n{verdict}")
                if np.isfinite(gap["value"])
                else "no episode ended",
            )
        _print(table)
    output.show(
        f"IQM: {STATISTIC} over {report['seeds']} held-out seeds,\n"
        "with its 95 % bootstrap interval; differences are paired; a training\n"
        "without fitness (it died, or no episode ended) counts as the worst of all"
    )


def _fitness(estimate: dict[str, Any], without: int, digits: int) -> str:
    """Returns a fitness with its interval, and below it the number of trainings ``without`` one, if any."""
    text = f"{estimate['value']:.{digits}f} {interval(estimate, digits)}".strip()
    return escape(text + (f"\n{without} without" if without else ""))


def _print(table: Table) -> None:
    for column in table.columns:
        column.overflow = "fold"  # long words go on in the next line
    console = Console(file=output.results())
    console = console if console.is_terminal else Console(file=output.results(), width=WIDTH)
    console.print(table)
