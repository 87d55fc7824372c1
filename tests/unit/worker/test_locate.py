"""How the driver names a function so that another process finds it, or refuses it and says why."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from turnkeeper import agent
from turnkeeper.core.errors import InvalidValue
from turnkeeper.drivers.python import PythonOptions, locate

PLAIN = PythonOptions()
ROOT = str(Path(__file__).parents[3])


@agent(steer=True)
def at_the_top(turn: object) -> None: ...


class Holder:
    @staticmethod
    def inside(turn: object) -> None: ...

    def method(self, turn: object) -> None: ...


def test_a_function_at_the_top_is_found_by_its_module_and_where_that_was_imported_from() -> None:
    place = locate(at_the_top, PLAIN)
    assert place.name == f"{__name__}:at_the_top"
    assert place.paths == (ROOT,)
    assert place.steer, "its mark can be seen"


def test_a_static_method_is_found_by_its_qualified_name() -> None:
    assert locate(Holder.inside, PLAIN).name == f"{__name__}:Holder.inside"


def nested() -> Any:
    def inner(turn: object) -> None: ...

    return inner


REFUSED: list[tuple[Any, str]] = [
    (lambda turn: None, "it is a lambda"),
    (nested(), "defined inside another function"),
    (functools.partial(at_the_top), "write a plain function that calls it"),
    (Holder().method, "write a plain function that calls it"),
    (Holder, "is not a function"),
    (nested, "give it one parameter"),
]


@pytest.mark.parametrize(("target", "told"), REFUSED)
def test_what_another_process_could_not_find_is_refused_with_what_to_do(
    target: Any, told: str
) -> None:
    with pytest.raises(InvalidValue, match=told):
        locate(target, PLAIN)


def test_a_function_that_its_module_no_longer_has_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    function = at_the_top
    monkeypatch.setattr(sys.modules[__name__], "at_the_top", lambda turn: None)
    with pytest.raises(InvalidValue, match="something else by that name"):
        locate(function, PLAIN)


def test_a_named_target_is_found_from_the_agents_folder() -> None:
    options = PythonOptions(cwd="/srv/agents")
    assert locate("greeter:greet", options).paths == ("/srv/agents",)
    assert locate("sub/greeter.py:greet", options).name == "/srv/agents/sub/greeter.py:greet"
    assert locate("/opt/greeter.py", options).name == "/opt/greeter.py"


def test_the_folders_that_are_given_replace_the_agents_own() -> None:
    options = PythonOptions(cwd="/srv", paths=("lib", "/opt"))
    assert locate("greeter:greet", options).paths == ("/srv/lib", "/opt")
    assert locate(at_the_top, options).paths == ("/srv/lib", "/opt")


def test_without_a_folder_it_is_the_servers_own() -> None:
    assert locate("greeter:greet", PLAIN).paths == (os.getcwd(),)


@pytest.mark.parametrize("target", ["", ":f"])
def test_a_name_that_names_nothing_is_refused(target: str) -> None:
    with pytest.raises(InvalidValue, match="MODULE:FUNCTION"):
        locate(target, PLAIN)


SCRIPT = """
from turnkeeper.drivers.python import PythonOptions, locate
def greet(turn): ...
if __name__ == "__main__":
    print(locate(greet, PythonOptions()).name)
"""


def test_a_function_of_the_running_script_is_found_by_its_file(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    run = [sys.executable, str(script)]
    done = subprocess.run(run, check=True, timeout=30, capture_output=True, text=True)
    assert done.stdout.strip() == f"{script}:greet"


def test_a_function_of_a_prompt_is_refused() -> None:
    run = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(run, check=False, timeout=30, capture_output=True, text=True)
    assert "put it into a file" in done.stderr
