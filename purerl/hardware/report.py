"""What the compiler says of kernels of our own: registers, shared memory and spills."""

import importlib.util
import re
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import jax

from purerl.errors import ConfigError
from purerl.hardware.absent import INSTALL

OURS = re.compile(r"custom-call\(.*custom_call_target=\"__gpu\$xla\.gpu\.triton\".* name = \"(\w+)\"")


class Kernel(NamedTuple):
    """One kernel: ``threads`` of an instance, ``registers`` of a thread, ``shared_bytes`` of an instance, and bytes of
    instructions of a thread that spill registers into memory and read them back, each counted once, in loops too."""

    name: str
    threads: int
    registers: int
    shared_bytes: int
    spill_stores: int
    spill_loads: int


class Reported(NamedTuple):
    """A compiled program and its kernels of our own."""

    program: jax.stages.Compiled
    kernels: list[Kernel]


def compiled(lowered: jax.stages.Lowered) -> Reported:
    """Compiles a program that is lowered for an NVIDIA GPU, and reports on its kernels of our own.

    XLA writes the code of every kernel, and NVIDIA's assembler reports on it. Raises `ConfigError` if the assembler is
    not installed.
    """
    assembler = _assembler()
    with tempfile.TemporaryDirectory() as folder:
        program = lowered.compile(compiler_options={"xla_dump_to": folder})
        names = set(OURS.findall(program.as_text() or ""))
        shared = _shared("\n".join(path.read_text() for path in Path(folder).glob("*thunk_sequence.txt")))
        found = []
        for path in sorted(Path(folder).glob("*.ptx")):
            entry = re.search(r"\.entry (\w+)\(", path.read_text())
            if entry and entry.group(1) in names:
                found.append(_kernel(assembler, path, entry.group(1), shared.get(entry.group(1), 0)))
    return Reported(program, found)


def _shared(thunks: str) -> dict[str, int]:
    """Bytes of shared memory by the names of kernels."""
    return {name: int(size) for name, size in re.findall(r"\] (\w+) grid: .*shared_memory: (\d+) bytes", thunks)}


def _assembler() -> str:
    spec = importlib.util.find_spec("nvidia")
    for place in spec.submodule_search_locations if spec and spec.submodule_search_locations else ():
        if (path := Path(place) / "cuda_nvcc" / "bin" / "ptxas").exists():
            return str(path)
    raise ConfigError(f"needs NVIDIA's assembler, {INSTALL}")


def _kernel(assembler: str, path: Path, name: str, shared: int) -> Kernel:
    text = path.read_text()
    [target], [threads] = re.findall(r"\.target (\w+)", text), re.findall(r"\.reqntid (\d+)", text)
    command = [assembler, "-v", f"-arch={target}", str(path), "-o", str(path.with_suffix(".cubin"))]
    return read(name, int(threads), shared, subprocess.run(command, capture_output=True, text=True, check=True).stderr)


def read(name: str, threads: int, shared_bytes: int, said: str) -> Kernel:
    """A kernel, from what the assembler says of it."""
    numbers = (r"Used (\d+) registers", r"(\d+) bytes spill stores", r"(\d+) bytes spill loads")
    registers, stores, loads = (int(re.findall(pattern, said)[-1]) for pattern in numbers)
    return Kernel(name, threads, registers, shared_bytes, stores, loads)
