"""The command: ``python -m benchmarks [NAMES] [OPTIONS]``, by ``./run bench`` in a checkout.

Parses the arguments, runs the workloads and writes their results.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import machine, page, regressions
from benchmarks.interpreters import find_peer_python
from benchmarks.race import Effort
from benchmarks.settings import QUICK_EFFORT, QUICK_SCALE, Settings, say
from benchmarks.table import Table, summarize
from benchmarks.verify import WrongResultError
from benchmarks.workloads import GROUPS, WITH_ZARR, WORKLOADS, choose

__all__ = ["main"]

RESULTS = Path(__file__).parent / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run workloads; return 0 when they ran, 1 if results are wrong or worse, 2 after misuse."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = _parser()
    options = parser.parse_args(given)
    try:
        names = choose(options.names)
    except ValueError as error:
        parser.error(str(error))
    python = None
    if any(name in WITH_ZARR for name in names):
        python = find_peer_python(options.python, say)
    facts = machine.describe(given, python)
    print(machine.portray(facts), end="\n\n")
    results: dict[str, list[Table]] = {}
    with tempfile.TemporaryDirectory(prefix="ingot-bench-") as folder:
        settings = _settings(options, Path(folder), python)
        for name in names:
            try:
                results[name] = WORKLOADS[name](settings)
            except WrongResultError as error:
                print(f"{name}: wrong result: {error}", file=sys.stderr)
                return 1
            for table in results[name]:
                print(table.as_text(), end="\n\n", flush=True)
    print(summarize(table for tables in results.values() for table in tables))
    if options.markdown is not None:
        page.update(options.markdown, results, facts)
    if options.json is not None:
        _write_json(options.json, results, facts)
    stored = regressions.results_file(options.results, facts, settings.scale)
    found = _report_regressions(stored, results) if options.compare else []
    if options.store:
        regressions.store(stored, results, facts)
    return 1 if found else 0


def _parser() -> argparse.ArgumentParser:
    groups = "; ".join(f"{name}: {', '.join(members)}" for name, members in GROUPS.items())
    parser = argparse.ArgumentParser(
        prog="./run bench",
        description="Ingot against its peers, all in one run; ratios count, not times.",
        epilog=f"Names that stand for several: {groups}. Files go to a folder in TMPDIR.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join([*WORKLOADS, *GROUPS]))
    parser.add_argument("--quick", action="store_true", help="only see that it works: tiny sizes")
    parser.add_argument("--scale", type=_positive, help="this part of the full sizes, at most 1")
    parser.add_argument("--repetitions", type=int, help="turns of each contender, the best counts")
    parser.add_argument("--seconds", type=_positive, help="the least time of one turn")
    parser.add_argument(
        "--python",
        default="auto",
        help="where to run zarr, which needs Python 3.12 in its newest versions: an interpreter, "
        "'here' for this one, or 'auto' (default) for a newer one if it can be found",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers to FILE")
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="write the tables into the sections of FILE"
    )
    parser.add_argument(
        "--store", action="store_true", help="keep the results, to compare later runs with"
    )
    parser.add_argument(
        "--compare",
        action="store_true",
        help="compare with the results that were kept on this machine; a figure that is worse by "
        f"more than {regressions.TOLERANCE:.0%}% is listed, and the exit status is 1",
    )
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FOLDER",
        default=RESULTS,
        help="where results are kept (default: benchmarks/results)",
    )
    return parser


def _settings(options: argparse.Namespace, folder: Path, python: str | None) -> Settings:
    effort = QUICK_EFFORT if options.quick else Effort()
    scale = QUICK_SCALE if options.quick else 1.0
    return Settings(
        folder,
        Effort(
            effort.repetitions if options.repetitions is None else options.repetitions,
            effort.seconds if options.seconds is None else options.seconds,
        ),
        scale if options.scale is None else options.scale,
        python,
    )


def _positive(text: str) -> float:
    number = float(text)
    if number <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def _report_regressions(
    stored: Path, results: Mapping[str, Sequence[Table]]
) -> list[regressions.Regression]:
    """Print what has become slower on this machine, and return it."""
    earlier = regressions.load(stored)
    unknown = sorted(results.keys() - earlier.keys())
    if unknown:
        print(f"no earlier results of {', '.join(unknown)} on this machine: --store keeps them")
    found = regressions.compare(earlier, results)
    if not unknown or found:
        print(f"regressions: {len(found)}")
    for regression in found:
        print(f"  {regression}")
    return found


def _write_json(
    path: Path, results: Mapping[str, Sequence[Table]], facts: Mapping[str, str]
) -> None:
    tables = [table.as_dict() for found in results.values() for table in found]
    document = {"facts": dict(facts), "tables": tables}
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
