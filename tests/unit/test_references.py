"""Secrets of sinks: taken out of addresses, kept in private files, named and never held by settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.config.references import read_reference, resolved, taken_apart
from headrace.control.context import Context
from headrace.control.sink_settings import checked_settings, forget, seal, shown_secrets
from headrace.model.errors import UsageError
from sinks.registry import secret_names

CANARY = "c4nary"


def sealed(context: Context, kind: str, **settings: object) -> dict[str, object]:
    found = seal(context, "one", kind, checked_settings(kind, "shop", settings))
    assert CANARY not in str(found)
    return found


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("http://h:1/x", ("http://h:1/x", None, None)),
        (f"redis://:{CANARY}@h:1/0", ("redis://h:1/0", "", CANARY)),
        (f"http://me:p%40{CANARY}@h", ("http://h", "me", f"p@{CANARY}")),
        (f"http://me:p@{CANARY}@h", ("http://h", "me", f"p@{CANARY}")),
        (f"http://me:{CANARY}@a:1,http://b:2", ("http://a:1,http://b:2", "me", CANARY)),
        (f"redis://h/0?password={CANARY}&ssl_ca_certs=x", ("redis://h/0?ssl_ca_certs=x", None, CANARY)),
    ],
)
def test_an_address_is_taken_apart(url: str, parts: tuple[str, str | None, str | None]) -> None:
    plain, user, password = taken_apart(url)
    assert (plain, user or None, password) == (parts[0], parts[1] or None, parts[2])


@pytest.mark.parametrize("kind", ["elasticsearch", "redis"])
def test_a_literal_secret_is_sealed_wherever_it_stands(context: Context, kind: str) -> None:
    for given in ({"url": f"http://me:{CANARY}@h:1"}, {"url": "http://h:1", "password": CANARY}):
        settings = sealed(context, kind, **given)
        assert resolved(settings, secret_names(kind))["password"] == CANARY
        assert (context.sink_secrets / "one.password").stat().st_mode & 0o777 == 0o600
        assert shown_secrets(kind, given)[0].code == "SECRET_ON_COMMAND_LINE"
    forget(context, "one")
    assert not list(context.sink_secrets.iterdir())


def test_a_reference_is_kept_or_read_at_once(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("W", CANARY)
    file = tmp_path / "es.secret"
    file.write_text(f"{CANARY}\n")
    settings: dict[str, object] = {}
    for reference in ("env:W", f"file:{file}"):
        settings = sealed(context, "elasticsearch", url="http://h", username="me", password=reference)
        assert resolved(settings, secret_names("elasticsearch"))["password"] == CANARY
        assert not shown_secrets("elasticsearch", {"password": reference})
    assert settings["password"] == f"file:{file}"
    file.write_text("k=other\npassword=1234\n")
    assert read_reference(f"file:{file}:password") == "1234"


@pytest.mark.parametrize("reference", ["env:NOT_THERE", "file:/nowhere/at/all", "file:/nowhere:key"])
def test_a_secret_that_is_missing_is_told_by_name(context: Context, reference: str) -> None:
    with pytest.raises(UsageError) as caught:
        sealed(context, "redis", url="redis://h", password=reference)
    assert caught.value.code == "SECRET_MISSING"
