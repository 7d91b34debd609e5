"""The code of the documentation: what CONTRIBUTING.md promises of it.

A Python block runs, those of a page in one namespace and at tiny sizes; one whose first line is a comment ``# trains in
N s`` runs as it is. Commands of a shell block are read by the command line and described, up to where something would
compile; those of `RUN` run. A block is let pass only if its first line is a comment ``# not run:`` with the reason. A
page's "whole of `NAME.py`" is a module that every page can import.
"""

import ast
import dataclasses
import importlib
import re
import shlex
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import face
import jax
import numpy as np
import players
import pytest
import results
from rows import learns_from_play

import purerl
from purerl import cli, loops
from purerl.algos import ALGORITHMS
from purerl.errors import ConfigError

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
OUTSIDE = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
NOTEBOOK = DOCS / "notebook.md"
"""A page that `test_notebook` runs as a notebook."""
PAGES = OUTSIDE + [page for page in sorted(DOCS.rglob("*.md")) if DOCS / "generated" not in page.parents]
PAGES.remove(NOTEBOOK)
RUN = (ROOT / "README.md", DOCS / "first-hour.md", DOCS / "your-gymnasium-environment.md")
"""Pages whose commands run, one after the other."""
SMALLER = {
    "train": "--total-steps 1024 --num-seeds 2 --eval-episodes 2 --hidden-sizes 8",
    "sweep": "--total-steps 8192 --num-seeds 1 --eval-episodes 2 --hidden-sizes 8",
    "evolve": "--total-steps 1024 --num-steps 64 --population 4 --generations 2 --hidden-sizes 8",
    "eval": "--episodes 2",
    "render": "--max-steps 10",
    "check-env": "--steps 20",
}
"""Options that make the commands of `RUN` small: the last of two counts."""
ONLY_READ = "report", "dashboard"
"""Commands that take long, or for ever: those of `RUN` do not run either."""
COMPUTES = (
    "purerl.runs.running.train.train",
    "purerl.runs.running.sweep_of_programs.train_programs",
    "purerl.runs.running.forecast.plan",
    "purerl.runs.reading.evaluation.evaluate_run",
    "purerl.runs.reading.comparison.compare",
    "purerl.runs.reading.episodes.record_run",
    "purerl.runs.reading.games.of_run",
    "purerl.meta.search.search",
    "purerl.meta.cost.plan",
    "purerl.meta.report.report",
    "purerl.cli.limited.run",
    "purerl.learned.artefacts.load",
    "purerl.cli.check.examine",
    "purerl.benchmarks.measuring.measure",
    "purerl.display.dashboard.server.server",
)
"""What a command that was read comes to, and where the others end."""
LEARNS = "# trains in "
"""How a block begins that trains to a return that it asserts."""
KEYWORDS = {"total_steps": 1024, "num_iterations": 1, "num_intervals": 2, "generations": 2, "num_episodes": 2}
"""Largest values of keyword arguments in Python blocks."""
COUNTED = ("split", "logspace", "linspace", "population_based_training")
"""Functions whose numbers, beside those of the keyword ``population``, count members: at most `MEMBERS`."""
MEMBERS = 4
OWN = "from corridor import corridor as make_env\nfrom my_algorithm import penalised as my_algorithm\n"
"""``my_package.my_module`` of the examples."""


class Block(NamedTuple):
    language: str
    text: str


class Reached(BaseException):
    """A command was read, and would compute now."""


def blocks(page):
    """The fenced blocks of a page that are not let pass."""
    fences = re.findall(r"^```(\w*)[^\n]*\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return [Block(*block) for block in fences if not re.match(r"# not run: \w", block[1])]


def with_blocks(language):
    return [
        pytest.param(page, id=str(page.relative_to(ROOT)))
        for page in PAGES
        if any(block.language == language for block in blocks(page))
    ]


def commands(page):
    """The commands of a page's shell blocks, as words."""
    lines = [
        line
        for block in blocks(page)
        if block.language == "sh"
        for line in re.sub(r"\\\n", " ", block.text).splitlines()
    ]
    words = [shlex.split(part, comments=True) for line in lines for part in line.split("&&")]
    return [each for each in words if each]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working directory with the modules of the pages."""
    whole = r"whole of\s`(\w+\.py)`.*?^```python\n(.*?)^```"
    modules = dict(each for page in PAGES for each in re.findall(whole, page.read_text(), re.MULTILINE | re.DOTALL))
    assert {"corridor.py", "orchard.py"} <= modules.keys()
    for name, text in modules.items():
        (tmp_path / name).write_text(text)
    for name in ("my_package", "runs"):
        (tmp_path / name).mkdir()
    (tmp_path / "my_package/my_module.py").write_text(OWN)
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    for name in ("ppo", "dqn", "sac"):
        (tmp_path / f"my_{name}.py").write_text((ROOT / f"purerl/algos/{name}.py").read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    own = *(Path(name).stem for name in modules), "my_package", "my_package.my_module", "scripts", "scripts.players"
    for name in own:
        sys.modules.pop(name, None)


class Smaller(ast.NodeTransformer):
    """At most `MEMBERS` members, and `KEYWORDS`."""

    def visit_Call(self, node):
        self.generic_visit(node)
        counted = getattr(node.func, "attr", getattr(node.func, "id", "")) in COUNTED
        limits = [(arg, MEMBERS) for arg in node.args if counted]
        limits += [(keyword.value, {**KEYWORDS, "population": MEMBERS}.get(keyword.arg)) for keyword in node.keywords]
        for value, limit in limits:
            if limit and isinstance(value, ast.Constant) and type(value.value) is int:
                value.value = min(value.value, limit)
        return node


def run_blocks(page, monkeypatch, namespace):
    """Yields each Python block of a page, and whether it trains to a stated return. Runs the others at tiny sizes."""
    whole = loops.train  # of which a page has many iterations
    patched = lambda trainer, num_iterations: whole(trainer, min(num_iterations, 1))
    monkeypatch.setattr(purerl, "use_cpu_cores", lambda: None)  # which would be too late in this process
    for block in blocks(page):
        if block.language == "python":
            learns = block.text.startswith(LEARNS)
            yield block, learns
            if not learns:
                with monkeypatch.context() as smaller:
                    smaller.setattr(loops, "train", patched)
                    exec(compile(Smaller().visit(ast.parse(block.text)), str(page), "exec"), namespace)


LEARNING = [page for page in PAGES if any(block.text.startswith(LEARNS) for block in blocks(page))]


@pytest.mark.rest
@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in LEARNING])
def test_examples_learn(page, folder, monkeypatch):
    """What a page states is reached: its blocks that train run as they are, after the others at tiny sizes."""
    namespace, stated = {"__name__": page.stem}, []
    for block, learns in run_blocks(page, monkeypatch, namespace):
        if learns:
            *before, last = ast.parse(block.text).body
            assert isinstance(last, ast.Assert), f"{page.name}: a block that trains ends in what it reaches"
            exec(compile(ast.Module(before, []), str(page), "exec"), namespace)
            stated.append(ast.unparse(last.test))
            assert eval(stated[-1], namespace), f"{page.name}: {stated[-1]}"
            break
    assert stated and namespace["result"].state.alive


@pytest.mark.rest
@pytest.mark.weekly(
    "recipes.md",
    "discogen.md",
    "python.md",
    "opponent-shaping.md",
    "your-network.md",
    "your-loss.md",
    "two-kinds.md",
    "your-algorithm.md",
)
@pytest.mark.parametrize("page", with_blocks("python"))
def test_python_blocks_run(page, folder, monkeypatch):
    """From the first to the last, in one namespace; what a block raises, its own assertions included, fails."""
    if "import optuna" in page.read_text():
        pytest.importorskip("optuna")
    namespace = {"__name__": page.stem}
    for _ in run_blocks(page, monkeypatch, namespace):
        pass
    made = {name: x for name, x in namespace.items() if not name.startswith("__")}
    assert made
    for name, x in made.items():
        if isinstance(x, jax.Array) and jax.dtypes.issubdtype(x.dtype, np.floating):
            assert not np.isinf(x).any(), f"{page.name}: {name} is infinite"


def problems(words):
    """What the command line says of a command, up to where it would compute; but for files that are not there, and
    extras that are not installed."""
    try:
        cli.dispatch(words[1:])
    except (Reached, SystemExit):
        return ""
    except ConfigError as error:
        excused = "No such file or directory", "is not installed; pip install"
        return "" if any(excuse in str(error) for excuse in excused) else f"{shlex.join(words)}: {error}"
    return ""


@pytest.fixture
def reading(folder, monkeypatch):
    """Nothing is computed."""

    def reached(*args, **kwargs):
        raise Reached

    for name in COMPUTES:
        monkeypatch.setattr(name, reached)
    monkeypatch.setattr("purerl.processes.begin", lambda *args: None)  # there are no others


@pytest.mark.rest
@pytest.mark.parametrize("page", with_blocks("sh"))
def test_commands_are_read(page, reading):
    for words in commands(page):
        if words[0] == "purerl":
            assert not problems(words)
        else:
            assert_known(words)


@pytest.mark.weekly
def test_commands_of_the_table_of_systems_are_read(reading):
    """Where they name no environment, in one of these."""
    envs = "CartPole-v1", "Pendulum-v1", "Landmarks-v0", "TicTacToe-v0"
    for command in re.findall(r"`(purerl \w+ [^`]*)`", (DOCS / "systems.md").read_text()):
        words = shlex.split(command)
        lines = [problems(words if "--env" in words else [*words, "--env", env]) for env in envs]
        assert not all(lines), lines


def assert_known(words):
    """Another program than purerl: a script that is there, extras that pyproject has, or the tools of a contributor."""
    if words[:2] == ["pip", "install"]:
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert {name for word in words for names in re.findall(r"\[(.*)\]", word) for name in names.split(",")} <= set(
            extras
        )
    elif words[0] == "python" or "=" in words[0] or words[0].startswith(".ci/"):
        assert any((ROOT / word).is_file() for word in words if word.startswith(("scripts/", ".ci/"))), words
    else:
        assert words[0] in ("pytest", "pre-commit", "sphinx-build", "python3", "cp", "."), words


@pytest.mark.weekly
@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in RUN])
def test_commands_run(page, folder):
    for words in commands(page):
        if words[0] == "purerl":
            kind = words[2] if words[1:3] == ["evolve", "report"] else words[1]
            if kind in ONLY_READ:
                continue
            with pytest.raises(SystemExit) as stopped:
                cli.main([*words[1:], *SMALLER.get(kind, "").split()])
            assert not stopped.value.code, words


def test_pages_import_stable_names_from_where_they_are_stable():
    """A name of another module stands for something that no stable name stands for."""
    stable = face.modules()
    values = {id(value): f"{module}.{name}" for module, names in stable.items() for name, value in names.items()}
    trees = [ast.parse(block.text) for page in PAGES for block in blocks(page) if block.language == "python"]
    imports = [x for tree in trees for x in ast.walk(tree) if isinstance(x, ast.ImportFrom)]
    own = {x for x in imports if x.module.partition(".")[0] == "purerl" and x.module not in stable}
    named = [(x.module, face.value(importlib.import_module(x.module), alias.name)) for x in own for alias in x.names]
    assert named
    assert [f"{module}: use {values[id(value)]}" for module, value in named if id(value) in values] == []


@pytest.mark.parametrize("page", [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES])
def test_links_lead_somewhere(page):
    """To files of the repository, and to headings of pages."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert not re.search(r"\s", target), f"{target}: a link ends at a space"
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", there.read_text(), re.MULTILINE)
            assert anchor in [slug(heading) for heading in headings], target


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES if "tests/" in page.read_text()])
def test_tests_that_a_page_names_are_there(page):
    """``::test_name`` without a file is in the file that was named last."""
    text = ""
    for path, name in re.findall(r"(tests/[\w/]+\.py)?(?:::(\w+))?", page.read_text()):
        text = (ROOT / path).read_text() if path else text
        assert not name or f"def {name}(" in text, f"{path}::{name}"


def slug(heading):
    """The anchor that GitHub, and the site, give a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_figures_of_the_readme_are_those_of_the_sections_it_names():
    rows = re.findall(r"^\|(.*)\[.*\]\((.*)#(.*)\) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    found = []
    for cells, page, anchor in rows:
        _, *parts = re.split(r"^#+ (.*)$", (ROOT / page).read_text(), flags=re.MULTILINE)
        text = dict(zip(map(slug, parts[::2]), parts[1::2], strict=True))[anchor]
        figures = re.findall(r"\d[\d,]*,\d{3}|\b\d+\.\d\d\b", cells)
        assert [figure for figure in figures if not re.search(rf"\b{re.escape(figure)}\b", text)] == []
        found += figures
    assert len(found) > 15


def test_no_setting_has_a_name_that_the_table_of_names_replaces():
    table = (DOCS / "design.md").read_text().partition("## Names in code")[2].partition("## ")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")]
    instead = {word for row in rows for word in re.findall(r"`(\w+)`", row[2])}
    settings = {field.name for algo in ALGORITHMS.values() for field in dataclasses.fields(algo.Config)}
    assert instead and not instead & settings


def names_within(path):
    """What a module binds at its top level; of a package also its modules."""
    results = {each.stem for each in path.parent.iterdir()} if path.name == "__init__.py" else set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            results.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            results |= {(each.asname or each.name).partition(".")[0] for each in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            results.add(node.id)
    return results


def test_docstrings_name_what_is_there():
    """`module.name` in the source is something in a module of that name."""
    files, named = sorted((ROOT / "purerl").rglob("*.py")), {"purerl": set(dir(purerl))}
    for path in files:
        module = path.parent.name if path.name == "__init__.py" else path.stem
        named[module] = named.get(module, set()) | names_within(path)
    reference = re.compile(r"`(?:\w+\.)*(\w+)\.(\w+)`(?!`)")
    missing = [
        (path.name, match[0])
        for path in files
        for match in reference.finditer(path.read_text())
        if match[1] in named and match[2] not in (*named[match[1]], "py")
    ]
    assert missing == []


def test_the_page_of_results_is_made_of_its_lines():
    assert (DOCS / results.PAGE).read_text() == results.page(results.read(DOCS / results.LINES).values())


def test_a_row_of_sampled_returns_says_so():
    line = next(line for line in results.read(DOCS / results.LINES).values() if line["algo"] == "ppo")
    greedy, drawn = results.cells(line), results.cells({**line, "sampled": True})
    assert drawn.replace("] sampled |", "] |") == greedy != drawn


def test_pictures_of_results_have_each_curve_once_and_few_at_a_time():
    lines = [{"row": str(number), "curve": {}} for number in range(2 * results.CURVES + 1)]
    shown = results.pictures("brax/ant", [*lines, {"row": "without"}])
    assert list(shown) == ["brax-ant.png", "brax-ant-2.png", "brax-ant-3.png"]
    assert sum(shown.values(), []) == lines and max(map(len, shown.values())) == results.CURVES
    named = re.findall(r"\(curves/(.*?)\)", (DOCS / results.PAGE).read_text())
    assert sorted(named) == sorted(path.name for path in (DOCS / "curves").iterdir())


@pytest.mark.rest
@pytest.mark.parametrize("row", results.ROWS, ids=lambda row: row.name)
def test_rows_of_results_can_be_trained(row, folder, monkeypatch):
    if not row.is_installed:
        pytest.skip("its library is an extra")
    described = []
    monkeypatch.setattr(
        "purerl.runs.running.train.train", lambda description, *rest: described.append(description) or 0
    )
    monkeypatch.chdir(folder)
    for words in row.before:
        cli.dispatch(words.split())
    cli.dispatch(results.arguments(row, "ci"))
    assert described[0].algo == row.algo and described[0].env == row.env
    assert f"purerl train {row.algo} --env {row.env} " in row.command


@pytest.mark.weekly
def test_a_row_of_results_at_a_hundredth(tmp_path, monkeypatch):
    row = next(row for row in results.ROWS if row.name == "a2c CartPole-v1 500000")
    monkeypatch.setattr(results, "ROWS", (row,))  # one of fifty
    results.main("ci", tmp_path)
    (line,) = results.read(tmp_path / results.LINES).values()
    assert line["frames"] == 4992 and len(line["returns"]) == 2 and all(1 <= x <= 500 for x in line["returns"])
    written = (tmp_path / results.PAGE).read_text()
    assert f"| a2c | 4,992 | 2 | **{sum(line['returns']) / 2:.2f}**" in written and "## CartPole-v1" in written
    assert line["peak_mib"] > 100 and line["env_params"] == {} and "curves/CartPole-v1.png" in written
    assert len(line["curve"]["frames"]) == len(line["curve"]["iqm"]) > 0
    assert (tmp_path / "curves" / "CartPole-v1.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.setattr(results, "train", None)  # which fails if it is called
    results.main("ci", tmp_path)  # has its line: not again
    assert (tmp_path / results.PAGE).read_text() == written


def test_a_row_names_what_comes_before_its_training():
    record = "record random --env A-x --out mix.safetensors"
    row = results.Row("cql", "A-x", 1e4, "--data mix.safetensors", 2, (record,))
    assert row.command == (
        f"`purerl {record}`, `purerl train cql --env A-x --num-seeds 2 --total-steps 10000 --data mix.safetensors`"
    )
    assert row.name == "cql A-x 10000 --data mix.safetensors" and learns_from_play(row.options)
    alone = row._replace(before=(), options="")
    assert alone.command == "purerl train cql --env A-x --num-seeds 2 --total-steps 10000"
    assert not learns_from_play(alone.options)


@pytest.mark.rest
def test_the_program_that_is_recorded_holds_the_pendulum_up(key):
    """Random play has -1,253, agents that learned about -150."""
    env = purerl.envs.make("Pendulum-v1")
    data = purerl.record(key, env, players.swing_up(env), 64)
    assert data.reward.sum() / 64 > -200 and (data.obs[data.last][:, 0] > 0.99).all()


def test_what_is_missing_in_the_results():
    rows = [results.Row("ppo", "A-x", 1000, seeds=seeds) for seeds in (2, 4)]
    rows = [rows[0], rows[1]._replace(options="--o 1"), results.Row("ppo", "B-x", 7200, seeds=1)]
    line = {"algo": "ppo", "env": "A-x", "frames": 1000, "returns": [1.0, 2.0], "seconds": 1000.0}
    lines = {row.name: {**line, "row": row.name} for row in rows[:2]}
    short = lambda lines: [(row.env, why, hours) for row, why, hours in results.missing(rows, lines)]
    expected = [("B-x", "no line", 1.0), ("A-x", "2 of 4 seeds", 4000 / 2 / 3600), ("A-x", "no curve", 1000 / 3600)]
    assert short(lines) == expected
    assert short({rows[0].name: {**line, "row": rows[0].name, "curve": {}}})[0][:2] == ("A-x", "no line")
    assert [hours for *_, hours in results.missing(rows, {})] == [None] * 3
    recorded = results.Row("bc", "A-x", 1000, "--data play.safetensors", 2)
    assert results.missing([recorded], {recorded.name: {**line, "row": recorded.name}}) == []


def test_hours_are_those_of_the_nearest_rows():
    """3,600 frames at the frames/s of the line that is nearest: same preset, then same family, then the slower."""
    lines = [
        {
            "row": f"{algo} {env} 10 {options}",
            "algo": algo,
            "env": env,
            "frames": speed,
            "returns": [0.0],
            "seconds": 1.0,
        }
        for algo, env, options, speed in (
            ("ppo", "A-x", "", 8),
            ("ppo", "A-x", "--preset p", 4),
            ("ppo", "B-v1", "", 16),
            ("dqn", "lib/a", "", 2),
        )
    ]
    gpu = [{**line, "device": "NVIDIA H200", "frames": 1000} for line in lines]
    hours = lambda *row: results.expected_hours(results.Row(*row, seeds=1), [*lines, *gpu])
    assert hours("ppo", "A-x", 3600) == 1 / 8 and hours("ppo", "A-x", 3600, "--preset p") == 1 / 4
    assert hours("ppo", "C-x", 3600) == 1 / 8  # of its family
    assert hours("ppo", "lib/b", 3600) == 1 / 2  # as DQN in that library, which is slower than PPO elsewhere
    assert hours("ppo", "C-v1", 3600) == 1 / 8  # v1 is no family
    assert hours("ppo", "host/a", 3600) is None  # no line tells how fast that library is
    assert results.expected_hours(results.Row("ppo", "A-x", 3600), gpu) is None
    recorded = {**lines[0], "row": "bc A-x 10 --data play.safetensors", "algo": "bc", "frames": 2}
    offline = results.Row("td3-bc", "A-x", 3600, "--data play.safetensors", seeds=1)
    assert results.expected_hours(offline, lines) is None  # none of them has gradient steps
    assert results.expected_hours(offline, [*lines, recorded]) == 1 / 2
    assert results.expected_hours(results.Row("ppo", "A-x", 3600, seeds=1), [*lines, recorded]) == 1 / 8
