"""The documentation as a site: ``sphinx-build -W --keep-going -b html docs build/site``.

Pages are the Markdown files of this folder, which read well in the repository too. The API reference, and the pages
that stand outside this folder, are written to ``generated/`` first.
"""

import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.ext.napoleon import Config, GoogleDocstring

from purerl.algos.algorithm import Algorithm
from purerl.learners.wrappers import TABLE
from purerl.version import __version__

DOCS = Path(__file__).parent
ROOT, GENERATED = DOCS.parent, DOCS / "generated"
sys.path.insert(0, str(ROOT / "scripts"))
face = importlib.import_module("face")

project = "purerl"
author = copyright = "The purerl developers"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"purerl {release}"
html_math_renderer = "mathml"
default_role = "code"
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_mock_imports = ["onnx"]  # which the extra docs does not install
autodoc_default_options = {"members": True}
autodoc_class_signature = "mixed"

OUTSIDE = {"CONTRIBUTING.md": "contributing", "SECURITY.md": "security", "CHANGELOG.md": "changelog"}
"""Pages outside this folder, by the names of their copies."""


def write_api() -> None:
    """A page for each package with its stable names, a page of the algorithms, and a list of these pages."""
    pages: dict[str, list[str]] = {}
    for module, names in face.modules().items():
        page = pages.setdefault(".".join(module.split(".")[:2]), [])
        plain = [name for name, value in names.items() if not isinstance(value, ModuleType | Algorithm | str)]
        page += [f"## {module}", "", *directive("automodule", module, members=", ".join(plain))] if plain else []
    for name, text in pages.items():
        write(f"{name}.md", "\n".join([f"# {name}", "", *text]))
    write("algorithms.md", algorithms())
    listed = "\n".join(["purerl", "algorithms", *sorted(set(pages) - {"purerl"})])
    about = "The names that stay from one release to the next ([stable names](../stability.md)), package by package."
    write("api.md", f"# API reference\n\n{about}\n\n```{{toctree}}\n{listed}\n```\n")


def algorithms() -> str:
    """A page of what each algorithm takes: its own settings, those of wrappers, and its parts."""
    text = ["# Algorithms", "", "`purerl.NAME.Config` takes the settings, `purerl.NAME.make_learner` the parts.", ""]
    documented: set[str] = set()
    for name, value in face.modules()["purerl"].items():
        if isinstance(value, Algorithm):
            text += [f"## purerl.{name}", ""]
            for kind, each in (("autoclass", value.own_config), ("autofunction", value.own_learner)):
                path = f"{each.__module__}.{each.__qualname__}"
                again = path in documented
                text += [f"It takes those of `{path}`.", ""] if again else directive(kind, path)
                documented.add(path)
    text += ["## Settings of wrappers", "", "Every config has those of the wrappers that fit around its algorithm.", ""]
    for each in TABLE:
        text += directive("autoclass", f"{each.Settings.__module__}.{each.Settings.__qualname__}")
    return "\n".join(text)


def directive(kind: str, name: str, members: str = "") -> list[str]:
    """The lines of a directive of autodoc."""
    return ["```{eval-rst}", f".. {kind}:: {name}", *([f"   :members: {members}"] if members else []), "```", ""]


def write_outside() -> None:
    """Copies of the pages outside this folder, with links from where they then are."""
    for source, name in OUTSIDE.items():
        write(f"{name}.md", linked((ROOT / source).read_text(), "", "../"))


def linked(text: str, prefix: str, to_docs: str) -> str:
    """A page whose links leave this folder by ``prefix``, with links within the site."""
    for source, name in OUTSIDE.items():
        text = text.replace(f"]({prefix}{source}", f"](/generated/{name}.md")
    if not prefix:
        text = re.sub(r"\]\(docs/rooms/?\)", f"]({to_docs}rooms/index.md)", text)
        text = text.replace("](docs/", f"]({to_docs}")
    return re.sub(r"\]\(rooms/?\)", "](rooms/index.md)", text)


def write(name: str, text: str) -> None:
    """Writes a generated page if it is another than before."""
    path = GENERATED / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def read(app, name, source) -> None:
    """Links that leave this folder lead to the copies, and the page of an algorithm ends with its code."""
    if not name.startswith("generated/"):
        source[0] = linked(source[0], "../" * (1 + name.count("/")), "")
    file = ROOT / "purerl/algos" / f"{name.removeprefix('algorithms/').replace('-', '_')}.py"
    functions = re.findall(r"^def (make_(?:team_)?learner)\(", file.read_text(), re.MULTILINE) if file.exists() else []
    if name.startswith("algorithms/") and functions:
        shown = f"```{{literalinclude}} ../../purerl/algos/{file.name}\n:pyobject: {functions[-1]}\n```"
        source[0] += f"\n## The code\n\n`{functions[-1]}` of `purerl/algos/{file.name}`:\n\n{shown}\n"


def skip(app, what, name, thing, skipped, options) -> bool | None:
    """Fields of a NamedTuple are in its docstring, and a class of a library under its own name, as jax.Array, there."""
    if isinstance(thing, type) and name == thing.__name__ and not thing.__module__.startswith("purerl"):
        return True
    return True if (getattr(thing, "__doc__", None) or "").startswith("Alias for field number") else None


def docstring(app, what, name, thing, options, lines) -> None:
    """Turns a docstring into reStructuredText: its sections, and what is not valid outside of literals.

    Google's sections are those of functions and classes: of a constant the parser would take words before a colon for
    its type.
    """
    if what in ("function", "method", "class"):
        lines[:] = GoogleDocstring(lines, Config(), app, what, name, thing, options).lines()
    for i, line in enumerate(lines):
        parts = re.split(r"(``.*?``)", line)
        plain = [re.sub(r"(`[^`]+`)(?=\w)", r"\1\\ ", part).replace("|", "\\|") for part in parts[::2]]
        lines[i] = "".join(part for pair in zip(plain, [*parts[1::2], ""], strict=True) for part in pair)


def inline(self, node) -> None:
    """An equation in a line, as MathML, which browsers draw without any script."""
    self.body.append(tex2mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def block(self, node) -> None:
    """An equation of its own."""
    self.body.append(f'<div class="math" style="overflow-x: auto">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def begin_anew(app) -> None:
    """Forgets the pages that a build has read which was killed before it wrote its search index: Sphinx would write the
    rest alone, and warn that the index lacks the others."""
    if not (Path(app.outdir) / "searchindex.js").exists():
        (Path(app.doctreedir) / "environment.pickle").unlink(missing_ok=True)


def setup(app) -> None:
    """Writes what is generated, and says how equations are drawn."""
    begin_anew(app)
    write_api()
    write_outside()
    app.connect("source-read", read)
    app.connect("autodoc-skip-member", skip)
    app.connect("autodoc-process-docstring", docstring)
    app.add_html_math_renderer("mathml", inline_renderers=(inline, None), block_renderers=(block, None))
