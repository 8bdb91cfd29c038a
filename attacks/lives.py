"""The attack `lives`: random programs, compared with NumPy after every step."""

import ingot
from attacks.campaign import Case, attack
from attacks.datasets import STORES
from attacks.programs import CHECK, Failure, Program, Step

__all__ = ["lives"]

STEPS = 18
"""How many steps a program has at most."""


@attack("lives")
def lives(case: Case) -> None:
    """Random programs over every container, format and store against NumPy models."""
    rng = case.random
    choices = [
        (name, kind)
        for name, kinds in sorted(ingot.formats().items())
        for kind in kinds
        if kind in CHECK
    ]
    format, holds = rng.choice(choices)
    program = Program(rng, holds, format, rng.choice(list(STORES)), case.folder)
    space = program.space()
    step = program.create()
    failure: Failure | None = None
    for _ in range(rng.randint(2, STEPS)):
        program.steps.append(step)
        case.announce(program.source(program.steps), f"{format} {holds} in {program.store}")
        failure = program.do(step, space, len(program.steps) - 1)
        if failure is not None:
            break
        step = program.next(space)
    if failure is None:
        case.count("steps", len(program.steps))
        return
    if failure.kind == "refused":
        case.count("refused")
        return
    report(case, program, failure)


def report(case: Case, program: Program, failure: Failure) -> None:
    """Report a failure with the fewest steps that still show it."""

    def fails(steps: list[Step]) -> bool:
        if not steps or steps[0] != program.steps[0]:
            return False
        again = program.play(steps)
        return again is not None and again.kind == failure.kind

    steps = case.shrink(program.steps, fails)
    again = program.play(steps) or failure
    word = again.message.partition(":")[0] if again.kind == "error" else "other data"
    operation = steps[-1].ours.partition("(")[0].partition("[")[0]
    case.find(
        failure.kind,
        f"{program.format} {program.holds}: {operation}, {word}",
        expected="what NumPy does",
        happened=f"{again.message}\nafter: {steps[-1].ours}\nin {program.store}",
        program=program.source(steps),
    )
