"""The command ``purerl grow RUN``."""

from pathlib import Path

from purerl.cli import parsing, resume
from purerl.cli.machine import prepared
from purerl.cli.train import show_plans
from purerl.errors import ConfigError


def grow(args: list[str]) -> int:
    """Runs ``purerl grow RUN --hidden-sizes ...``, which makes a new run directory, from which `resume` goes on."""
    from purerl import config as cfg
    from purerl.runs.describing.reading_options import GrowOptions

    options = parsing.parse(GrowOptions, "purerl grow", args, positional=True)
    cfg.check(options)

    from purerl.runs.running import growing

    file, algo = resume.opened(Path(options.run), options.trust)
    if file.command == "evolve":
        raise ConfigError(
            f"{file.path}: is a run of purerl evolve; only a training or a sweep has a network that can grow"
        )
    start, kind, describe, _ = resume.training(file, algo)
    before = parsing.started(start, kind, algo)
    wider = growing.widened(algo, before.config, options.hidden_sizes)
    with prepared(options):
        old, new = (describe(algo, before.options, config, start) for config in (before.config, wider))
        code = growing.grow(old, new, before.options, file, options)
        return show_plans([new], before.options, {}) if options.dry_run else code
