"""Mutants of Rust files, made and tried out by cargo-mutants."""

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

from mutants.trial import Failure

__all__ = ["try_out"]

_CAUGHT = ("CaughtMutant", "Timeout")


def try_out(root: Path, files: list[str], count: int | None, folder: Path) -> Counter[str]:
    """Run about `count` mutants of each file; print each, and return how many of each outcome."""
    total: Counter[str] = Counter()
    for file in files:
        total += _try_file(root, file, count, folder)
    return total


def _try_file(root: Path, file: str, count: int | None, folder: Path) -> Counter[str]:
    native = root / "native"
    name = (root / file).relative_to(native).as_posix()
    command = ["cargo", "mutants", "--dir", str(native), "--file", name]
    listed = _output([*command, "--list", "--json"])
    known = len(json.loads(listed))
    if not known:
        print(f"{file}: no mutants", flush=True)
        return Counter()
    shards = 1 if count is None else max(1, round(known / count))
    print(f"{file}: a sample of 1 in {shards} of {known} mutants", flush=True)
    options = ["--shard", f"0/{shards}", "--sharding", "round-robin", "--output", str(folder)]
    quiet = ["--no-times", "--colors", "never", "--cap-lints", "true"]
    # Statuses 2 and 3 say that mutants survived, or took too long.
    if subprocess.call([*command, *options, *quiet], stdout=subprocess.DEVNULL) not in (0, 2, 3):
        raise Failure(f"{file}: cargo mutants failed; its logs are in {folder / 'mutants.out'}")
    outcomes = json.loads((folder / "mutants.out" / "outcomes.json").read_bytes())["outcomes"]
    found: Counter[str] = Counter()
    for each in outcomes:
        if each["scenario"] == "Baseline" or each["summary"] == "Unviable":
            continue
        mutant = each["scenario"]["Mutant"]
        outcome = "caught" if each["summary"] in _CAUGHT else "survived"
        found[outcome] += 1
        print(f"{outcome:<9} native/{mutant['name']}", flush=True)
    return found


def _output(command: list[str]) -> bytes:
    answer = subprocess.run(command, stdout=subprocess.PIPE, env=os.environ)
    if answer.returncode:
        raise Failure(f"`{' '.join(command)}` ended with status {answer.returncode}")
    return answer.stdout
