"""The script that tries environments of real packages; nothing is installed here."""

import ast
import subprocess
import sys

import packages
import pytest


def test_every_package_has_something_to_type():
    for name, package in packages.PACKAGES.items():
        assert package.requirements and package.tasks, name
        defined = {node.name for node in ast.walk(ast.parse(package.own)) if hasattr(node, "name")}
        for task in package.tasks:
            typed = packages.words(task)
            env = typed[typed.index("--env") + 1]
            assert ":" in env or "/" in env
            assert not env.startswith("own:") or env.removeprefix("own:") in defined
    assert sum(each.agents for each in packages.PACKAGES.values()) >= 3


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (
            "100 %  9 frames/s\ncompleted: 9 frames/s, 2 s; return 1.5; /a/run\nresume with: purerl resume /a/run\n",
            "completed: 9 frames/s, 2 s; return 1.5",
        ),
        (
            "env = 'x': mission is left out\ntracing\ncompleted: 9 frames/s, 2 s; return -; run\n",
            "env = 'x': mission is left out; completed: 9 frames/s, 2 s; return -",
        ),
        ("a warning\npurerl: error: env = 'x': unknown\n\n", "purerl: error: env = 'x': unknown"),
        ("", ""),
    ],
)
def test_what_is_told(output, text):
    assert packages.told(output) == text


def test_a_refusal_is_right_where_it_is_expected():
    trains, refused = packages.Task("a/b"), packages.Task("a/b", "unknown")
    assert packages.as_said(trains, 0, "") and not packages.as_said(trains, 2, "unknown")
    assert packages.as_said(refused, 2, "is unknown") and not packages.as_said(refused, 0, "unknown")
    assert packages.row("p", "1.0", refused, 2, "a|b") == "| p | 1.0 | `--env a/b` | 2 | a/b |"


def test_a_layer_sees_what_is_below(tmp_path):
    base, module = tmp_path / "base", "import below; print(below.__file__)"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", base], check=True)
    site = next((base / "lib").glob("python3*/site-packages"))
    (site / "below.py").write_text("")
    python = packages.layered(base / "bin" / "python", tmp_path / "layer")
    found = subprocess.run([python, "-c", module], capture_output=True, text=True)
    assert found.stdout.strip() == str(site / "below.py")


def test_an_unknown_package_is_refused(capsys):
    with pytest.raises(SystemExit):
        packages.main(["--only", "nothing"])
    assert "minigrid" in capsys.readouterr().err
