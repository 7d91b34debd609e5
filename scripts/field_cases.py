"""The cases of `scripts/field.py`: commands in the folder of `tests/field`, what is right, and what sees that.

Those of MiniGrid need the package minigrid, those of several agents pettingzoo.
"""

import shlex
from typing import NamedTuple

from field_checks import (
    Check,
    arrived,
    both,
    drawn,
    either,
    failed,
    in_place,
    info,
    interrupted,
    is_json,
    kept,
    lengths,
    logged,
    made,
    no_return,
    on_device,
    printed,
    progress,
    project,
    refused,
    returns,
    stepped,
    tells,
    trained,
    trains,
    values,
)

SMALL = "--num-envs 4 --num-steps 16 --total-steps 512 --hidden-sizes 8 --compile quick --eval-episodes 20"
SMALL += " --workers none --out run"
REPLAY = "--warmup-steps 128 --capacity 256"
ALGORITHMS = {"ppo": SMALL, "dqn": f"{SMALL} {REPLAY}", "sac": f"{SMALL} {REPLAY}", "td3": f"{SMALL} {REPLAY}"}
"""The options with which each trains; those of a case come later, and override."""


def words(command: str) -> tuple[str, ...]:
    """The arguments of purerl, or of Python where a script of the folder is named."""
    first, *rest = shlex.split(command)
    if first in ALGORITHMS:
        return ("train", first, "--env", rest[0], *ALGORITHMS[first].split(), *rest[1:])
    if first == "eval":
        return ("eval", "run", "--episodes", *rest)
    return (first, *rest)


class Case(NamedTuple):
    """A name, what is right, the commands, and what sees whether it is right.

    A command that begins with an algorithm is a short training of it, and ``eval N`` evaluates that.

    ``interrupt`` is a text of a line and the seconds after that line at which the first command gets SIGINT; ``folder``
    is where in `tests/field` the commands run; ``uneven`` excuses counts, where a process dies on purpose.
    """

    name: str
    right: str
    commands: str | tuple[str, ...]
    check: Check
    slow: bool = False
    timeout: float = 120.0
    interrupt: tuple[str, float] | None = None
    folder: str = ""
    variables: dict[str, str] = {}
    uneven: bool = False
    kind: str = ""


TEN = returns(10)
EIGHT = both(TEN, made(8))
RICH = logged(10)
"""The evaluation may play in the copy that never ends."""
MIXED = "sums:Mixed --eval-episodes 1"
IN_TIME = progress(10.0, 1.5, 6.0)
PLACE = r"\w+\.py:\d+"
SHAPE = r"observation.*(shape|\(3,\)|\[3\]|space)"
MASK = r"action_mask.*(missing|lacks|must|without|is not|every)"
RELOAD = "return 10.*return 50"
CHANNELS = r"channels? (axis |axes )?(come |stand |is |are )?first|transpos"
FIRST = either(both(TEN, tells(CHANNELS)), refused(CHANNELS))
EPISODE = "episode.(r|return)"
ONCE = r"info\[.episode.\]|episode's own|changed by|changes rewards|NormalizeReward"
MASKS = "missing at step 3", "that comes later", "list", "tuple", "bool"
REWARDS = {"a text": "1.0 point", "None": "None", "a pair": r"shape|\(2,\)", "1e300": "large|1e.?300"}
PROTOCOLS = {
    "NoSeed": "reset",
    "Nothing": "reset",
    "SeedOnly": "reset",
    "ObsOnly": "reset",
    "NoneInfo": "info",
    "Four": "step",
    "Old": "reset|step",
    "Flags": "step|terminated|truncated",
    "Lists": "step|reset|observation",
    "Wrapped": "reset",
    "LateSpaces": "observation_space|action_space",
    "NoMetadata": "metadata",
}
"""Classes of `protocols` that work, or are refused by a line with this pattern."""
SLURM = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4"}
SLURM |= {"SLURM_PROCID": "0", "SLURM_LOCALID": "0"}

KINDS = {
    "A": [  # made and closed
        Case("counted", "8 made, closed, stepped", "ppo closing:Counted", EIGHT),
        Case("counted, auto", "8", "ppo closing:Counted --workers auto", EIGHT),
        Case("counted, workers", "8", "ppo closing:Counted --workers 2", EIGHT),
        Case("counted, 16 copies", "32", "ppo closing:Counted --num-envs 16", both(TEN, made(32))),
        Case("counted, dqn", "8", "dqn closing:Counted", made(8)),
        Case(
            "counted, evaluations within",
            "at most 8 at a time: 4 + 4 for each evaluation",
            "ppo closing:Counted --eval-every 256",
            both(TEN, made(16)),
        ),
        Case("counted, eval", "8 + 4", ("ppo closing:Counted", "eval 20"), made(12)),
        Case("counted, resume", "8 + 8", ("ppo closing:Counted", "resume run --total-steps 1024"), made(16)),
        Case(
            "counted, interrupted",
            "made = closed",
            "ppo closing:Counted --total-steps 1e8",
            made(8, code=130),
            interrupt=("started", 2.0),
        ),
        Case("counted, one --eval-envs", "4 + 1", "ppo closing:Counted --eval-envs 1", made(5)),
        Case("check-env", "made = closed", "check-env closing:Counted", made(64)),
        Case("raises in a step", "one line; made = closed", "ppo closing:Raises", failed("model broke", PLACE)),
        Case("close fails", "told once, not fatal", "ppo closing:Fails", both(TEN, tells("does not answer"))),
        Case("close fails, workers", "the same", "ppo closing:Fails --workers 2", EIGHT),
        Case("closed twice", "once each", "ppo closing:Twice", EIGHT),
        Case("a licence", "trains with one copy", "ppo closing:Licence --num-envs 1", both(TEN, made(2))),
        Case("a port each", "trains", "ppo closing:Port", EIGHT),
        Case("a simulator's process", "none left", "ppo children:Spawns", EIGHT),
        Case("its process, check-env", "none left", "check-env children:Spawns", made(64)),
        Case("a thread each", "ends", "ppo children:Threads", EIGHT, timeout=45.0),
        Case(
            "the same instance",
            "refused, by name",
            "ppo singletons:same",
            failed("instance|object", "singletons:same"),
        ),
        Case(
            "the same in wrappers",
            "refused",
            "ppo singletons:wrapped",
            failed("instance|object", "singletons:wrapped"),
        ),
        Case("two by turns", "refused", "ppo singletons:turns", failed("instance|object", "singletons:turns")),
        Case(
            "the same, check-env", "refused", "check-env singletons:same", failed("instance|object", "singletons:same")
        ),
        Case("once a process", "trains", "ppo singletons:Once --workers 4", EIGHT),
        Case("one alive, workers", "trains", "ppo singletons:OneAlive --workers 4", EIGHT),
        Case("one alive", "trains", "ppo singletons:OneAlive --num-envs 1", both(TEN, made(2))),
        Case("PettingZoo", "8", "ppo agents:Team", EIGHT),
        Case("vector", "8", "ppo wrapped:same_step", EIGHT),
    ],
    "B": [  # sums
        Case("sums beside 1e5 a step", "10 in every row", f"ppo {MIXED} --total-steps 65536", RICH),
        Case("sums beside 1e5, dqn", "10", f"dqn {MIXED} --total-steps 8192", RICH),
        Case("sums, two agents", "10", f"ppo {MIXED} --total-steps 32768 --num-seeds 2", RICH),
        Case(
            "sums on device",
            "10 where none of 2e8 ended, never between",
            "train ppo --env devices:mixed --num-envs 16 --num-steps 16 --total-steps 131072 --hidden-sizes 8"
            " --compile quick --eval-episodes 2 --out run",
            on_device,
        ),
        Case("large", "10,000,001,000", "ppo sums:Large --total-steps 16384 --eval-episodes 4", returns(1e10 + 1000)),
        Case("small, many", "2", "ppo sums:Small --total-steps 32768 --eval-episodes 4", returns(2.0)),
        Case("cancels", "2", "ppo sums:Cancels --total-steps 4096", returns(2.0)),
        Case(
            "stop-at reads it",
            "not stopped by 21.3",
            f"ppo {MIXED} --total-steps 65536 --stop-at 10.5",
            trained(65536),
        ),
    ],
    "C": [  # values as they are
        *(
            Case(
                f"integers of {dtype}",
                "as float32, told, or refused",
                f"ppo integers:Ints --env-params kind={kind}",
                either(both(TEN, tells("float32|int32")), refused("int32|32 bits|float32")),
            )
            for kind, dtype in {4: "uint32", 5: "int64"}.items()
        ),
        Case(
            "float64 of 1e300",
            "told as too large",
            "ppo integers:Ints --env-params kind=7",
            either(failed("too large|float32"), refused("too large|float32")),
        ),
        Case(
            "a step breaks the promise",
            "told at the step",
            "ppo integers:Promised",
            failed("int32|32 bits|too large|1000|bound|space"),
        ),
        *(
            Case(
                f"Discrete, {kind}",
                "trains or is refused",
                f"ppo integers:Scalar --env-params kind={i}",
                either(TEN, refused("int32|32 bits|too many|large")),
            )
            for i, kind in enumerate(("start", "many"))
        ),
        *(
            Case(
                f"reward of {kind}",
                "refused, with what it was",
                f"ppo integers:Reward --env-params kind={i}",
                failed(r"\breward [a-z]", pattern),
            )
            for i, (kind, pattern) in enumerate(REWARDS.items())
        ),
        *(
            Case(
                f"flat action, {flat}, {algo}",
                "a constant there; trains",
                f"{algo} bounds:Flat --env-params flat={i}",
                both(trains, TEN),
            )
            for i, flat in enumerate(("one", "all", "zero"))
            for algo in (("ppo", "sac", "td3") if i == 0 else ("ppo",))
        ),
        *(
            Case(f"actions of {name}", "each is of its space", f"ppo hybrid:{name}", TEN)
            for name in ("Ints", "Both", "Aimed")
        ),
        Case("actions of Both, sac", "one line", "sac hybrid:Both", refused("tuple actions; the algorithm needs Box")),
        Case(
            "channels first",
            "transposed, or refused with the way out",
            "ppo pictures:Pictures --total-steps 256",
            FIRST,
        ),
        Case(
            "channels first, nature",
            "the same",
            "ppo pictures:Pictures --torso nature --env-params size=84 channels=4 --total-steps 128",
            FIRST,
        ),
        Case(
            "channels first, nested", "the same", "ppo pictures:Pictures --env-params nested=1 --total-steps 256", FIRST
        ),
        *(
            Case(
                f"stack of {kind} frames",
                f"{channels} channels, or told",
                f"ppo pictures:{kind} --total-steps 256",
                either(both(TEN, tells("channels|stack")), refused("stack|channels")),
            )
            for kind, channels in {"grey": 4, "colour": 12}.items()
        ),
        Case(
            "a text beside numbers",
            "left out, told",
            "ppo mini:Mission",
            both(TEN, tells("mission", "left out|ignored|without")),
        ),
        Case("a text alone", "refused", "ppo mini:Only", refused("Text")),
        *(
            Case(
                f"MiniGrid {name}",
                "trains",
                f"ppo {env} --total-steps 256 --eval-episodes 2",
                trains if name == "full" else both(trains, tells("mission")),
            )
            for name, env in {
                "by id": "gymnasium/MiniGrid-Empty-5x5-v0",
                "bare": "mini:bare",
                "full": "mini:full",
            }.items()
        ),
    ],
    "D": [  # agents
        *(
            Case(f"dying, {kind}", "6", f"ppo agents:Dying --env-params kind={i}", returns(6))
            for i, kind in enumerate(("terminated", "truncated", "by turns"))
        ),
        Case("later", "9", "ppo agents:Later", returns(9)),
        Case("back", "9.33", "ppo agents:Back", returns(28 / 3)),
        Case("waves", "4.67", "ppo agents:Waves", returns(14 / 3)),
        Case("a key for all", "10", "ppo agents:Everyone", TEN),
        Case(
            "agents stay listed",
            "10, or told",
            "ppo agents:Stays",
            either(TEN, failed("agents (is|are|must|still|has|have)"), no_return),
            timeout=60.0,
        ),
        Case("reset without infos", "10, or one line", "ppo agents:NoInfos", either(TEN, refused("reset", PLACE))),
        Case("dying, workers", "6", "ppo agents:Dying --workers 2", both(returns(6), made(8))),
        Case("values of the dead", "1 and 0", "values.py", values, slow=True, timeout=200.0),
    ],
    "E": [  # render_mode
        Case("window", "None, nothing drawn", "ppo window:Window", drawn()),
        Case("window by **options", "None", "ppo window:handed", drawn()),
        Case("window, registered", "None", "ppo gymnasium/window:FieldWindow-v0", drawn()),
        Case("window, workers", "None", "ppo window:Window --workers 2", drawn()),
        Case("window, PettingZoo", "None", "ppo agents:Drawn", drawn()),
        Case("window, eval", "None", ("ppo window:Window", "eval 4"), drawn()),
        Case(
            "window, film",
            "one with rgb_array",
            ("ppo window:Window", "render run --out film.gif"),
            drawn(no_modes=False),
        ),
        Case("window, check-env", "one with rgb_array", "check-env window:Window", drawn(no_modes=False)),
        Case("close before reset raises", "trains", "ppo window:Window --env-params fragile=1", both(TEN, drawn())),
    ],
    "F": [  # time and interrupts
        Case(
            "slow: told, and interrupted",
            "told in 10 s, answered in 1.5 s, over in 6 s",
            "ppo slow:Slow --num-envs 2 --num-steps 64",
            IN_TIME,
            slow=True,
            interrupt=("started", 13.0),
        ),
        Case(
            "slow: what is finished is kept",
            "rows, and resume goes on",
            (
                "ppo slow:Slow --num-envs 2 --num-steps 4 --total-steps 40 --eval-episodes 2",
                "resume run --total-steps 40",
            ),
            both(IN_TIME, kept),
            slow=True,
            interrupt=("started", 11.0),
        ),
        Case(
            "slow, workers",
            "the same",
            "ppo slow:Slow --num-envs 2 --num-steps 64 --workers 2",
            IN_TIME,
            slow=True,
            interrupt=("started", 13.0),
        ),
        Case("endless", "told; no return", "ppo endless:Endless", no_return, slow=True),
        Case(
            "endless, eval", "told; does not go on for hours", ("ppo endless:Endless", "eval 4"), no_return, slow=True
        ),
        Case(
            "a hanging step",
            "names --worker-timeout",
            "ppo slow:Slow --env-params seconds=0.001 hang=5 --workers 2 --worker-timeout 2",
            failed("worker-timeout"),
            slow=True,
            uneven=True,
        ),
        Case(
            "uneven episodes, eval",
            "some 20,000 steps",
            ("ppo stateful:Uneven --eval-episodes 1", "eval 60"),
            stepped(40000),
            slow=True,
        ),
    ],
    "G": [  # protocols
        *(
            Case(name, "works, or one line", f"ppo protocols:{name}", either(TEN, refused(name, pattern, PLACE)))
            for name, pattern in PROTOCOLS.items()
        ),
        Case("NoReturn", "one line", "ppo protocols:NoReturn", failed("step", "None", "must return")),
        Case("Mistaken", "one line", "ppo protocols:Mistaken", failed("has no len", PLACE)),
        Case("NotGymnasium", "must inherit", "ppo protocols:NotGymnasium", refused(r"inherit|gymnasium\.Env")),
        *(
            Case(name, "one line", f"ppo protocols:{name}", failed(pattern))
            for name, pattern in {"NewSpaces": SHAPE, "OtherShape": SHAPE, "LackingKey": "'far'"}.items()
        ),
        *(
            Case(f"{name}, check-env", "found", f"check-env protocols:{name}", failed(pattern))
            for name, pattern in {
                "NoReturn": "must return",
                "OtherShape": "shape|space",
                "LackingKey": "(must|lacks|miss).*'far'",
            }.items()
        ),
        *(
            Case(
                f"mask, {kind}",
                "no illegal action, or one line",
                f"ppo masks:Masked --env-params kind={i}",
                either(TEN, failed(MASK)),
            )
            for i, kind in enumerate(MASKS)
        ),
        Case(
            "mask, a method",
            "no illegal action, or a line with the way out",
            "ppo masks:Method",
            either(TEN, refused("action_mask")),
        ),
        Case("mask, none is legal", "one line", "ppo masks:Stuck", failed("no action is legal|no legal action")),
        Case("mask, too short", "one line", "ppo masks:Short", failed("mask (of|is|has|must)", "3|4")),
    ],
    "H": [  # names and parameters
        Case(
            "text, flag, number",
            "hard, False, 7",
            "ppo modes:Modes --env-params mode=hard slippery=false size=7",
            arrived("hard", False, 7, 0.5, [], None),
        ),
        Case(
            "list, null, number",
            "[1, 2], None, 0.25",
            "ppo modes:Modes --env-params walls=[1,2] target=null rate=0.25",
            arrived("easy", True, 5, 0.25, [1, 2], None),
        ),
        Case(
            "text by **options",
            "hard, False",
            "ppo modes:wide --env-params mode=hard slippery=false",
            arrived("hard", False, 5, 0.5, [], None),
        ),
        Case(
            "text, eval reads it",
            "hard",
            ("ppo modes:Modes --env-params mode=hard slippery=false", "eval 2"),
            arrived("hard", False, 5, 0.5, [], None),
        ),
        Case("text, wrong", "one line", "ppo modes:Modes --env-params mode=medium", refused("mode = 'medium'")),
        Case(
            "FrozenLake's flags",
            "trains",
            "ppo gymnasium/FrozenLake-v1 --env-params map_name=8x8 is_slippery=false",
            trains,
        ),
        Case(
            "CartPole's flag",
            "trains; -1 an episode",
            "ppo gymnasium/CartPole-v1 --env-params sutton_barto_reward=true",
            returns(-1),
        ),
        Case("package:Id", "77 at most", "ppo limits:FieldCart-v3", both(trains, lengths(77))),
        Case("gymnasium/package:Id", "77", "ppo gymnasium/limits:FieldCart-v3", both(trains, lengths(77))),
        Case("package:namespace/Id", "5", "ppo gymnasium/limits:field/Ten-v0", returns(5)),
        Case("./file.py:Name", "10", "ppo ./closing.py:Counted", TEN),
        Case(
            "file.py:Name",
            "10",
            "ppo closing.py:Counted",
            either(TEN, refused(r"leave .*\.py|without \.py|ends in \.py")),
        ),
        Case(
            "longer than registered",
            "8",
            "ppo gymnasium/limits:field/Ten-v0 --env-params max_episode_steps=8",
            returns(8),
        ),
        Case(
            "Pendulum, 300 steps",
            "300",
            "ppo gymnasium/Pendulum-v1 --env-params max_episode_steps=300 --total-steps 2048",
            both(trains, lengths(300, 300)),
        ),
        Case(
            "disable_env_checker",
            "given to make",
            "ppo gymnasium/CartPole-v1 --env-params disable_env_checker=true",
            trains,
        ),
        Case(
            "a package that is missing",
            "says so, and how to name it",
            "ppo gymnasium/highway-v0",
            refused("package|install", "import|MODULE:|:NAME|:ID"),
        ),
        Case(
            "a module that hides the file",
            "10, or says which",
            "ppo test:Mine",
            either(TEN, refused(r"test.__init__\.py")),
            folder="hidden",
        ),
        Case("a name that is missing", "says which file", "ppo closing:Missing", refused("Missing", r"closing\.py")),
        Case("redefined in a script", "10, then 50", "redefined.py", printed(RELOAD)),
        Case("reloaded module", "10, then 50", "reloaded.py", printed(RELOAD)),
        Case("envs.make of a class", "10", "given.py class", printed("return 10")),
        Case("envs.make of a function", "50", "given.py function", printed("return 50")),
        Case("envs.make of a spec", "5", "given.py spec", printed("return 5.0")),
    ],
    "I": [  # numbers in info
        Case("success", "1 and 0.5", "ppo wrapped:Success", both(TEN, info(is_success=1, distance=0.5))),
        Case("success, dqn", "1", "dqn wrapped:Success", info(is_success=1)),
        Case("success, numpy's", "1", "ppo wrapped:Late", info(is_success=1)),
        Case("success, workers", "1", "ppo wrapped:Success --workers 2", info(is_success=1, distance=0.5)),
        Case("success, vector", "1", "ppo wrapped:same_step", both(TEN, info(is_success=1))),
        Case(
            "stop at success",
            "stops early",
            "ppo wrapped:Success --total-steps 65536 --stop-at info/is_success:0.9",
            trained(0, 65535),
        ),
        Case("statistics of a wrapper", "10 of its own", "ppo wrapped:stats", both(TEN, info(**{EPISODE: 10}))),
        Case(
            "rewards that are changed",
            "told",
            "ppo wrapped:many",
            either(both(tells(ONCE), info(**{EPISODE: 5})), refused("NormalizeReward")),
        ),
    ],
    "J": [  # wrappers with a memory
        Case(
            "NormalizeObservation",
            "told, by --normalize-obs",
            "ppo stateful:normalised",
            either(tells("normalize-obs"), refused("normalize-obs")),
        ),
        Case(
            "NormalizeReward",
            "told",
            "ppo stateful:rewarded",
            either(tells("normalize-reward"), refused("normalize-reward")),
        ),
        Case(
            "a mean of one's own",
            "told",
            "ppo stateful:Centred",
            either(tells("normalize-obs"), refused("normalize-obs")),
        ),
    ],
    "K": [  # around an environment
        Case("prints, eval --json", "JSON", ("ppo children:Says", "eval 2 --json"), is_json),
        Case("prints, check-env --json", "JSON", "check-env children:Says --json", is_json),
        Case("moves to another folder", "run is here", "ppo children:Moves", in_place),
        Case(
            "takes the signals",
            "interrupted all the same",
            "ppo children:Handles --total-steps 100000000",
            interrupted,
            interrupt=("started", 3.0),
            timeout=60.0,
        ),
        Case(
            "eval with parameters",
            "works",
            ("ppo closing:Counted", "eval 2 --env-params seconds=0.001"),
            tells("return"),
        ),
        Case("exits in a step", "told as its own", "ppo children:Leaves", failed("SystemExit|exit")),
        Case(
            "KeyboardInterrupt in a step",
            "told as its own",
            "ppo children:Leaves --env-params interrupt=1",
            failed("KeyboardInterrupt"),
        ),
        Case(
            "WANDB_PROJECT",
            "wins",
            "ppo closing:Counted --log wandb",
            project,
            variables={"WANDB_PROJECT": "mine", "WANDB_NAME": "first"},
        ),
        Case(
            "a Slurm step of 4 tasks",
            "noticed",
            "ppo closing:Counted",
            either(tells("--processes"), refused("--processes")),
            variables=SLURM,
        ),
        Case(
            "num_envs of its own",
            "told",
            "ppo children:Shadow --env-params num_envs=3",
            either(tells("num_envs"), refused("num_envs")),
        ),
    ],
    "L": [  # threads and workers
        Case("a connection for one thread", "trains", "ppo closing:Database", EIGHT),
        Case("the same, ahead", "trains", "ppo closing:Database --ahead 1", EIGHT),
        Case("the same, two halves", "trains", "ppo closing:Database --workers 2 --double-buffering on", EIGHT),
        Case(
            "a class of the script, workers",
            "works, or one line",
            "mainly.py",
            either(printed("return 10"), failed("workers none|main script|a module")),
        ),
    ],
    "M": [  # smaller ones
        Case(
            "acting without the module", "an action", ("ppo closing:Counted", "away/acting.py 2"), printed(r"action \[")
        ),
        Case("export without the module", "works", ("ppo closing:Counted", "away/exporting.py"), printed("exported")),
        Case(
            "observations of 1e30",
            "survives, or says so",
            "ppo integers:Huge --normalize-obs",
            either(both(trains, TEN), failed("1e.?30|large")),
        ),
    ],
    "Z": [  # right before, and to stay so
        *(
            Case(f"rewards of {kind}", "10", f"ppo sums:Typed --env-params kind={i}", TEN)
            for i, kind in enumerate(("int", "bool", "float32"))
        ),
        Case("Discrete from -3", "10", "ppo right:Starts", TEN),
        Case("nested spaces", "10", "ppo right:Nested", TEN),
        Case("one buffer", "10", "ppo right:Buffer", TEN),
        Case("nan once", "one line", "ppo right:NanOnce", failed("not finite")),
        Case(
            "a worker that dies",
            "goes on",
            "ppo right:Dies --workers 2 --total-steps 1024",
            both(TEN, tells("exited with code 9")),
            uneven=True,
        ),
        Case("stack of numbers", "10", "ppo pictures:numbers", TEN),
        Case("channels last", "10", "ppo pictures:Pictures --env-params first=0 --total-steps 256", TEN),
        *(
            Case(f"integers of {dtype}", "10", f"ppo integers:Ints --env-params kind={i}", TEN)
            for i, dtype in {1: "int8", 3: "uint16"}.items()
        ),
        Case("endless, with a limit", "20", "ppo gymnasium/limits:FieldEndless-v0", returns(20)),
    ],
}
"""By kind, which has the letter of its cause."""
CASES = [case._replace(kind=kind) for kind, cases in KINDS.items() for case in cases]
