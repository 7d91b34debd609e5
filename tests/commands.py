"""The command line for tests, in this process, and the folder of a user."""

import contextlib
import sys

import jax
import numpy as np
import pytest

from purerl import cli
from purerl.algos import ALGORITHMS
from purerl.runs.describing.description import describe
from purerl.runs.describing.options import TrainOptions
from purerl.runs.reading import loading
from purerl.store.policies import save_policy


def run(*args, expect=0):
    """Runs ``purerl ARGS``, whose exit code must be ``expect``."""
    with pytest.raises(SystemExit) as stop:
        cli.main(list(map(str, args)))
    assert stop.value.code == expect


def untrained(directory, algo, env, **settings):
    """Makes a run directory with the policy of an agent whose parameters are all 0, and returns it."""
    config = ALGORITHMS[algo].Config(hidden_sizes=(4,), num_envs=4, **settings)
    description = describe(algo, TrainOptions(env=env), config)
    policy = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), loading.shapes(description, 1))
    directory.mkdir()
    save_policy(directory, policy, {**description.fields, "members": 1})
    return directory


@contextlib.contextmanager
def own_module(folder, monkeypatch, name, text):
    """Works in ``folder``, where the module ``name`` is."""
    (folder / f"{name}.py").write_text(text)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    yield folder
    sys.modules.pop(name, None)
