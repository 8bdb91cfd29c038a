"""The attacks, each for a small budget: with a fixed seed, and with a fresh one that is printed.

The machinery is tested with attacks of its own, which die, hang and fail on purpose.
"""

import ast
import os
import random
import signal
import sys
import time

import pytest

from attacks import __main__ as command
from attacks import campaign
from attacks.campaign import Attack, Case, Summary
from attacks.findings import Finding, shrink
from tests.kernels import on_each_kernel

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the attacks use what Linux offers"
)

FIXED = 1
FRESH = random.SystemRandom().randrange(2**31)
CASES = {
    "lives": 25,
    "interrupts": 25,
    "forks": 8,
    "kills": 3,
    "faults": 24,
    "damage": 10,
    "claims": 20,
    "names": 30,
    "peers": 30,
}
"""How many cases of each attack are run: a few seconds."""
RUNS = [(name, seed) for name in CASES for seed in (FIXED, FRESH)]


# The fresh seed is no part of the name, which the workers of a parallel run have to agree on.
@pytest.mark.parametrize(
    ("name", "seed"),
    RUNS,
    ids=[f"{name}-{'fixed' if seed == FIXED else 'fresh'}" for name, seed in RUNS],
)
@on_each_kernel
def test_attack_finds_nothing(name, seed, kernel_name):
    summary = run(name, seed, kernel_name)
    # A failure shows it; so does `pytest -rP`.
    print(summary)
    assert [show(finding) for finding in summary.faults] == []
    assert summary.cases == CASES[name]


@pytest.mark.parametrize("name", CASES)
def test_attack_runs(name):
    """An attack that fails by itself would find nothing for ever."""
    summary = run(name, FIXED, campaign.kernels()[0], cases=3)
    own = [finding for finding in summary.findings if finding.subject == "the attack itself"]
    assert [show(finding) for finding in own] == []
    assert summary.cases == 3


def run(name, seed, kernel, cases=None):
    subject = campaign.load()[name]
    return campaign.run(subject, seed=seed, kernel=kernel, cases=cases or CASES[name])


def show(finding):
    return f"{finding.kind}: {finding.subject}: {finding.happened} ({finding.command})"


def test_every_attack_has_a_budget():
    assert set(CASES) == set(campaign.load())


class TestMachinery:
    """Attacks of this class run in the child by their name, so the child must know them."""

    @pytest.fixture
    def attacked(self, monkeypatch, tmp_path):
        """Run a function as an attack: in a child, as all attacks are."""

        def attacked(body, cases=3, seconds=30):
            module = tmp_path / "trial.py"
            module.write_text(
                "import os, time\n"
                "from attacks import campaign, worker\n"
                f"@campaign.attack('trial', case_seconds={seconds})\n"
                "def trial(case):\n"
                + "".join(f"    {line}\n" for line in body.splitlines())
                + "campaign.load = lambda: campaign.ATTACKS\n"
                + "worker.load = campaign.load\n"
            )
            start = tmp_path / "sitecustomize.py"
            start.write_text("import trial\n")
            paths = [str(tmp_path), str(campaign.ROOT), os.environ.get("PYTHONPATH", "")]
            monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
            subject = Attack("trial", lambda case: None, case_seconds=seconds)
            kernel = campaign.kernels()[0]
            return campaign.run(subject, seed=7, kernel=kernel, cases=cases)

        return attacked

    def test_a_quiet_attack_has_no_findings(self, attacked):
        summary = attacked("case.count('things', 2)")
        assert (summary.cases, summary.findings, summary.counts["things"]) == (3, [], 6)

    def test_a_death_is_a_finding_and_the_next_case_runs(self, attacked):
        summary = attacked(
            "case.announce('print(1)', 'a topic')\nif case.number == 1: os.kill(os.getpid(), 11)"
        )
        (finding,) = summary.findings
        assert summary.cases == 3
        assert (finding.kind, finding.case, finding.subject) == ("death", 1, "a topic")
        assert finding.program == "print(1)"
        assert signal.Signals.SIGSEGV.name in finding.happened

    def test_a_hang_is_a_finding_with_the_place(self, attacked):
        begin = time.monotonic()
        summary = attacked("if case.number == 0: time.sleep(300)", cases=2, seconds=2)
        (finding,) = summary.findings
        assert finding.kind == "hang"
        assert "trial.py" in finding.happened
        assert summary.cases == 2
        assert time.monotonic() - begin < 200

    def test_an_attack_that_fails_is_a_finding(self, attacked):
        (finding,) = attacked("1 / 0", cases=1).findings
        assert finding.subject == "the attack itself"
        assert "ZeroDivisionError" in finding.happened

    def test_a_skip_has_its_reason(self, attacked):
        summary = attacked("raise campaign.Skip('no tool')")
        assert summary.skipped == "no tool"
        assert "no tool" in str(summary)

    def test_a_case_has_the_same_numbers_every_time(self, tmp_path):
        def numbers(number):
            case = Case("trial", 7, number, "python", tmp_path, lambda message: None)
            return [case.random.random() for _ in range(3)]

        assert numbers(4) == numbers(4) != numbers(5)

    def test_the_memory_of_the_child_is_limited(self, attacked):
        body = "import resource\ncase.count(str(resource.getrlimit(resource.RLIMIT_AS)[0]))"
        assert str(4 << 30) in attacked(body, cases=1).counts


class TestCommand:
    def test_findings_give_status_1(self, monkeypatch, capsys, tmp_path):
        finding = Finding("lives", "python", 7, 3, "wrong", "a thing", "this", "that", "print(1)")

        def found(subject, **options):
            summary = Summary(subject.name, options["kernel"], options["seed"], cases=1)
            summary.findings.append(finding)
            return summary

        monkeypatch.setattr(campaign, "run", found)
        monkeypatch.setattr(Finding, "save", lambda self: command.FOLDER / "lives-wrong-a-thing.py")
        assert command.main(["lives", "--kernel", "python", "--seed", "7"]) == 1
        printed = capsys.readouterr().out
        assert "--seed 7 --case 3" in printed
        assert "findings 1" in printed

    def test_no_findings_give_status_0(self, monkeypatch, capsys):
        summary = Summary("lives", "python", 7, cases=5)
        monkeypatch.setattr(campaign, "run", lambda subject, **options: summary)
        assert command.main(["lives", "--kernel", "python"]) == 0
        assert "findings 0" in capsys.readouterr().out

    def test_unknown_names_are_refused(self, capsys):
        with pytest.raises(SystemExit) as stop:
            command.main(["lifes"])
        assert stop.value.code == 2
        assert "lives" in capsys.readouterr().err

    def test_a_soak_goes_round_until_the_time_is_up(self, monkeypatch):
        campaign.load()
        clock = iter(range(0, 1000, 10))
        monkeypatch.setattr(command.time, "monotonic", lambda: float(next(clock)))
        names = [attack.name for attack, *_ in command.turns(["soak"], ["python"], 1, 150.0)]
        assert names[: len(CASES)] == list(campaign.ATTACKS)
        assert len(names) > len(CASES)


class TestFindings:
    def test_a_finding_is_saved_as_a_program(self, tmp_path):
        finding = Finding(
            "lives", "python", 7, 3, "wrong", "a/thing", "this", "that\nthere", "x = 1"
        )
        path = finding.save(tmp_path)
        text = path.read_text()
        ast.parse(text)
        assert "--seed 7 --case 3" in text
        assert "# happened: that\n# there\n" in text
        assert text.endswith("x = 1\n")

    def test_shrinking_keeps_what_fails(self):
        assert shrink(list(range(20)), lambda parts: {3, 17} <= set(parts)) == [3, 17]

    def test_shrinking_ends_in_time(self):
        tried = []

        def fails(parts):
            time.sleep(0.01)
            tried.append(parts)
            return False

        shrink(list(range(100)), fails, seconds=0.2)
        assert len(tried) <= 21
