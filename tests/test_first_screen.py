"""scripts/first_screen.py: the scale, which rows are shown, the figure number by number, and the table."""

import first_screen
import numpy as np
import pytest
import results
from matplotlib.colors import to_rgba
from matplotlib.image import imread

from purerl.display import plots

KEPT = list(results.read(results.DOCS / results.LINES).values())
TASK = {task.label: task for task in first_screen.TASKS}


def line(algo, env, returns, options="", **more):
    """A line that took a second of one core for each seed."""
    row = f"{algo} {env} 1000 {options}".strip()
    usual = {"frames": 1000, "seconds": float(len(returns)), "cores": 1, "env_params": {}}
    return {"row": row, "algo": algo, "env": env, "returns": returns, **usual, **more}


def shown(*lines):
    """The task, the name and the row of each choice."""
    chosen = first_screen.choices(lines)
    return [(choice.task.label, first_screen.algorithm(choice.line), choice.line["row"]) for choice in chosen]


def test_the_scale_is_from_random_play_to_the_best_that_is_published():
    assert TASK["CartPole"].random == 22.5 and TASK["CartPole"].reference == 500
    assert TASK["Asterix"].reference == 22 and TASK["Asterix"].published.who == "pgx"  # of four, at most 22
    assert TASK["Acrobot"].scaled(-498.8) == 0 and TASK["Acrobot"].scaled(-78.9) == 1
    assert TASK["DeepSea 20"].scaled(0.495) == 0.5 and TASK["DeepSea 20"].published is None
    [choice] = first_screen.choices([line("ppo", "CartPole-v1", [22.5, 500.0, None, 261.25])])
    assert choice.scores == [0, 1, None, 0.5]


def test_of_several_rows_the_best_is_not_preferred():
    """Most seeds, then fewest frames, then fewest options: each time in spite of what is better by the rest."""
    few = line("dqn", "CartPole-v1", [500.0] * 2)
    many = line("dqn", "CartPole-v1", [30.0] * 3, "--a 1 --b 2", frames=2000)
    shorter = line("dqn", "CartPole-v1", [29.0] * 3, "--a 1 --b 2 --c 3", frames=1999)
    plainer = line("dqn", "CartPole-v1", [28.0] * 3, "--a 2", frames=1999)
    for lines, row in (((few,), few), ((few, many), many), ((many, few, shorter), shorter)):
        assert shown(*lines) == [("CartPole", "dqn", row["row"])]
    assert shown(many, plainer, shorter) == shown(plainer, few, shorter) == [("CartPole", "dqn", plainer["row"])]


def test_what_is_an_algorithm_and_a_task_of_its_own():
    """A bonus makes an algorithm, a depth a task, and what changes the task in another way leaves the row out."""
    deep = lambda depth, options="": line("ppo", "DeepSea-v0", [depth - 20.0], options, env_params={"depth": depth})
    hidden = line("ppo", "CartPole-v1", [500.0], env_params={"hide_velocity": 1})
    flat = line("ppo", "Breakout-MinAtar", [9.0], env_params={"flatten": 1})
    got = shown(
        deep(20), deep(10), hidden, deep(20, "--intrinsic rnd"), flat, deep(15), line("vdn", "TwoStep-v0", [8.0])
    )
    assert [each[:2] for each in got] == [
        ("Breakout", "ppo"),
        ("DeepSea 10", "ppo"),
        ("DeepSea 20", "ppo"),
        ("DeepSea 20", "ppo + rnd"),
    ]


def test_recorded_play_is_a_task_of_its_own():
    own, recorded = line("sac", "Pendulum-v1", [-150.0]), line("cql", "Pendulum-v1", [-200.0], "--data mix.safetensors")
    assert [each[:2] for each in shown(own, recorded)] == [("Pendulum", "sac"), ("Pendulum, offline", "cql")]


def test_the_largest_return_is_first_then_the_least_time():
    lines = [
        line("ppo", "CartPole-v1", [500.0], seconds=9.0),
        line("dqn", "CartPole-v1", [30.0]),
        line("a2c", "CartPole-v1", [500.0] * 2, seconds=10.0),
        line("pqn", "CartPole-v1", [501.0], seconds=99.0),
    ]
    assert [name for _, name, _ in shown(*lines)] == ["pqn", "a2c", "ppo", "dqn"]


def test_time_is_of_a_core_and_a_seed():
    assert first_screen.core_seconds({"seconds": 60.0, "cores": 2, "returns": [1.0] * 4}) == 30
    on_gpu = {"seconds": 60.0, "cores": 16, "returns": [1.0] * 4, "device": "NVIDIA H200"}
    assert first_screen.core_seconds(on_gpu) == 15


def at(panel, marker):
    """The places and values of large markers of this form, in a panel."""
    large = [each for each in panel.lines if each.get_marker() == marker and each.get_markersize() > 3]
    return [(round(float(y), 6), float(x)) for each in large for x, y in zip(*each.get_data(), strict=True)]


def test_the_figure_number_by_number():
    lines = [
        line("ppo", "Asterix-MinAtar", [44.5, 43.5, 42.5]),  # twice the reference, which is 22
        line("dqn", "Asterix-MinAtar", [11.25], frames=10, device="NVIDIA H200"),
        line("sac", "Pendulum-v1", [-200.6] * 5 + [-1253.1], seconds=36.0),
        line("td3", "Pendulum-v1", [None, None]),
    ]
    figure = first_screen.figure(first_screen.choices(lines))
    returns, frames, times = figure.axes
    first, second, third, fourth = (round(i + first_screen.GAP * group, 6) for i, group in enumerate((1, 1, 2, 2)))
    assert [label.get_text() for label in returns.get_yticklabels()] == ["ppo", "dqn", "sac", "td3"]
    np.testing.assert_allclose(returns.get_yticks(), [first, second, third, fourth])
    assert returns.yaxis_inverted() and returns.get_xlim() == (first_screen.LEFT, first_screen.RIGHT)
    np.testing.assert_allclose(at(returns, "o"), [(first, 2)])
    np.testing.assert_allclose(at(returns, "s"), [(second, 0.5), (third, 1)])
    assert at(returns, ">") == [(first, first_screen.RIGHT)]
    [bar] = returns.collections
    [(low, place), (high, _)] = bar.get_segments()[0]
    assert low < high == pytest.approx(1) and round(place, 6) == third
    assert at(frames, "o") == [(first, 1000)] and at(frames, "s") == [(second, 10), (third, 1000), (fourth, 1000)]
    assert at(times, "o") == [(first, 1)] and at(times, "s") == [(second, 1), (third, 6), (fourth, 1)]
    filled = [each.get_markerfacecolor() == each.get_color() for each in times.lines]
    assert filled == [True, False, True, True]
    assert [to_rgba(each.get_color()) for each in times.lines] == [to_rgba(plots.COLOURS[i]) for i in (0, 1, 1, 1)]
    told = {text.get_text(): round(float(text.xy[1]), 6) for text in returns.texts}
    assert told == {"2.0": first, "one seed": second, "Asterix": first, "Pendulum": third}


def test_the_table_has_what_the_lines_have():
    """Of what has no line nothing is said."""
    name = next(each.row for each in first_screen.ADVICE if each.purpose == "images")
    read = {"row": name, "algo": "impala", "env": "Asterix-MinAtar", "env_params": {}, "cores": 2}
    told = first_screen.advice([{**read, "frames": 3_161_000, "returns": [3.0, 3.0], "seconds": 150.0}])
    assert told[2:] == [
        "| images | [impala](algorithms/impala.md) | a convolution, and no replay | **3.00** [3.00, 3.00], 2 seeds, in "
        "[Asterix-MinAtar](#asterix-minatar); best published 22 | 3.2M frames, 2.5 min of a core |"
    ]
    one = first_screen.advice([{**read, "frames": 499_712, "returns": [3.0], "seconds": 3.0, "device": "H"}])
    assert "**3.00**, one seed, in" in one[2] and one[2].endswith("| 500k frames, 3 s of H |")
    assert len(first_screen.advice([])) == 2


def test_a_purpose_is_named_once():
    purposes = [row.split("|")[1].strip() for row in first_screen.advice(KEPT)[2:]]
    named = [purpose for purpose in purposes if purpose]
    assert named == list(dict.fromkeys(each.purpose for each in first_screen.ADVICE)) and purposes[0]
    assert len(purposes) > len(named)


def test_advice_is_of_rows_that_are_trained():
    rows = {row.name for row in results.ROWS}
    assert [each.row for each in first_screen.ADVICE if each.row not in rows] == []
    on_gpu = {each.row for each in first_screen.ADVICE if each.purpose == first_screen.GPU}
    assert on_gpu and not any(results.is_of_a_cpu(each) for each in KEPT if each["row"] in on_gpu)


def test_the_page_begins_with_the_figure_and_the_table():
    page = results.page(KEPT)
    assert page.startswith(f"# Results\n\n![{first_screen.ALT}]({first_screen.FIGURE})\n")
    parts = [page.index(part) for part in ("| for | take |", "## How to read the figure", "## How to read the tables")]
    assert parts == sorted(parts) and parts[0] < 1000
    assert imread(results.DOCS / first_screen.FIGURE).shape[1] == 150 * first_screen.WIDTH
    nothing = results.page([each for each in KEPT if each["env"] == "TwoStep-v0"])
    assert first_screen.FIGURE not in nothing and "How to read the figure" not in nothing
