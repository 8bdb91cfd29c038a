"""The child of a campaign: it runs the cases of one attack, one after the other.

It limits its memory, arms a watchdog for each case, and sends what it sees as lines of JSON.
"""

import faulthandler
import json
import os
import resource
import shutil
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from attacks.campaign import Case, Skip, load

__all__ = ["main"]


def main(text: str) -> int:
    """Run what the request asks for."""
    request = json.loads(text)
    channel = os.dup(1)
    # What a library prints must not look like a message.
    os.dup2(2, 1)

    def send(message: dict[str, Any]) -> None:
        # A view: a program with a document of many megabytes is not copied for each part of it.
        data = memoryview(json.dumps(message).encode() + b"\n")
        while data:
            data = data[os.write(channel, data) :]

    subject = load()[request["attack"]]
    limit = min(subject.memory, _hard_limit())
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    faulthandler.enable()

    def rearm() -> None:
        faulthandler.dump_traceback_later(subject.case_seconds, exit=True)

    end = None if request["seconds"] is None else time.monotonic() + request["seconds"]
    number = request["first"]
    last = None if request["cases"] is None else number + request["cases"]
    while (last is None or number < last) and (end is None or time.monotonic() < end):
        folder = Path(request["folder"]) / f"case-{number}"
        folder.mkdir()
        case = Case(subject.name, request["seed"], number, request["kernel"], folder, send, rearm)
        send({"start": number})
        rearm()
        try:
            subject.function(case)
        except Skip as reason:
            send({"skip": str(reason)})
            break
        except BaseException:
            happened = traceback.format_exc(limit=-12)
            case.find(
                "error", "the attack itself", expected="an attack that runs", happened=happened
            )
        finally:
            faulthandler.cancel_dump_traceback_later()
        send({"end": number})
        shutil.rmtree(folder, ignore_errors=True)
        number += 1
    # Threads and handles that an attack left behind must not delay the end.
    os._exit(0)


def _hard_limit() -> int:
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


if __name__ == "__main__":
    main(sys.argv[1])
