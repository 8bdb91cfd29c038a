"""Run a sample of mutants, each against the tests nearest to it.

python -m mutants src/ingot/grid.py              some mutants of a module
python -m mutants src/ingot/query --mutants 5    five of each module of a folder
python -m mutants native/src/chunk/header.rs     some mutants of a Rust file, by cargo-mutants
python -m mutants                                those of the modules that the score is made of
"""

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from mutants import rust
from mutants.nearest import nearest_tests
from mutants.trial import Copy, Failure, copy_of, difference

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


def main(arguments: list[str] | None = None) -> int:
    """Run the mutants; 0 when they ran, 1 when they could not."""
    parser = argparse.ArgumentParser(
        prog="./run mutate",
        description=(__doc__ or "").strip().replace("python -m mutants", "./run mutate"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help="modules, Rust files or folders")
    parser.add_argument("--mutants", type=int, default=8, help="of each file; 8 by default")
    parser.add_argument("--all", action="store_true", help="a mutant of every place")
    parser.add_argument("--seed", type=int, default=1, help="another sample; 1 by default")
    parser.add_argument("--python", default=sys.executable, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    count = None if options.all else options.mutants
    try:
        files = files_of(options.paths or SAMPLE)
        found = Counter[str]()
        modules = [file for file in files if file.endswith(".py")]
        if modules:
            with copy_of(ROOT, options.python) as copy:
                for module in modules:
                    found += try_module(copy, module, count, options.seed)
        crates = [file for file in files if file.endswith(".rs")]
        if crates:
            with tempfile.TemporaryDirectory(prefix="ingot-mutants-") as folder:
                found += rust.try_out(ROOT, crates, count, Path(folder))
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

    original = (ROOT / module).read_text("utf-8")
    tests = nearest_tests(module)
    mutants = sample(module, original, count, seed)
    found = Counter[str]()
    if not tests or not mutants:
        print(f"{module}: {'no mutants' if tests else 'no tests'}", flush=True)
        return found
    print(f"{module}: {len(mutants)} mutants against {' '.join(tests)}", flush=True)
    limit = copy.baseline(tests)
    for mutant in mutants:
        trial = copy.try_out(mutant, tests, limit)
        outcome = "survived" if trial.caught is None else "caught"
        found[outcome] += 1
        by = "" if trial.caught is None else f" by {trial.caught}"
        print(f"{outcome:<9} {module}:{mutant.line}:{mutant.column} {mutant.operator}{by}")
        for line in difference(mutant, original) if trial.caught is None else ():
            print(f"          {line}")
        sys.stdout.flush()
    print(score(module, found), flush=True)
    return found


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
