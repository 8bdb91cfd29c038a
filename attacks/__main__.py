"""Run attacks by their names.

python -m attacks                              every attack, a minute each on each kernel
python -m attacks claims damage --minutes 10   two of them, ten minutes each
python -m attacks claims --seed 7 --case 31    one case again
python -m attacks soak --minutes 120           all of them in turn until the time is up
"""

import argparse
import random
import sys
import time
from collections.abc import Iterator

from attacks import campaign
from attacks.findings import FOLDER

SOAK_SECONDS = 30.0
"""How long each attack of a soak runs before the next one."""


def main(arguments: list[str] | None = None) -> int:
    """Run the attacks; return 1 when there are findings, 2 for wrong arguments."""
    attacks = campaign.load()
    parser = argparse.ArgumentParser(
        prog="python -m attacks",
        description=(__doc__ or "").strip(),
        epilog="\n".join(f"  {each.name:<12}{each.summary}" for each in attacks.values())
        + "\n  soak        All of the above in turn until the time is up.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [*attacks, "soak"]
    parser.add_argument("names", nargs="*", metavar="NAME", help="all but soak by default")
    parser.add_argument("--minutes", type=float, help="per attack and kernel; 1 by default")
    parser.add_argument("--cases", type=int, help="this many cases instead of some minutes")
    parser.add_argument("--seed", type=int, help="random by default")
    parser.add_argument("--case", type=int, help="only the case of this number")
    parser.add_argument("--kernel", choices=("native", "python", "both"), default="both")
    parser.add_argument("--folder", help="where to put scratch files; in memory by default")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in names]
    if unknown:
        parser.error(f"no attack {unknown[0]!r}; the attacks are {', '.join(names)}")
    available = campaign.kernels()
    if options.kernel not in (*available, "both"):
        parser.error(f"the {options.kernel} kernel is not built")
    chosen = available if options.kernel == "both" else [options.kernel]
    seed = random.SystemRandom().randrange(2**31) if options.seed is None else options.seed
    seconds = 60 * options.minutes if options.minutes is not None else None
    if seconds is None and options.cases is None and options.case is None:
        seconds = 60.0
    found = 0
    for subject, kernel, number, budget in turns(options.names, chosen, seed, seconds):
        summary = campaign.run(
            subject,
            seed=number,
            kernel=kernel,
            seconds=budget,
            cases=options.cases,
            only=options.case,
            folder=options.folder,
        )
        found += len(summary.findings)
        print(summary, flush=True)
        show(summary)
    return 1 if found else 0


def turns(
    names: list[str], kernels: list[str], seed: int, seconds: float | None
) -> Iterator[tuple[campaign.Attack, str, int, float | None]]:
    """Yield which attack runs next, on which kernel, with which seed, and for how long."""
    attacks = campaign.ATTACKS
    for name in names or list(attacks):
        if name != "soak":
            for kernel in kernels:
                yield attacks[name], kernel, seed, seconds
            continue
        end = time.monotonic() + (60.0 if seconds is None else seconds)
        number = seed
        while time.monotonic() < end:
            for subject in attacks.values():
                for kernel in kernels:
                    left = end - time.monotonic()
                    if left > 0:
                        yield subject, kernel, number, min(left, SOAK_SECONDS)
            number += 1


def show(summary: campaign.Summary) -> None:
    """Print every distinct fault with its reproduction."""
    for finding in summary.faults:
        times = sum(other.fault == finding.fault for other in summary.findings)
        path = finding.save()
        print(f"  {finding.kind}: {finding.subject} (seen {times} times)")
        print(f"    expected: {finding.expected.splitlines()[0]}")
        happened = finding.happened.strip().splitlines() or [""]
        for line in happened[:6]:
            print(f"    happened: {line}")
        print(f"    --seed {finding.seed} --case {finding.case} --kernel {finding.kernel}")
        print(f"    {path.relative_to(FOLDER.parent.parent)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
