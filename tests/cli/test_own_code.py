"""Mistakes in somebody's own functions: found by tracing, before "compiling ..." and before anything is written."""

import sys

import pytest
from commands import own_module, run

from purerl.cli import main

SMALL = ["--total-steps", "64", "--num-envs", "2", "--num-steps", "8", "--num-minibatches", "1", "--hidden-sizes", "4"]
OWN = """
import jax
import jax.numpy as jnp
import numpy as np

from purerl import dqn, envs, ppo
from purerl.envs import box, episodic
from purerl.learners.wrappers import Wrapper
from purerl import config as cfg
from purerl.spaces import Discrete


def make(dynamics=lambda x, a: (x, 1.0, x[0] > 1), levels=lambda key, shape: jax.random.uniform(key, (*shape, 1))):
    return episodic("Own", levels=levels, initial=lambda level: level, dynamics=dynamics, observe=lambda x: x,
                    time_limit=4, observation_space=box((-9.0,), (9.0,)), action_space=Discrete(2))


def within(x):
    if x[0] > 1:
        return x - 1
    return x


def branches():
    return make(lambda x, a: (within(x), 1.0, False))


def numpy():
    return make(lambda x, a: (x + np.asarray(a), 1.0, False))


def nothing():
    return make(lambda x, a: None)


def carries():
    body = lambda c, _: (c + 0.5, None)
    return make(lambda x, a: (x, jax.lax.scan(body, jnp.int32(0), None, 2)[0], False))


def misspelt():
    return make(levels=lambda key, shape: jax.random.unifrom(key, shape))


def arguments():
    return make(lambda x: (x, 1.0, False))


def counts():
    return make(lambda x, a: (x + jnp.zeros(int(a)).sum(), 1.0, False))


def objective(log_ratio, advantage, config):
    return log_ratio * advantage.shpe


def lossy(config, env, **parts):
    return ppo.own_learner(config, env, objective=objective, **parts)


def short(config, env, **parts):
    return ppo.own_learner(config, env, objective=lambda log_ratio: log_ratio, **parts)


def of(change):
    def own_learner(config, env, **parts):
        learner = ppo.own_learner(config, env, **parts)
        return learner._replace(**change(learner))

    return ppo._replace(name="own", own_learner=own_learner, presets={}, sockets=())


def asks(config, env, **parts):
    return ppo.own_learner(config, env, **parts) if int(config.total_updates) else None


asks = ppo._replace(name="own", own_learner=asks, presets={}, sockets=())
lossy, short = (ppo._replace(name="own", own_learner=x, presets={}, sockets=()) for x in (lossy, short))
silent = of(lambda learner: {"update": lambda state, given, key: None})
of_update = lambda change: of(lambda learner: {"update": lambda *args: change(args[0], learner.update(*args))})
rows = of_update(lambda state, u: u._replace(metrics={**u.metrics, "rows": jnp.zeros(3), "about": "text"}))
idle = of_update(lambda state, u: u._replace(state=state))
halves = of(lambda learner: {"update": lambda *args: (lambda u: u._replace(
    state=jax.tree.map(lambda x: x.astype(jnp.float16) if x.dtype == jnp.float32 else x, u.state)))(
        learner.update(*args))})
bare = of(lambda learner: {"explore": lambda behaviour, situation, noise: learner.explore(
    behaviour, situation, noise)[0]})


def choose(policy, situation, key):
    return jnp.zeros(float("x")), situation.carry


clumsy = of(lambda learner: {"exploit": choose})


@cfg.config
class Settings:
    mine: bool = False


def wrap(config, env, learner):
    return learner._replace(update=lambda *args: learner.update(*args).metrics["nope"])


wrapper = Wrapper("mine", Settings, "mine", off=False, wrap=wrap)
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A working directory with a module ``faulty_own``, which is compiled anew whenever it is imported: two versions of
    one second and one size would share their bytecode."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    with own_module(tmp_path, monkeypatch, "faulty_own", OWN):
        yield tmp_path


def refused(capsys, *args):
    """The one line of a command that is refused."""
    with pytest.raises(SystemExit) as stop:
        main(list(args))
    out, err = capsys.readouterr()
    assert stop.value.code == 2 and out == "" and len(err.splitlines()) == 1, err
    return err.strip()


ENVS = [
    (
        "branches",
        "step: cannot be traced by jit: TracerBoolConversionError: Attempted boolean",
        " <lambda> > ",
        " within)",
    ),
    ("numpy", "step: cannot be traced by jit: TracerArrayConversionError: The numpy.ndarray", "", " <lambda>)"),
    ("nothing", "step: cannot be traced by jit: TypeError: cannot unpack non-iterable NoneType object", "", ""),
    ("carries", "step: cannot be traced by jit: TypeError: scan body function carry", "int32[]", " <lambda>)"),
    ("misspelt", "levels: cannot be traced by jit: AttributeError: ", "unifrom", " <lambda>)"),
    ("arguments", "step: cannot be traced by jit: TypeError: ", "takes 1 positional argument but 2 were given", ""),
    ("counts", "step: cannot be traced by jit: ConcretizationTypeError: Abstract tracer value", "", " <lambda>)"),
]


@pytest.mark.parametrize(("env", "line", "words", "end"), ENVS, ids=[env for env, *_ in ENVS])
def test_environments(env, line, words, end, own, capsys):
    err = refused(capsys, "train", "ppo", "--env", f"faulty_own:{env}", *SMALL)
    assert err.startswith(f"purerl: error: env = 'faulty_own:{env}': {line}") and words in err and err.endswith(end), (
        err
    )
    assert not end or "(faulty_own.py:" in err
    assert not list(own.glob("runs/*"))


ALGORITHMS = [
    (["faulty_own:lossy"], "your code raised AttributeError: ", "shpe", " objective)"),
    (
        ["faulty_own:short"],
        "algorithm = 'faulty_own:short': does not fit purerl's interface: TypeError: ",
        "takes 1 positional",
        ")",
    ),
    (["faulty_own:silent"], "own: update: must return a purerl.types.Updated, but returns NoneType", "", ""),
    (
        ["faulty_own:rows"],
        "own: update: must return metrics that are numbers []; 'rows' is float32[3], 'about' is str",
        "",
        "",
    ),
    (["faulty_own:halves"], "own: update: state", ": float32[", " more)"),
    (["faulty_own:bare"], "own: explore: must return (action, carry, extras), but returns ", "", ""),
    (
        ["faulty_own:asks"],
        "your code raised ConcretizationTypeError: Abstract tracer value",
        "float32[]",
        " asks)",
    ),
    (["faulty_own:clumsy"], "your code raised ValueError: could not convert", "", " choose)"),
    (
        ["ppo", "--wrapper", "faulty_own:wrapper", "--mine"],
        "your code raised KeyError: 'nope'",
        "",
        " <lambda>)",
    ),
]


@pytest.mark.parametrize(("algo", "line", "words", "end"), ALGORITHMS, ids=[a[0][-1] for a in ALGORITHMS])
def test_algorithms(algo, line, words, end, own, capsys):
    err = refused(capsys, "train", *algo, "--env", "probe/one-step", *SMALL)
    assert err.startswith(f"purerl: error: {line}") and words in err and err.endswith(end), err
    assert not list(own.glob("runs/*"))


def test_an_update_that_learns_nothing_is_told(own, capsys):
    run("train", "faulty_own:idle", "--env", "probe/one-step", *SMALL, "--out", "run")
    told = "own: update: returns the state that it was given, so that nothing is learned\n"
    assert capsys.readouterr().err.count(told) == 1


@pytest.mark.parametrize(
    "args",
    [
        ["sweep", "faulty_own:lossy", "--env", "probe/one-step", *SMALL, "--learning-rate", "1e-3,1e-2"],
        ["plan", "faulty_own:lossy", "--env", "probe/one-step", *SMALL],
        ["check-env", "faulty_own:branches"],
        ["evolve", "value-loss", "--algo", "ppo", "--env", "faulty_own:branches", "--population", "2", *SMALL],
    ],
    ids=lambda args: args[0],
)
def test_commands(args, own, capsys):
    err = refused(capsys, *args)
    assert "(faulty_own.py:" in err and not list(own.glob("runs/*"))


def written(run):
    """When each file of a run was written."""
    return sorted(
        (path, path.stat().st_mtime_ns) for path in run.rglob("*") if path.is_file() and path.suffix != ".lock"
    )


@pytest.mark.rest
def test_a_run_whose_code_changed(own, capsys):
    """Nothing of it is touched: it goes on once its code is mended."""
    (own / "faulty_own.py").write_text(OWN.replace("advantage.shpe", "advantage"))
    run = ["train", "faulty_own:lossy", "--env", "probe/one-step", *SMALL, "--eval-episodes", "2", "--out", "run"]
    with pytest.raises(SystemExit) as stop:
        main(run)
    assert stop.value.code == 0
    before = written(own / "run")
    (own / "faulty_own.py").write_text(OWN.replace("lossy, short =", "short, other ="))
    sys.modules.pop("faulty_own")
    capsys.readouterr()
    on = ["resume", "run", "--total-steps", "128"]
    assert "and run, and has changed since it was trusted; --trust imports it" in refused(capsys, *on)
    assert "is function, must be a purerl.algos." in refused(capsys, *on, "--trust")
    (own / "faulty_own.py").write_text(OWN)
    sys.modules.pop("faulty_own")
    assert "has changed since it was trusted" in refused(capsys, *on)
    assert "shpe" in refused(capsys, *on, "--trust")
    assert "shpe" in refused(capsys, *on)
    assert before == written(own / "run")
    (own / "run").rename(own / "elsewhere")
    assert "and run, and is new here; --trust imports it" in refused(capsys, "resume", "elsewhere")
