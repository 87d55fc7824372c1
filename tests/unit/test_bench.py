"""The benches are chosen by name, and say what their verdict is about."""

import pytest

from bench import __main__ as bench
from bench import supervise


def choosable(monkeypatch: pytest.MonkeyPatch, **held: bool) -> list[str]:
    """Benches that cost nothing; the list of those that were run."""
    ran: list[str] = []

    def made(name: str) -> bool:
        ran.append(name)
        return held[name]

    benches = {name: lambda name=name: made(name) for name in held}
    monkeypatch.setattr(bench, "BENCHES", benches)
    return ran


def test_without_a_name_every_bench_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = choosable(monkeypatch, one=True, two=True)
    assert bench.main([]) == 0
    assert ran == ["one", "two"]


def test_with_a_name_only_that_bench_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = choosable(monkeypatch, one=False, two=True)
    assert bench.main(["two", "two"]) == 0
    assert ran == ["two"]


def test_one_promise_that_is_not_held_fails_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = choosable(monkeypatch, one=False, two=True)
    assert bench.main([]) == 1
    assert ran == ["one", "two"]


def test_an_unknown_bench_is_refused_with_those_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        bench.main(["speed"])
    assert ended.value.code == 2
    assert "there is no bench 'speed'; there are: supervise" in capsys.readouterr().err


def test_help_names_the_benches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench.main(["--help"])
    assert ended.value.code == 0
    assert "supervise" in capsys.readouterr().out


@pytest.mark.parametrize(("worst", "held"), [(14.9, True), (15.1, False)])
def test_the_verdict_says_which_rows_it_is_about(worst: float, held: bool) -> None:
    told, is_held = supervise.verdict({1: worst, 10: 5.0, 100: 4.0})
    assert is_held is held
    assert told.startswith("supervise: held." if held else "supervise: NOT HELD.")
    assert "at most 15 µs" in told
    assert "“1 run” (1, 10, 100 signals a read)" in told
    assert f"worst of these is {worst:.2f} µs" in told
