"""Every code whose hint can be pasted stands on the page of remedies, with a test that carries it out."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

from tests.unit.test_hints import NO_COMMAND, PACKAGES, ROOT, _text

PAGE = ROOT / "docs" / "remedies.md"
PASTED = re.compile(
    rf"\bheadrace (?!{'|'.join(NO_COMMAND)})[a-z]"
    r"|\b(?:ALTER|CREATE|DROP|GRANT|REVOKE|SELECT|UPDATE|DELETE FROM|CONFIG SET|ACL SETUSER|ROLLBACK|COMMIT)"
    r" [A-Z\"{a-z]"
)
MAKERS = {"read_anew", "recover", "another_key", "resume", "rotate"}
"""Functions that make a command."""
FINDINGS = {"error", "warning"}


def _hint(call: ast.Call) -> tuple[str, ast.expr] | None:
    """Return the code and the hint that a call makes an error or a finding of."""
    named = {word.arg: word.value for word in call.keywords}
    if "code" in named and "hint" in named:
        return (code, named["hint"]) if (code := _text(named["code"])) else None
    if isinstance(call.func, ast.Attribute) and call.func.attr in FINDINGS and len(call.args) > 2:
        return (code, call.args[2]) if (code := _text(call.args[0])) else None
    return None


def _words(hint: ast.expr, scope: ast.AST) -> Iterator[str]:
    """Yield what a hint may say; a name says what it was given last in the same function."""
    for node in ast.walk(hint):
        if text := _text(node):
            yield text
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MAKERS:
            yield "headrace command"
        elif isinstance(node, ast.Name):
            given = [
                other
                for other in ast.walk(scope)
                if isinstance(other, ast.Assign)
                and other.lineno < node.lineno
                and any(isinstance(target, ast.Name) and target.id == node.id for target in other.targets)
            ]
            for last in sorted(given, key=lambda other: other.lineno)[-1:]:
                yield from filter(None, map(_text, ast.walk(last.value)))


def pasted() -> dict[str, set[str]]:
    """Return code → where it is made with a hint that is a command or a statement."""
    found: dict[str, set[str]] = defaultdict(set)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            scopes = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
            for scope in scopes:
                for call in ast.walk(scope):
                    made = _hint(call) if isinstance(call, ast.Call) else None
                    if (
                        made
                        and re.fullmatch(r"[A-Z][A-Z0-9_]+", made[0])
                        and any(map(PASTED.search, _words(made[1], scope)))
                    ):
                        found[made[0]].add(f"{path.relative_to(ROOT)}:{getattr(call, 'lineno', 0)}")
    return found


def test_no_remedy_is_missing_from_the_page() -> None:
    told = set(re.findall(r"`([A-Z][A-Z0-9_]+)`", PAGE.read_text(encoding="utf-8")))
    missing = {code: sorted(where) for code, where in sorted(pasted().items()) if code not in told}
    assert not missing
