"""The benches are chosen by name, and say what their verdict is about."""

import pytest

from bench import __main__ as bench
from bench import figures, supervise


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


@pytest.mark.parametrize(("of", "found"), [(0.5, 50.0), (0.99, 99.0), (1.0, 100.0), (0.0, 1.0)])
def test_a_share_of_values_is_not_above_what_is_told(of: float, found: float) -> None:
    assert figures.share([float(n) for n in range(100, 0, -1)], of) == found


def test_a_promise_is_held_or_not_held_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert figures.most("time", 1.5, 1.5, "s")
    assert not figures.most("time", 1.6, 1.5, "s")
    assert figures.least("rate", 2.0, 1.5, "x")
    assert not figures.least("rate", 1.4, 1.5, "x")
    assert not figures.most("nothing was measured", figures.share([], 0.99), 1.5, "s")
    told = capsys.readouterr().out.splitlines()
    assert [line.rstrip(")").split(": ")[-1] for line in told] == [
        "held", "NOT HELD", "held", "NOT HELD", "NOT HELD",
    ]  # fmt: skip


def test_the_size_of_a_bench_can_be_set_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    assert figures.size("CROWD_SESSIONS", 1000) == 1000
    monkeypatch.setenv("BENCH_CROWD_SESSIONS", "20")
    assert figures.size("CROWD_SESSIONS", 1000) == 20
