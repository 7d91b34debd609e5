"""The style that ruff has no rule for, read off the syntax tree."""

import ast
from pathlib import Path

import pytest

import purerl

PACKAGE = Path(purerl.__file__).parent
ALGORITHMS = "algos", "learners"
LONG = {
    "agent57.make_learner": "its loss is two of Never Give Up's",
    "appo.make_learner": "its docstring explains a ratio of three policies",
    "disco.make_learner": "the whole agent, which shares no family",
    "league.leagued": "eight functions of a learner, for players and their opponents",
    "ngu.make_family_learner": "the whole learner of a family of policies",
    "pqn.make_learner": "the whole algorithm, which shares no family",
    "qmix.make_team_learner": "the whole learner of a team",
    "r2d2.make_learner": "a loss over sequences beside how a recurrent network acts",
    "reuse.reusing": "its docstring explains what is learned from",
}
"""Functions of more than 60 lines in algos and learners, and why they are not two."""
ELSEWHERE = {"nested conditional": 18, "parallel calls": 165, "long function": 27}
"""How many there are in the rest of the package; a change may lower a number."""


def is_parallel(node):
    pairs = (
        isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)
    )
    return pairs and sum(isinstance(value, ast.Call) for value in node.value.elts) > 1


def is_nested(node):
    return isinstance(node, ast.IfExp) and any(isinstance(x, ast.IfExp) for x in ast.walk(node) if x is not node)


def is_long(node):
    return isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= 60


def found(is_kind, of_algorithms):
    """The places of a kind, in algos and learners or elsewhere."""
    places = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if (path.relative_to(PACKAGE).parts[0] in ALGORITHMS) == of_algorithms:
            nodes = [node for node in ast.walk(ast.parse(path.read_text())) if is_kind(node)]
            places += [f"{path.stem}.{getattr(node, 'name', node.lineno)}" for node in nodes]
    return places


KINDS = {"nested conditional": is_nested, "parallel calls": is_parallel, "long function": is_long}


@pytest.mark.parametrize("kind", KINDS)
def test_style(kind):
    assert sorted(found(KINDS[kind], of_algorithms=True)) == (sorted(LONG) if kind == "long function" else [])
    assert len(found(KINDS[kind], of_algorithms=False)) <= ELSEWHERE[kind]
