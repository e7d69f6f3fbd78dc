"""The rules of the house that no other tool checks."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from sinks.registry import KINDS

ROOT = Path(__file__).parents[2]
PACKAGES = ("headrace", "connectors", "sinks", "spark_jobs")
LEFT_OUT = {"build", "dist", "__pycache__", "spark-warehouse", "metastore_db"}
MAX_LINES = 400


@cache
def files() -> list[Path]:
    """Return every file of the project, whether or not git knows it already."""
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [
            name
            for name in folders
            if name == ".ci" or not (name in LEFT_OUT or name.startswith(".") or name.endswith(".egg-info"))
        ]
        found += [
            Path(folder, name) for name in names if not name.endswith((".pyc", ".log")) and name != ".git"
        ]
    return sorted(found)


@cache
def texts() -> dict[Path, str]:
    found = {}
    for path in files():
        data = path.read_bytes()
        if b"\0" not in data:
            found[path.relative_to(ROOT)] = data.decode("utf-8")
    return found


def sources(*packages: str) -> Iterator[tuple[Path, str]]:
    for path, text in texts().items():
        if path.suffix == ".py" and path.parts[0] in packages:
            yield path, text


@cache
def pyproject() -> dict[str, Any]:
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    document: dict[str, Any] = toml.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return document


def where(pattern: str, *, among: Iterator[tuple[Path, str]] | None = None) -> list[str]:
    """Return ``path:line`` of every match."""
    expression = re.compile(pattern, re.MULTILINE)
    hits = []
    for path, text in among if among is not None else iter(texts().items()):
        hits += [f"{path}:{text.count(chr(10), 0, hit.start()) + 1}" for hit in expression.finditer(text)]
    return hits


def test_no_file_is_two_rooms() -> None:
    long = {str(path): text.count("\n") for path, text in sources(*PACKAGES, "tests")}
    assert not {path: lines for path, lines in long.items() if lines > MAX_LINES}


def test_the_rooms_are_there() -> None:
    for package in (
        *PACKAGES,
        *(f"headrace/{room}" for room in ("model", "config", "observe", "control", "local", "cli")),
    ):
        assert (ROOT / package / "__init__.py").is_file(), package
    for folder in (
        "deploy",
        "docs/adr",
        "tests/unit",
        "tests/contract",
        "tests/e2e",
        "tests/faults",
        "tests/bench",
    ):
        assert (ROOT / folder).is_dir(), folder


def test_no_room_has_a_name_that_says_nothing() -> None:
    vague = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "managers"}
    assert not [str(path) for path, _ in sources(*PACKAGES, "tests") if vague & {*path.parts[:-1], path.stem}]


def test_every_module_says_why_it_exists() -> None:
    for path, text in sources(*PACKAGES):
        assert ast.get_docstring(ast.parse(text)), path


@pytest.mark.parametrize("package", PACKAGES)
def test_exports_are_named_and_there(package: str) -> None:
    for path, text in sources(package):
        tree = ast.parse(text)
        exported = _exported(tree)
        if exported is None:
            # A script has nothing to export.
            script = path.stem == "__main__" or '__name__ == "__main__"' in text
            assert script or not _defined(tree.body), f"{path} has no __all__"
            continue
        missing = set(exported) - _defined(ast.walk(tree)) - _imported(tree)
        assert not missing, f"{path}: __all__ names {missing}"


def _defined(nodes: Iterable[ast.AST]) -> set[str]:
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def _imported(tree: ast.Module) -> set[str]:
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    return {alias.asname or alias.name for node in imports for alias in node.names}


def _exported(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets
        ):
            exported: list[str] = ast.literal_eval(node.value)
            return exported
    return None


def test_the_model_uses_the_standard_library_and_structs_only() -> None:
    for path, text in sources("headrace"):
        if path.parts[1] != "model":
            continue
        for node in ast.walk(ast.parse(text)):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for module in modules:
                known = module.partition(".")[0] in {"msgspec", *sys.stdlib_module_names}
                assert known or module.startswith("headrace.model"), f"{path} imports {module}"


def test_no_package_registry_is_named() -> None:
    # The user's own index, mirror and proxy are honoured; a host written down here would pass them by.
    hosts = (
        r"pypi[.]org|pythonhosted[.]|maven[.](?:org|apache[.]org)|repo1[.]|sonatype[.]|npmjs[.]"
        r"|debian[.]org|proxy[.]golang|crates[.]io"
    )
    assert not where(hosts)


def test_no_path_of_one_machine_stands_in() -> None:
    assert not where(r"(?<![\w.$~{}/-])/(?:work|farm|root|home)/\w")


def test_nothing_is_left_for_later() -> None:
    assert not where(r"\b(?:TO[D]O|FIX[M]E|XX[X]|raise NotImplemente[d]Error)\b")


def test_tests_neither_pretend_nor_look_away() -> None:
    pretend = r"Magic[M]ock|unittest[.]mock|fake[r]edis|pytest[.]skip[(]|mark[.](?:skip|xfail)|import[o]rskip"
    assert not where(pretend, among=sources("tests"))


def test_every_database_has_the_letters_of_our_statements() -> None:
    # In LATIN1, and most others, a server refuses a statement with a dash or a quotation mark of its own.
    beyond = [
        f"{path}:{node.lineno}"
        for path, text in sources("connectors")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.search(r"\bSELECT\b", node.value) and not node.value.isascii()
    ]
    assert not beyond


_WAITS = ("communicate", "join", "result", "wait")


def test_every_wait_has_one_home() -> None:
    """What sleeps or waits for a fixed time is too short on one machine and too long on another."""
    homes = ("tests/support/waiting.py", "tests/bench", "tests/storm", "tests/golden")
    sleeping = [
        f"{path}:{node.lineno}"
        for path, text in sources("tests")
        if not str(path).startswith(homes)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and (ast.unparse(node.func) == "time.sleep" or is_short(node))
    ]
    assert not sleeping


def is_short(call: ast.Call) -> bool:
    """Return whether a call waits for an end, a second or more, for so many seconds and no longer."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _WAITS:
        return False
    limits = [*call.args[:1], *(word.value for word in call.keywords if word.arg == "timeout")]
    return any(
        isinstance(limit, ast.Constant) and isinstance(limit.value, (int, float)) and 1 <= limit.value < 150
        for limit in limits
    )


def test_every_kind_of_sink_has_its_file_and_its_contract() -> None:
    for kind, target in KINDS.items():
        module = target.partition(":")[0].replace(".", "/")
        assert (ROOT / f"{module}.py").is_file() or (ROOT / module / "__init__.py").is_file(), kind
        assert (ROOT / f"tests/contract/test_{kind}.py").is_file(), kind


def test_every_pinned_package_has_hashes_and_no_place() -> None:
    lock = texts()[Path("requirements.lock")]
    assert "://" not in lock
    packages = re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE)[1:]
    assert len(packages) > 80
    assert not [
        package.split()[0] for package in packages if "--hash=sha256:" not in package or "==" not in package
    ]


def test_every_dependency_is_pinned() -> None:
    lock = set(
        re.findall(r"^([a-z0-9._-]+)(?:\[[a-z,]+\])?==", texts()[Path("requirements.lock")], re.MULTILINE)
    )
    wanted = [*pyproject()["project"]["dependencies"], *pyproject()["dependency-groups"]["dev"]]
    names = {re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower().replace("_", "-") for requirement in wanted}
    assert not names - lock, "run `make lock`"


def test_the_version_is_the_changelogs_newest() -> None:
    versions = re.findall(r"^## \[(\d[^\]]*)\]", texts()[Path("CHANGELOG.md")], re.MULTILINE)
    assert versions[0] == pyproject()["project"]["version"]


def test_the_licence_is_the_one_declared() -> None:
    assert pyproject()["project"]["license"] == "Apache-2.0"
    assert "Apache License\n                           Version 2.0, January 2004" in texts()[Path("LICENSE")]


def test_make_help_lists_what_is_promised() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):.*## \S", texts()[Path("Makefile")], re.MULTILINE))
    promised = {
        "demo",
        "test",
        "unit",
        "lint",
        "fmt",
        "types",
        "bench",
        "bench-full",
        "profile-sink",
        "up",
        "down",
        "clean",
        "docs",
        "lock",
    }
    assert promised <= targets
