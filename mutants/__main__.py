"""Run a sample of mutants, each against the tests nearest to it.

python -m mutants src/ingot/grid.py              some mutants of a module
python -m mutants src/ingot/query --mutants 5    five of each module of a folder
python -m mutants native/src/chunk/header.rs     some mutants of a Rust file
python -m mutants                                those of the modules that the score is made of
python -m mutants --rust                         those of the Rust files that the score is made of
"""

import argparse
import itertools
import os
import sys
from collections import Counter
from pathlib import Path

from mutants import rust
from mutants.nearest import nearest_tests, nearest_tests_of_rust
from mutants.trial import Copy, Failure, Mutant, copy_of, difference

ROOT = Path(__file__).resolve().parents[1]

SAMPLE = (
    "src/ingot/grid.py",
    "src/ingot/selection.py",
    "src/ingot/stores/local/commit.py",
    "src/ingot/stores/local/journal.py",
    "src/ingot/stores/local/lock.py",
    "src/ingot/stores/buffered.py",
    "src/ingot/formats/json.py",
    "src/ingot/formats/shard_index.py",
    "src/ingot/formats/trailer.py",
    "src/ingot/formats/bcolz/chunk_file.py",
    "src/ingot/formats/zarr/v3_metadata.py",
    "src/ingot/formats/zarr/v3_grids.py",
    "src/ingot/formats/zarr/v3_sharding.py",
    "src/ingot/query/pruning.py",
)
"""The modules that the published score is made of."""

RUST_SAMPLE = (
    "native/src/array/trailer.rs",
    "native/src/array/zones.rs",
    "native/src/array/overwrite.rs",
    "native/src/array/runs.rs",
    "native/src/array/read.rs",
    "native/src/array/chunk_file.rs",
    "native/src/array/scatter.rs",
    "native/src/array/staging.rs",
    "native/src/array/coding.rs",
    "native/src/array/top_up.rs",
    "native/src/array/partial_read.rs",
    "native/src/array/shards/stage.rs",
    "native/src/chunk/header.rs",
    "native/src/chunk/codecs/lz4/mod.rs",
    "native/src/chunk/codecs/blosclz.rs",
    "native/src/chunk/decode.rs",
    "native/src/chunk/partial.rs",
    "native/src/chunk/codecs/lz4/ssse3.rs",
    "native/src/chunk/codecs/streams.rs",
    "native/src/chunk/encode.rs",
    "native/src/chunk/header2.rs",
    "native/src/files/commit.rs",
    "native/src/checksum/mod.rs",
    "native/src/files/verified.rs",
)
"""The Rust files that the published score is made of."""


def main(arguments: list[str] | None = None) -> int:
    """Run the mutants; 0 when they ran, 1 when they could not."""
    parser = argparse.ArgumentParser(
        prog="./run mutate",
        description=(__doc__ or "").strip().replace("python -m mutants", "./run mutate"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help="modules, Rust files or folders")
    parser.add_argument("--rust", action="store_true", help="the Rust files of the score")
    parser.add_argument("--mutants", type=int, default=8, help="of each file; 8 by default")
    parser.add_argument("--all", action="store_true", help="a mutant of every place")
    parser.add_argument("--seed", type=int, default=1, help="another sample; 1 by default")
    parser.add_argument("--python", default=sys.executable, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    count = None if options.all else options.mutants
    try:
        files = files_of(options.paths or (RUST_SAMPLE if options.rust else SAMPLE))
        found = Counter[str]()
        with copy_of(ROOT, options.python) as copy:
            for file in files:
                if file.endswith(".py"):
                    found += try_module(copy, file, count, options.seed)
            target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "native/target/mutants")
            kernel = rust.Kernel(copy, target, {})
            for file in files:
                if file.endswith(".rs"):
                    found += try_rust(kernel, file, count, options.seed)
    except Failure as failure:
        print(f"./run mutate: {failure}", file=sys.stderr)
        return 1
    print(score("all", found))
    return 0


def files_of(paths: "list[str] | tuple[str, ...]") -> list[str]:
    """Return the files of paths, which may be folders, as paths below the root."""
    found: list[str] = []
    for path in paths:
        place = (ROOT / path).resolve()
        files = [place] if place.is_file() else sorted((*place.rglob("*.py"), *place.rglob("*.rs")))
        for file in files:
            if not file.is_relative_to(ROOT / "src") and not file.is_relative_to(ROOT / "native"):
                raise Failure(f"{path} is not in src or native")
            found.append(file.relative_to(ROOT).as_posix())
        if not files:
            raise Failure(f"{path} holds no Python or Rust file")
    return found


def try_module(copy: Copy, module: str, count: int | None, seed: int) -> Counter[str]:
    """Try out mutants of a module; print each, and return how many were caught and survived."""
    from mutants.source import sample  # Only the environment of the tools has cosmic-ray.

    original = (copy.root / module).read_text("utf-8")
    tests = nearest_tests(module)
    mutants = sample(module, original, count, seed)
    found = Counter[str]()
    if not tests or not mutants:
        print(f"{module}: {'no mutants' if tests else 'no tests'}", flush=True)
        return found
    print(f"{module}: {len(mutants)} mutants against {' '.join(tests)}", flush=True)
    limit = copy.baseline(tests)
    for mutant in mutants:
        report(mutant, original, copy.try_out(mutant, tests, limit).caught, found)
    print(score(module, found), flush=True)
    return found


def try_rust(kernel: rust.Kernel, file: str, count: int | None, seed: int) -> Counter[str]:
    """Try out mutants of a Rust file; those that do not compile are replaced by others."""
    known = rust.mutants_of(kernel.copy.root, file)
    module, tests = nearest_tests_of_rust(file)
    found = Counter[str]()
    print(f"{file}: of {len(known)} mutants, against {module} {' '.join(tests)}", flush=True)
    if known:
        kernel.baseline(file)
    mutants = rust.shuffled(known, seed)
    trials = ((mutant, *kernel.try_out(mutant)) for mutant in mutants)
    viable = ((mutant, caught) for mutant, compiles, caught in trials if compiles)
    original = (kernel.copy.root / file).read_text("utf-8")
    for mutant, caught in itertools.islice(viable, count):
        report(mutant, original, caught, found)
    print(score(file, found), flush=True)
    return found


def report(mutant: Mutant, original: str, caught: str | None, found: Counter[str]) -> None:
    """Print and count what became of a mutant."""
    outcome = "survived" if caught is None else "caught"
    found[outcome] += 1
    by = "" if caught is None else f" by {caught}"
    print(f"{outcome:<9} {mutant.path}:{mutant.line}:{mutant.column} {mutant.operator}{by}")
    for line in difference(mutant, original) if caught is None else ():
        print(f"          {line}")
    sys.stdout.flush()


def score(name: str, found: Counter[str]) -> str:
    """Return the line that sums up.

    >>> score("all", Counter(caught=9, survived=1))
    'all: 9 of 10 mutants caught, 90 %'
    """
    total = found.total()
    share = f", {100 * found['caught'] / total:.0f} %" if total else ""
    return f"{name}: {found['caught']} of {total} mutants caught{share}"


if __name__ == "__main__":
    sys.exit(main())
