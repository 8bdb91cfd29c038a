"""Calls of the ``ingot`` command in the process of the test, with its output caught."""

import io
import sys
from dataclasses import dataclass
from unittest import mock

from ingot.cli import app


@dataclass(frozen=True)
class CommandResult:
    """What a command has printed, and its exit status."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


def invoke(*arguments: object) -> CommandResult:
    """Run a command; it sees pipes, and nothing on standard input."""
    out, error = io.StringIO(), io.StringIO()
    with mock.patch.object(sys, "stdout", out), mock.patch.object(sys, "stderr", error):
        status = app.run([str(argument) for argument in arguments])
    return CommandResult(status, out.getvalue(), error.getvalue())
