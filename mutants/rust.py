"""Mutants of Rust files, listed by cargo-mutants.

Each is built into the copy of the checkout. The native tests of its module run first, then the
tests in Python that are nearest to it, on the kernel with the mutant in it.
"""

import json
import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutants.nearest import nearest_tests_of_rust
from mutants.trial import Copy, Failure, Mutant

__all__ = ["Kernel", "mutants_of", "shuffled"]

# As released, but built anew within seconds: a sum that overflows wraps, as it does for users.
_PROFILE = {
    "CARGO_PROFILE_DEV_DEBUG": "0",
    "CARGO_PROFILE_DEV_DEBUG_ASSERTIONS": "false",
    "CARGO_PROFILE_DEV_OVERFLOW_CHECKS": "false",
}

_NATIVE_ALONE = ["-k", "not [python and not -python"]
"""Tests with the parameter `python` run on the other kernel, which has no mutant."""


def mutants_of(root: Path, file: str) -> list[Mutant]:
    """Return all mutants of a Rust file, as cargo-mutants lists them."""
    command = ["cargo", "mutants", "--dir", "native", "--list", "--json"]
    command += ["--file", file.removeprefix("native/")]
    answer = subprocess.run(command, cwd=root, stdout=subprocess.PIPE)
    if answer.returncode:
        raise Failure(f"`{' '.join(command)}` ended with status {answer.returncode}")
    text = (root / file).read_text("utf-8")
    return [_mutant(file, text, each) for each in json.loads(answer.stdout)]


def shuffled(mutants: list[Mutant], seed: int) -> Iterator[Mutant]:
    """Yield one mutant of every place, in an order that depends on the seed."""
    by_place: dict[tuple[int, int], list[Mutant]] = {}
    for mutant in mutants:
        by_place.setdefault((mutant.line, mutant.column), []).append(mutant)
    places = sorted(by_place)
    chooser = random.Random(f"{seed} {mutants[0].path if mutants else ''}")
    chooser.shuffle(places)
    for place in places:
        yield chooser.choice(by_place[place])


def _mutant(file: str, text: str, listed: dict[str, Any]) -> Mutant:
    """Return a mutant: a span of lines and columns, counted from 1, with another text."""
    start, stop = (listed["span"][end] for end in ("start", "end"))
    lines = text.splitlines(keepends=True)
    before = "".join(lines[: start["line"] - 1]) + lines[start["line"] - 1][: start["column"] - 1]
    after = lines[stop["line"] - 1][stop["column"] - 1 :] + "".join(lines[stop["line"] :])
    operator = re.sub(r"^.*?:\d+:\d+: ", "", listed["name"])
    changed = before + listed["replacement"] + after
    return Mutant(file, start["line"], start["column"], operator, changed)


@dataclass
class Kernel:
    """The native kernel of a copy, built anew for each mutant in a folder that is kept."""

    copy: Copy
    target: Path
    limits: dict[tuple[str, ...], float]

    def baseline(self, file: str) -> None:
        """Build the kernel as it is; its tests must pass, and tell how long they may take."""
        module, tests = nearest_tests_of_rust(file)
        # The folder may hold the last mutant of another copy, and cargo goes by the time of files.
        (self.copy.root / file).touch()
        if not self._build():
            raise Failure("the kernel cannot be built without a mutant")
        status, output = self._test_natively(module, None)
        if status != 0:
            raise Failure(f"the native tests fail without a mutant:\n{output}")
        if tuple(tests) not in self.limits:
            self.limits[tuple(tests)] = self.copy.baseline([*_NATIVE_ALONE, *tests])

    def try_out(self, mutant: Mutant) -> tuple[bool, str | None]:
        """Return whether a mutant compiles, and the first test that catches it, if any does."""
        module, tests = nearest_tests_of_rust(mutant.path)
        limit = self.limits[tuple(tests)]
        path = self.copy.root / mutant.path
        original = path.read_bytes()
        try:
            path.write_text(mutant.text, "utf-8")
            if not self._build():
                return False, None
            status, output = self._test_natively(module, limit)
            if status != 0:
                failed = re.findall(r"^---- (\S+) stdout", output, re.MULTILINE)
                return True, "the time limit" if status is None else (failed or ["an abort"])[0]
            return True, self.copy.first_failure([*_NATIVE_ALONE, *tests], limit)
        finally:
            path.write_bytes(original)

    def _build(self) -> bool:
        if self._cargo(None, "build")[0] != 0:
            return False
        built = self.target / "debug" / "lib_native.so"
        # Under a new name first: a process that has the old file mapped keeps it.
        fresh = self.copy.root / "src/ingot/_native.fresh"
        shutil.copyfile(built, fresh)
        fresh.replace(self.copy.root / "src/ingot/_native.abi3.so")
        return True

    def _test_natively(self, module: str, limit: float | None) -> tuple[int | None, str]:
        return self._cargo(limit, "test", "--quiet", module)

    def _cargo(self, limit: float | None, job: str, *arguments: str) -> tuple[int | None, str]:
        options = ["--manifest-path", "native/Cargo.toml", "--locked", "--lib"]
        variables = {**_PROFILE, "CARGO_TARGET_DIR": os.fspath(self.target)}
        return self.copy.run(["cargo", job, *options, *arguments], limit, **variables)
