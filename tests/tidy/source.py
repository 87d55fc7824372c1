"""Finds and parses the files that the tidy tests judge. It judges nothing itself."""

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
SRC = REPO / "src"
PACKAGE = "turnkeeper"

_NOT_OURS = {"__pycache__", "node_modules", "build", "dist"}


@dataclass(frozen=True)
class Module:
    """One Python file: `path` is shown to people, `name` is what an import would say."""

    path: str
    name: str
    is_package: bool
    text: str

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @property
    def layer(self) -> str:
        """The part directly under the package: `core`, `ports`, …; `__init__` for the top."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 else "__init__"


def snippet(name: str, text: str, *, is_package: bool = False) -> Module:
    """A module that exists only in a test."""
    return Module(path=f"{name}.py", name=name, is_package=is_package, text=text)


def source_modules() -> list[Module]:
    return [_read(path, SRC) for path in sorted((SRC / PACKAGE).rglob("*.py"))]


def modules_of_tests() -> list[Module]:
    return [_read(path, REPO) for path in sorted((REPO / "tests").rglob("*.py"))]


def _read(path: Path, root: Path) -> Module:
    parts = path.relative_to(root).with_suffix("").parts
    is_package = parts[-1] == "__init__"
    name = ".".join(parts[:-1] if is_package else parts)
    shown = path.relative_to(REPO).as_posix()
    return Module(shown, name, is_package, path.read_text(encoding="utf-8"))


def repository_files() -> list[Path]:
    """What git tracks or would track; without git, everything that is not hidden or built."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=REPO, capture_output=True, check=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return sorted(_walk(REPO))
    files = {REPO / name for name in listed.stdout.split("\0") if name}
    return sorted(path for path in files if path.is_file())


def _walk(directory: Path) -> Iterator[Path]:
    for path in directory.iterdir():
        if path.name.startswith(".venv") or path.name in _NOT_OURS or path.name == ".git":
            continue
        if path.is_dir():
            yield from _walk(path)
        elif path.is_file():
            yield path


@dataclass(frozen=True)
class Import:
    """One imported module, made absolute. `names` are what a `from` import took out of it."""

    line: int
    module: str
    names: tuple[str, ...]
    eager: bool
    """Done when the module is loaded: not in a function, and not only for type checkers."""


def imports_of(module: Module) -> list[Import]:
    """Every import in the module: relative, in functions, for type checkers, and by name."""
    return list(_imports(module, module.tree, eager=True))


def _imports(module: Module, node: ast.AST, *, eager: bool) -> Iterator[Import]:
    match node:
        case ast.Import(names=names, lineno=line):
            for alias in names:
                yield Import(line, alias.name, (), eager)
        case ast.ImportFrom(lineno=line):
            yield Import(line, _absolute(module, node), tuple(a.name for a in node.names), eager)
        case ast.Call(lineno=line) if name := _imported_by_name(module, node):
            yield Import(line, name, (), eager)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            eager = False
    if isinstance(node, ast.If) and _is_type_checking(node.test):
        for statement in node.body:
            yield from _imports(module, statement, eager=False)
        for statement in node.orelse:
            yield from _imports(module, statement, eager=eager)
        return
    for child in ast.iter_child_nodes(node):
        yield from _imports(module, child, eager=eager)


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    parts = module.name.split(".")
    keep = len(parts) - node.level + (1 if module.is_package else 0)
    return ".".join([*parts[:keep], *([node.module] if node.module else [])])


def _imported_by_name(module: Module, call: ast.Call) -> str | None:
    """The target of `import_module("x")` or `__import__("x")`, if it is written out."""
    if dotted(call.func).rpartition(".")[2] not in {"import_module", "__import__"}:
        return None
    if not call.args or not isinstance(call.args[0], ast.Constant):
        return None
    name = call.args[0].value
    if not isinstance(name, str):
        return None
    if name.startswith("."):
        relative = name.lstrip(".")
        as_from = ast.ImportFrom(module=relative or None, names=[], level=len(name) - len(relative))
        return _absolute(module, as_from)
    return name


def _is_type_checking(test: ast.expr) -> bool:
    return dotted(test).rpartition(".")[2] == "TYPE_CHECKING"


def dotted(node: ast.AST) -> str:
    """`a.b.c` for a name or an attribute of one; empty for anything else."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            before = dotted(value)
            return f"{before}.{attr}" if before else ""
        case _:
            return ""


def aliases(tree: ast.Module) -> dict[str, str]:
    """Local name -> what it stands for, from every import in the module."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                known.update({a.asname: a.name for a in names if a.asname})
            case ast.ImportFrom(module=str(origin), names=names, level=0):
                known.update({a.asname or a.name: f"{origin}.{a.name}" for a in names})
    return known


def full_name(node: ast.AST, known: dict[str, str]) -> str:
    """The dotted name with its first part replaced by what was imported under it."""
    first, dot, rest = dotted(node).partition(".")
    return f"{known.get(first, first)}{dot}{rest}"
