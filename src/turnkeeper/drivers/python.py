"""People's own functions as agents: each conversation's turns in a worker process in custody.

Decides how a function is named to the worker and what the worker is started with. It must not know
what the function does, and never imports it. Invariant: a target that the worker could not find
again by its name is refused here, with what to do.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any

import msgspec

from turnkeeper.core.commands import Abilities
from turnkeeper.core.errors import InvalidValue
from turnkeeper.custody.client import Custodian
from turnkeeper.custody.program import check_words
from turnkeeper.drivers.process import SAMPLE_S, Command, ProcessAgent, ProcessLink
from turnkeeper.ports import ChildPort, ChildTold, ChildWanted, Opening, Sink
from turnkeeper.wire.worker import ChildLine, StopChild, WorkerCodec
from turnkeeper.worker.load import CannotLoad, is_file, split
from turnkeeper.worker.mark import check, mark_of

Target = str | Callable[..., Any]

NOT_GIVEN = "this agent may not start runs; its table in the configuration needs mcp = true"


class PythonOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator may say of a python agent beside its target."""

    python: str = sys.executable
    """The interpreter; Turnkeeper has to be installed in its environment."""
    cwd: str = ""
    """Where the function runs if the session does not say; and where modules are found."""
    env: dict[str, str] = {}
    paths: tuple[str, ...] = ()
    """Where modules are found, instead of `cwd`."""
    steer: bool | None = None
    """Whether it looks at `turn.steering`; what its mark says, where that can be seen."""
    heartbeat_s: float = 5.0

    def __post_init__(self) -> None:
        if not self.python:
            raise InvalidValue("python", self.python, "name the interpreter, or leave it out")
        for field in ("python", "cwd", "env", "paths"):
            check_words(field, getattr(self, field))


class Place(msgspec.Struct, frozen=True):
    """What the worker finds the function by: `name` to load, from `paths`."""

    name: str
    paths: tuple[str, ...]
    steer: bool = False


class WorkerLink(ProcessLink):
    """The hold on a worker, whose function may start runs below its own."""

    def __init__(
        self,
        opening: Opening,
        sink: Sink,
        children: ChildPort | None,
        *,
        pos: int = 0,
        sample_s: float = SAMPLE_S,
    ) -> None:
        self._worker = WorkerCodec(opening.session)
        self._children = children
        super().__init__(opening, sink, self._worker, pos=pos, sample_s=sample_s)

    def _beside(self) -> None:
        for asked in self._worker.about_children():
            run, what, children = asked.run, asked.what, self._children
            if isinstance(what, StopChild):
                if children is not None:
                    children.stop(run, what.child)
                continue
            if children is None:
                self._tell_child(run, ChildTold(ref=what.ref, refused=NOT_GIVEN))
                continue
            wanted = ChildWanted(
                run=run, ref=what.ref, text=what.text, session=what.session, agent=what.agent,
                cwd=what.cwd, limits=what.limits, when_busy=what.when_busy,
            )  # fmt: skip
            children.start(wanted, functools.partial(self._tell_child, run))

    def _tell_child(self, run: str, told: ChildTold) -> None:
        if self._sink is not None:
            line = ChildLine(run=run, **msgspec.structs.asdict(told))
            self._send([self._worker.child(line)])


class PythonAgent(ProcessAgent):
    """A driver for one function. The target is `MODULE:FUNCTION`, `FILE.py:FUNCTION`, or the
    function itself."""

    def __init__(
        self,
        custodian: Custodian,
        target: Target,
        options: PythonOptions | None = None,
        *,
        sample_s: float = SAMPLE_S,
        children: ChildPort | None = None,
    ) -> None:
        super().__init__(custodian, sample_s=sample_s)
        self._children = children
        self._options = options or PythonOptions()
        self._place = locate(target, self._options)

    @property
    def abilities(self) -> Abilities:
        """A function that does not look at what is steered in is not given it."""
        given = self._options.steer
        steer = self._place.steer if given is None else given
        return Abilities(steer=steer, interrupt=True, approvals=True, thinking=True)

    def command(self, opening: Opening) -> Command:
        options, place = self._options, self._place
        paths = [word for path in place.paths for word in ("--path", path)]
        # -P: nothing in the session's folder may stand in for a module.
        argv = (options.python, "-P", "-m", "turnkeeper.worker", place.name, *paths)
        beat = ("--heartbeat-s", str(options.heartbeat_s))
        return Command(argv=(*argv, *beat), env=options.env)

    def codec(self, opening: Opening) -> WorkerCodec:
        return WorkerCodec(opening.session)

    def link(self, opening: Opening, sink: Sink, pos: int = 0) -> ProcessLink:
        return WorkerLink(opening, sink, self._children, pos=pos, sample_s=self._sample_s)

    def open(self, opening: Opening, sink: Sink) -> ProcessLink:
        cwd = opening.cwd or os.path.expanduser(self._options.cwd)
        return super().open(msgspec.structs.replace(opening, cwd=cwd), sink)


def locate(target: Target, options: PythonOptions) -> Place:
    """Where the target is, or `InvalidValue` saying what to do."""
    base = os.path.abspath(os.path.expanduser(options.cwd or "."))
    if isinstance(target, str):
        check_words("target", target)
    given = tuple(os.path.join(base, os.path.expanduser(path)) for path in options.paths)
    if not isinstance(target, str):
        return _locate_function(target, given)
    try:
        where, function = split(target)
    except CannotLoad as fault:
        raise InvalidValue("target", target, str(fault)) from None
    if is_file(where):
        where = os.path.join(base, os.path.expanduser(where))
    return Place(f"{where}:{function}" if function else where, given or (base,))


def _locate_function(function: Callable[..., Any], given: tuple[str, ...]) -> Place:
    name = getattr(function, "__qualname__", "")
    shown = name or repr(function)
    if isinstance(function, functools.partial) or not name or inspect.ismethod(function):
        raise InvalidValue("target", shown, "write a plain function that calls it, and give that")
    if "<" in name:
        kind = "a lambda" if name.endswith("<lambda>") else "defined inside another function"
        told = (
            f"it is {kind}, which the worker process cannot find by name;"
            " define it with `def` at the top of a module"
        )
        raise InvalidValue("target", shown, told)
    try:
        check(function)
    except TypeError as fault:
        raise InvalidValue("target", shown, str(fault)) from None
    module = sys.modules.get(function.__module__)
    if _named_in(module, name) is not function:
        told = f"{function.__module__} has something else by that name; give the function it has"
        raise InvalidValue("target", shown, told)
    mark = mark_of(function)
    return Place(*_module_place(module, shown, name, given), mark is not None and mark.steer)


def _module_place(
    module: Any, shown: str, name: str, given: tuple[str, ...]
) -> tuple[str, tuple[str, ...]]:
    """How another process imports this module, and from where."""
    spec = getattr(module, "__spec__", None)
    imported = spec.name if spec is not None else module.__name__
    file = getattr(module, "__file__", None)
    if imported == "__main__":
        if file is None or not is_file(file):
            told = "it was defined at a prompt; put it into a file, and import it from there"
            raise InvalidValue("target", shown, told)
        return f"{os.path.abspath(file)}:{name}", given
    if given or file is None:
        return f"{imported}:{name}", given
    path = Path(file).absolute()
    above = imported.count(".") + (path.name == "__init__.py")
    root = path.parents[above]
    return f"{imported}:{name}", () if _is_installed(root) else (str(root),)


def _named_in(module: Any, name: str) -> object:
    found = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _is_installed(root: PurePath) -> bool:
    """The interpreter finds it by itself, in its own environment."""
    return bool({"site-packages", "dist-packages"} & set(root.parts))
