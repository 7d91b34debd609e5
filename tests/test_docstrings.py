"""How docstrings begin; ruff's rules of the google convention hold the rest."""

import ast
import re
from pathlib import Path

import purerl

ROOT = Path(purerl.__file__).parent.parent
FILES = sorted((ROOT / "purerl").rglob("*.py"))
WORDS = """
Advantages Agents Arguments Arrays Axes Bins Bytes Candidates Columns Curves Differences Elements Entries Environments
Episodes Errors Features Fields Files Fractions Frames Functions Gradients Heads Indices Inputs Iterations Keys Layers
Lines Logits Losses Members Metrics Moments Numbers Observations Options Outputs Parameters Parts Policies Predictions
Probabilities Quantiles Rows Seconds Seeds Sequences Settings States Targets Terms Trees Values Words Zeros
"""
NOT_VERBS = frozenset(WORDS.split())
"""Plurals that are no verbs."""


def functions(path):
    """The functions of a module, and the methods of its classes, that have a docstring."""
    tree = ast.parse(path.read_text())
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    nodes = [node for owner in (tree, *classes) for node in owner.body if isinstance(node, ast.FunctionDef)]
    is_property = lambda node: any(ast.unparse(x).endswith("property") for x in node.decorator_list)
    return [(node.name, ast.get_docstring(node)) for node in nodes if ast.get_docstring(node) and not is_property(node)]


def test_a_docstring_begins_with_a_verb():
    verb = lambda word: re.fullmatch("[A-Z][a-z]+s", word) and word not in NOT_VERBS
    first = [(path, name, text.split()[0]) for path in FILES for name, text in functions(path)]
    assert len(first) > 1000 and not [each for each in first if not verb(each[-1])]
