"""Wrong results are not timed: the error that stops a run."""

__all__ = ["WrongResultError", "require"]


class WrongResultError(Exception):
    """Raised when a contender does not do the work it is timed for.

    >>> issubclass(WrongResultError, Exception)
    True
    """


def require(is_right: bool, problem: str) -> None:
    """Raise `WrongResultError` with the message unless the condition holds.

    >>> require(2 + 2 == 5, "two and two make four")
    Traceback (most recent call last):
    benchmarks.verify.WrongResultError: two and two make four
    """
    if not is_right:
        raise WrongResultError(problem)
