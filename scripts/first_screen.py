"""The first screen of docs/results.md: a figure of which algorithm suits which task, and a table of what to take.

Both are made of the lines of ``results.jsonl`` alone. Rows that have no line are left out.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import index
from published import PUBLISHED, Published
from result_lines import SAME_TASK, in_order, interval, is_of_a_cpu
from rows import (
    BATTLE,
    DEMOS,
    FLAT,
    NEAR_TO_MIX,
    PHYSICS,
    ROW_BY_ROW,
    SEA_OF_20,
    SMALL,
    SOFT_ROBOTS,
    SPREAD,
    TEAM,
    WITHIN_100,
    learns_from_play,
)

FIGURE = "which-algorithm.png"
ALT = "Returns, frames and time of each algorithm, task by task, the largest return first"
CAPTION = """*A row is an algorithm in a task, the largest return first: the interquartile mean over seeds with its 95 %
interval, or with small dots for single seeds where they are fewer than five; the frames of a seed; and the time that a
seed takes of one core, or of a GPU. What is best published has any algorithm and any number of frames. [How to read
it](#how-to-read-the-figure).*"""
ABOUT = """
## How to read the figure

Of several rows of an algorithm in a task it has the one with the most seeds, of these the one with the fewest frames,
then the one with the fewest options; a bonus for novelty makes another algorithm. Seeds of a row are trained together,
and their time is divided by their number; compiling is not counted. Returns are scaled so that 0 is the mean of random
play (`purerl record random`, 1,000 episodes, 200 in Freeway, 100 of robots) and 1 the best return that others have
published for the environment, with whatever algorithm and frames, or the most there is. What is beyond the end of the
scale stands there with its value. Offline is to learn from recorded play alone; there frames are gradient steps.
"""
GPU = "a GPU"
LEFT, RIGHT = -0.15, 1.75
"""The ends of the figure's scale; what lies beyond is marked at the end, with its value."""
WIDTH, ROW, GAP = 5.2, 0.145, 0.6
"""The width of the figure and the height of a row in inches, and the gap between tasks in rows."""
MARKERS = "os"
"""Of algorithms that learn from their own rollouts, and of those that learn from a replay."""
LETTERS, NAMES_AT = 8, -125
"""The size of the letters, which are 8 pixels where the figure is 390 wide, and where the names of tasks begin, in
points."""


class Task(NamedTuple):
    """An environment, with the parameters that make it a task of its own.

    - ``label``: its name in the figure.
    - ``random``: the mean return of random play.
    - ``most``: the largest return there is, where others have published none.
    - ``offline``: whether it is to learn from recorded play alone.
    """

    label: str
    env: str
    random: float
    params: tuple[tuple[str, Any], ...] = ()
    most: float | None = None
    offline: bool = False

    def has(self, line: dict[str, Any]) -> bool:
        """Returns whether a line is of this task."""
        own = {name: x for name, x in line.get("env_params", {}).items() if name not in SAME_TASK}
        return (line["env"], own, learns_from_play(line["row"])) == (self.env, dict(self.params), self.offline)

    @property
    def published(self) -> Published | None:
        """The largest return that others have published."""
        return max(PUBLISHED.get(self.env, ()), key=lambda figure: figure.value, default=None)

    @property
    def reference(self) -> float:
        """The return that is 1 on the scale."""
        return self.published.value if self.published else self.most

    def scaled(self, value: float) -> float:
        """A return on the scale from random play, 0, to the reference, 1."""
        return (value - self.random) / (self.reference - self.random)


TASKS = (
    Task("Breakout", "Breakout-MinAtar", 0.4),
    Task("SpaceInvaders", "SpaceInvaders-MinAtar", 4.2),
    Task("Freeway", "Freeway-MinAtar", 0.3),
    Task("Asterix", "Asterix-MinAtar", 0.5),
    Task("Seaquest", "Seaquest-MinAtar", 0.1),
    Task("hopper", "brax/positional/hopper", 116.9),
    Task("ant", "brax/positional/ant", -190.7),
    Task("halfcheetah", "brax/positional/halfcheetah", -113.8),
    Task("Pendulum", "Pendulum-v1", -1253.1),
    Task("Pendulum, offline", "Pendulum-v1", -1253.1, offline=True),
    Task("DeepSea 10", "DeepSea-v0", 0, (("depth", 10),), most=0.99),
    Task("DeepSea 20", "DeepSea-v0", 0, (("depth", 20),), most=0.99),
    Task("MountainCar", "MountainCar-v0", -200),
    Task("Acrobot", "Acrobot-v1", -498.8),
    Task("CartPole", "CartPole-v1", 22.5),
)
"""Of the figure, from above: images, robots, continuous actions, exploration, few actions."""


class Advice(NamedTuple):
    """What to take: for what, the name of a row, and a reason that holds however the row went."""

    purpose: str
    row: str
    reason: str


ADVICE = (
    Advice("discrete actions", "ppo Acrobot-v1 500000", "the usual first choice, at its defaults"),
    Advice("discrete actions", f"sac-discrete CartPole-v1 50000 {SMALL}", "few frames: each is learned from often"),
    Advice(
        "discrete actions",
        f"c51 Acrobot-v1 500000 {WITHIN_100}",
        "values as distributions, from a replay; their range must be known",
    ),
    Advice("continuous actions", "v-mpo Pendulum-v1 1000000 --preset continuous", "little computing: no replay"),
    Advice("continuous actions", "sac Pendulum-v1 50000", "few frames: each is learned from often"),
    Advice("little time on a CPU", "a2c CartPole-v1 500000", "a gradient step for each rollout, and no replay"),
    Advice(
        "little time on a CPU", f"ppo SpaceInvaders-MinAtar 10000000 {FLAT}", "two layers of 64, without a convolution"
    ),
    Advice("images", "impala Asterix-MinAtar 10000000 --preset image", "a convolution, and no replay"),
    Advice("images", "pqn Breakout-MinAtar 10000000 --preset image", "action values, without a replay either"),
    Advice("images", "dqn Breakout-MinAtar 3200000 --preset image", "fewer frames: each is learned from often"),
    Advice("memory", "r2d2 MemoryChain-bsuite 200000 --env-params memory_length=20", "sequences from a replay"),
    Advice(
        "memory", "ppo CartPole-v1 500000 --preset memory --env-params hide_velocity=1", "a GRU; velocities are hidden"
    ),
    Advice("exploration", f"ppo DeepSea-v0 240000 {SEA_OF_20} --intrinsic rnd", "a bonus for what is new"),
    Advice(
        "exploration",
        f"ngu DeepSea-v0 48640 --env-params depth=10 {ROW_BY_ROW} --novelty lifelong",
        "policies that seek what is new, beside one that does not",
    ),
    Advice("several agents", f"mappo jaxmarl/MPE_simple_spread_v3 1000000 {SPREAD}", "a critic that sees the whole"),
    Advice("several agents", f"ippo jaxmarl/SMAX/3m 204800 {BATTLE}", "the simplest: PPO for each agent"),
    Advice("several agents", f"qmix TwoStep-v0 20512 {TEAM} --mixer-size 8", "a value of the team, for one reward"),
    Advice("recorded play to begin with", f"r2d3 CueCorridor-v0 100000 --demos {DEMOS}", "20 episodes of an expert"),
    Advice("recorded play alone", f"rebrac Pendulum-v1 10000 {NEAR_TO_MIX}", "stays near to what was recorded"),
    Advice("planning", "alphazero Catch-bsuite 50000", "a search in the environment itself"),
    Advice("planning", "muzero Catch-bsuite 100000", "a search in a model that it learns"),
    Advice("robots", f"ppo brax/positional/ant 10000000 {PHYSICS} --hidden-sizes 64 64", "frames cost little in JAX"),
    Advice("robots", f"sac brax/positional/hopper 1000000 {SOFT_ROBOTS}", "few frames: each is learned from often"),
    Advice(GPU, "pqn Seaquest-MinAtar 10000000 --preset image", "many environments at once, and no replay"),
)


class Choice(NamedTuple):
    """A line that stands for its algorithm in a task."""

    task: Task
    line: dict[str, Any]

    @property
    def scores(self) -> list[float | None]:
        """The returns of its seeds on the scale."""
        return [None if x is None else self.task.scaled(x) for x in self.line["returns"]]


def algorithm(line: dict[str, Any]) -> str:
    """Its name; a bonus for novelty makes it another one."""
    bonus = re.search(r"--intrinsic (\w+)", line["row"])
    return f"{line['algo']} + {bonus[1]}" if bonus else line["algo"]


def core_seconds(line: dict[str, Any]) -> float:
    """Seconds that a seed takes of one core, or of the GPU."""
    return line["seconds"] * (line["cores"] if is_of_a_cpu(line) else 1) / len(line["returns"])


def choices(lines: Iterable[dict[str, Any]]) -> list[Choice]:
    """A line for each algorithm of each task, those of a task by their returns, equal ones by their time.

    Of several lines it is the one with the most seeds, then with the fewest frames, then with the fewest options.
    """
    result, ordered = [], in_order(lines)
    preferred = lambda line: (-len(line["returns"]), line["frames"], len(line["row"].split()))
    best = lambda choice: (-interval(choice.scores).value, core_seconds(choice.line))
    for task in TASKS:
        named: dict[str, dict[str, Any]] = {}
        for line in sorted(filter(task.has, ordered), key=preferred):
            named.setdefault(algorithm(line), line)
        result += sorted((Choice(task, line) for line in named.values()), key=best)
    return result


def text(lines: Sequence[dict[str, Any]]) -> str:
    """The first screen and how to read it; without choices there is no figure."""
    if not choices(lines):
        return "\n".join(advice(lines))
    return "\n".join([f"![{ALT}]({FIGURE})\n\n{CAPTION}\n", *advice(lines), ABOUT, *scale()])


def advice(lines: Iterable[dict[str, Any]]) -> list[str]:
    """The table of what to take, with the figures of those rows that have a line."""
    by_name = {line["row"]: line for line in lines}
    told, result = "", ["| for | take | because | it reached | at the cost of |", "|---|---|---|---|---|"]
    for purpose, row, reason in ADVICE:
        if line := by_name.get(row):
            first, told = purpose if purpose != told else "", purpose
            took = f"[{algorithm(line)}](algorithms/{line['algo']}.md)"
            result.append(f"| {first} | {took} | {reason} | {reached(line)} | {cost(line)} |")
    return result


def reached(line: dict[str, Any]) -> str:
    """The return of a line with its interval and seeds, where on the page it is, and the end of the task's scale."""
    env, seeds = line["env"], len(line["returns"])
    value, low, high = interval(line["returns"])
    between = f" [{low:.2f}, {high:.2f}], {seeds} seeds" if seeds > 1 else ", one seed"
    anchor = re.sub(r"[^\w -]", "", env.lower()).replace(" ", "-")
    beside = [
        f"; {'best published' if task.published else 'at most'} {task.reference:g}" for task in TASKS if task.has(line)
    ]
    return f"**{value:.2f}**{between}, in [{env}](#{anchor}){''.join(beside)}"


def cost(line: dict[str, Any]) -> str:
    """The frames or gradient steps of a seed, and its seconds or minutes of a core or of the GPU."""
    frames, seconds = float(f"{line['frames']:.2g}"), core_seconds(line)
    shown = f"{frames / 1e6:g}M" if frames >= 1e6 else f"{frames / 1e3:g}k"
    time = f"{seconds:.2g} s" if seconds < 60 else f"{seconds / 60:.2g} min"
    unit = "updates" if learns_from_play(line["row"]) else "frames"
    return f"{shown} {unit}, {time} of {'a core' if is_of_a_cpu(line) else line['device']}"


def scale() -> list[str]:
    """The table of what the ends of the figure's scale are."""
    result = ["| task | environment | 0 | 1 | which is |", "|---|---|---|---|---|"]
    for task in TASKS:
        params = f" with {' '.join(f'{name}={x}' for name, x in task.params)}" if task.params else ""
        best = task.published
        of = f"{best.who}, {best.algorithm}, {best.frames:,.0f} frames" if best else "the most there is"
        result.append(f"| {task.label} | {task.env}{params} | {task.random:g} | {task.reference:g} | {of} |")
    return result


def figure(chosen: Sequence[Choice]) -> Any:
    """Draws a row for each choice: the returns on the scale, the frames of a seed, and its time."""
    import numpy as np

    from purerl.display import plots

    new = [not i or choice.task != chosen[i - 1].task for i, choice in enumerate(chosen)]
    places = np.arange(len(chosen)) + GAP * np.cumsum(new)
    result = plots.Figure(figsize=(WIDTH, 1.1 + ROW * places[-1]), layout="constrained")
    returns, frames, times = panels = result.subplots(1, 3, sharey=True, width_ratios=(1.7, 1, 1))
    for place, choice in zip(places, chosen, strict=True):
        row(panels, place, choice)
    half, tasks = (1 + GAP) / 2, dict.fromkeys(choice.task for choice in chosen)
    ends = [*(places[new] - half), places[-1] + half]
    at = {"xycoords": returns.get_yaxis_transform(), "textcoords": "offset points"}
    for i, (task, begin, end) in enumerate(zip(tasks, ends[:-1], ends[1:], strict=True)):
        where = (0, begin + half), (NAMES_AT, 0)
        returns.annotate(task.label, *where, va="center", fontsize=LETTERS, weight="bold", **at)
        for panel in panels:
            panel.axhspan(begin, end, color="k", alpha=0 if i % 2 else 0.06, linewidth=0)
    returns.set_yticks(places, [algorithm(choice.line) for choice in chosen], fontsize=LETTERS + 1)
    returns.set(xlim=(LEFT, RIGHT), ylim=(ends[-1], ends[0]))
    returns.axvline(1, color="k", linewidth=0.8)
    for panel, name in zip(panels, ("return", "frames", "core time"), strict=True):
        panel.set(xlabel=name, xscale="linear" if panel is returns else "log")
        panel.xaxis.set_label_position("top")
        panel.minorticks_off()
        panel.spines[:].set_visible(False)
        panel.tick_params(length=0, labeltop=True)
        panel.tick_params(axis="x", labelsize=LETTERS)
        plots.dress(panel)
        panel.grid(visible=False, axis="y")
    returns.set_xticks((0, 1), ("random\nplay", "best\npublished"))
    frames.set_xticks((1e5, 1e7))
    times.set_xticks((1, 60, 3600), ("1 s", "1 min", "1 h"))
    for replays, words in enumerate(("from its own rollouts", "from a replay")):
        returns.plot([], [], MARKERS[replays], color=plots.COLOURS[replays], label=words)
    returns.plot([], [], "o", color="k", markerfacecolor="white", label="hollow: time of a GPU")
    result.legend(loc="outside upper left", ncols=3, fontsize="small", frameon=False)
    return result


def row(panels: Sequence[Any], place: float, choice: Choice) -> None:
    """Draws a choice in its row of the panels."""
    import numpy as np

    from purerl.display import plots

    returns, frames, times = panels
    replays, line = not index.is_on_policy(choice.line["algo"]), choice.line
    colour, marker, value = plots.COLOURS[replays], MARKERS[replays], interval(choice.scores).value
    whole = {"color": colour, "marker": marker, "clip_on": False}  # not cut at the ends
    plots.dot(returns, place, np.array(choice.scores, np.float64), colour, marker)
    told = {"xy": (RIGHT - 0.1, place), "ha": "right", "va": "center", "fontsize": LETTERS, "color": "dimgrey"}
    if value > RIGHT:
        returns.plot(RIGHT, place, **{**whole, "marker": ">"})
        returns.annotate(f"{value:.1f}", **told)
    if len(choice.scores) == 1:
        returns.annotate("one seed", **{**told, "xy": (LEFT + 0.1, place), "ha": "left"})
    frames.plot(line["frames"], place, **whole)
    times.plot(core_seconds(line), place, **whole, markerfacecolor=colour if is_of_a_cpu(line) else "white")
