"""Run the fuzz target that is built into the native kernel's own tests, and watch it.

    python -m tests.fuzz.fuzz_native --minutes 10 --seed 7

It damages chunks and compares the kernel with itself, without Python in between: twenty times as
many executions in the same time as ``fuzz_chunks``, which holds the two kernels against each other.
The chunks to damage are its own and the golden ones. Findings are saved where ``fuzz_chunks`` saves
its own.
"""

import argparse
import json
import mmap
import os
import random
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.driver import ROOT, SPARE_MEMORY, Finding, watch
from tests.fuzz.fuzz_chunks import SAMPLES, save, unpack

MANIFEST = ROOT / "native" / "Cargo.toml"
TARGET = "chunk::fuzz::damaged_chunks_end_with_data_or_an_error"


@dataclass(frozen=True)
class Request:
    """What to run: of which seed, how many executions at most, for how long at most."""

    seed: int
    executions: int
    seconds: int | None = None

    def variables(self, folder: Path) -> dict[str, str]:
        """Return the variables of the target, with its files in ``folder``."""
        variables = {
            "INGOT_FUZZ_SEED": str(self.seed),
            "INGOT_FUZZ_EXECUTIONS": str(self.executions),
            "INGOT_FUZZ_BASES": str(folder / "bases"),
            "INGOT_FUZZ_COUNTER": str(folder / "counter"),
        }
        if self.seconds is not None:
            variables["INGOT_FUZZ_SECONDS"] = str(self.seconds)
        return variables


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for programs that embed this Python, and ``more``."""
    folders = [sysconfig.get_config_var("LIBDIR") or "", os.environ.get("LD_LIBRARY_PATH", "")]
    libraries = os.pathsep.join(filter(None, folders))
    return {**os.environ, "PYO3_PYTHON": sys.executable, "LD_LIBRARY_PATH": libraries, **more}


def build() -> Path:
    """Build the tests of the native kernel, and return their program."""
    command = ["cargo", "test", "--manifest-path", str(MANIFEST), "--locked", "--release", "--lib"]
    command += ["--no-run", "--message-format=json"]
    output = subprocess.run(command, env=environment({}), check=True, stdout=subprocess.PIPE).stdout
    messages = [json.loads(line) for line in output.splitlines()]
    programs = [message["executable"] for message in messages if message.get("executable")]
    return Path(programs[-1])


def fuzz(program: Path, request: Request) -> tuple[int, Finding | None]:
    """Run the target and watch it; return how many executions it did, and what it died of."""
    with tempfile.TemporaryDirectory(prefix="ingot-fuzz-") as name:
        folder = Path(name)
        (folder / "bases").mkdir()
        for number, chunk in enumerate(chunk for sample in SAMPLES for chunk in unpack(sample)):
            (folder / "bases" / f"{number:04}.chunk").write_bytes(chunk)
        counter = folder / "counter"
        counter.write_bytes(bytes(8))
        variables = request.variables(folder)
        child = subprocess.Popen(
            limited([str(program), "--exact", TARGET]),
            env=environment(variables),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        with (
            counter.open("rb") as shared,
            mmap.mmap(shared.fileno(), 8, access=mmap.ACCESS_READ) as seen,
        ):
            message = watch(child, seen)
            (execution,) = struct.unpack("<q", seen[:])
        if not message:
            return execution, None
        return execution, Finding(execution, message, show(program, variables, execution, folder))


def limited(command: list[str]) -> list[str]:
    """Return the command with its memory limited, where systems know how."""
    prlimit = shutil.which("prlimit")
    return [prlimit, f"--as={SPARE_MEMORY}", *command] if prlimit else command


def show(program: Path, variables: Mapping[str, str], execution: int, folder: Path) -> bytes:
    """Let the target make the chunk of one execution again."""
    path = folder / "chunk"
    variables = {**variables, "INGOT_FUZZ_SHOW": str(execution), "INGOT_FUZZ_CHUNK": str(path)}
    command = [str(program), "--exact", TARGET]
    subprocess.run(command, env=environment(variables), check=True, stdout=subprocess.DEVNULL)
    return path.read_bytes()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=None, help="how long; 1 by default")
    parser.add_argument("--executions", type=int, default=None, help="how many at most")
    parser.add_argument("--seed", type=int, default=None, help="random by default")
    parser.add_argument("--kernel", default="native", help="anything but python runs it")
    options = parser.parse_args()
    if options.kernel == "python" or shutil.which("cargo") is None:
        print("no native kernel to fuzz")
        return 0
    minutes = options.minutes
    if minutes is None and options.executions is None:
        minutes = 1.0
    request = Request(
        random.randrange(10**9) if options.seed is None else options.seed,
        2**63 - 1 if options.executions is None else options.executions,
        None if minutes is None else max(1, round(60 * minutes)),
    )
    program = build()
    print(f"fuzzing the native kernel by itself with seed {request.seed}", flush=True)
    executions, finding = fuzz(program, request)
    if finding is None:
        print(f"{executions} executions, nothing found")
        return 0
    print(f"execution {finding.execution} of seed {request.seed}: {finding.what}")
    print(f"saved as {save(finding, 'rust', request.seed).relative_to(ROOT)}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
