"""Artefacts at hand: what the lock file lists, downloaded once, verified, as paths in the cache."""

from __future__ import annotations

import queue
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from headrace.local.cache import Cache, cache_root
from headrace.local.ivy import Ivy
from headrace.local.lockfile import ANY_PLATFORM, Artefact, load, this_platform
from headrace.local.mirrors import Mirror, find_mirror
from headrace.model.errors import EnvironmentError_, HeadraceError

__all__ = ["Files", "OnProgress", "locked", "missing", "resolve"]

Files = dict[str, list[Path]]
"""Paths by group."""

OnProgress = Callable[[str, int], None]
"""Called with an artefact's file name and the number of its bytes that have newly arrived."""

_PARALLEL = 3
"""Ivy asks for one file after another; three of them fill a line that one leaves waiting."""

_POLL_SECONDS = 0.25


def locked(groups: Iterable[str]) -> list[Artefact]:
    """Return the lock file's artefacts of these groups for this platform.

    Raises:
        ValueError: A group does not exist.
    """
    wanted = set(groups)
    every = load()
    unknown = wanted - {item.group for item in every}
    if unknown:
        raise ValueError(f"no such group of artefacts: {', '.join(sorted(unknown))}")
    platforms = {ANY_PLATFORM, this_platform()}
    return [item for item in every if item.group in wanted and item.platform in platforms]


def missing(groups: Iterable[str], *, verify: bool = False) -> list[Artefact]:
    """Return what of these groups is not, or not intact, in the cache; ``verify`` hashes every file."""
    cache = Cache(cache_root())
    return [item for item in locked(groups) if not cache.has(item, full=verify)]


def resolve(groups: Iterable[str], on_progress: OnProgress | None = None, *, verify: bool = False) -> Files:
    """Return the files of each group, downloading what is missing or damaged.

    Works without a network once the cache holds everything. Several processes may call it at once.

    Args:
        groups: Names of groups in the lock file: ``postgres``, ``kafka``, ``connect``, ``debezium``,
            ``elasticsearch``, ``spark``.
        on_progress: Told of every piece of a download; called from one thread at a time.
        verify: Hash every file, even if its size and time are those of the last check.

    Raises:
        EnvironmentError_: ``ARTEFACT_UNAVAILABLE`` with the artefact's name and the remedy;
            ``CACHE_UNWRITABLE``; ``STACK_DISK_FULL``.
    """
    wanted = locked(groups)
    cache = Cache(cache_root())
    if any(not cache.has(item, full=verify) for item in wanted):
        with cache.locked():
            lacking = [item for item in wanted if not cache.has(item)]
            if lacking:
                _download(cache, lacking, on_progress)
    files: Files = {}
    for item in wanted:
        files.setdefault(item.group, []).append(cache.path(item))
    return files


def _download(cache: Cache, lacking: Sequence[Artefact], on_progress: OnProgress | None) -> None:
    _check_space(cache.root, sum(item.size for item in lacking))
    mirror = find_mirror()
    incoming = cache.root / "incoming"
    incoming.mkdir(parents=True, exist_ok=True)
    # The lock is ours, so whatever lies here was left by a process that was killed.
    for left in incoming.iterdir():
        shutil.rmtree(left, ignore_errors=True)
    progress: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
    shares = _shares(lacking)
    ivy = Ivy(incoming, mirror)
    with ThreadPoolExecutor(len(shares)) as pool:
        jobs = [pool.submit(_fetch_share, cache, share, ivy, progress.put) for share in shares]
        while not all(job.done() for job in jobs) or not progress.empty():
            try:
                event = progress.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
            if on_progress is not None:
                on_progress(*event)
        failures = [(item, reason) for job in jobs for item, reason in job.result()]
    if failures:
        raise _unavailable(failures, mirror)


def _shares(lacking: Sequence[Artefact]) -> list[list[Artefact]]:
    """Split a list into at most ``_PARALLEL`` shares of about the same number of bytes."""
    # A request costs about as much time as this many bytes.
    overhead = 500_000
    shares: list[list[Artefact]] = [[] for _ in range(min(_PARALLEL, len(lacking)))]
    loads = [0] * len(shares)
    for item in sorted(lacking, key=lambda a: a.size, reverse=True):
        lightest = loads.index(min(loads))
        shares[lightest].append(item)
        loads[lightest] += item.size + overhead
    return shares


def _fetch_share(
    cache: Cache,
    share: Sequence[Artefact],
    ivy: Ivy,
    report: Callable[[tuple[str, int]], None],
) -> list[tuple[Artefact, str]]:
    """Download one share with an Ivy like ``ivy``; return what could not be had and why."""
    work = Path(tempfile.mkdtemp(dir=ivy.work))
    finished = threading.Event()
    watcher = threading.Thread(target=_watch, args=(work, share, finished, report), daemon=True)
    watcher.start()
    try:
        target = replace(ivy, work=work).retrieve([item.coordinate for item in share])
        finished.set()
        watcher.join()
        failures = []
        for item in share:
            fetched = target / item.coordinate.organisation / item.coordinate.filename
            if not fetched.is_file():
                failures.append((item, _reason(work)))
            elif not cache.admit(item, fetched):
                failures.append((item, "what was downloaded is not the file whose sha256 is in the lock"))
        return failures
    finally:
        finished.set()
        shutil.rmtree(work, ignore_errors=True)


def _watch(
    work: Path,
    share: Sequence[Artefact],
    finished: threading.Event,
    report: Callable[[tuple[str, int]], None],
) -> None:
    """Report the growth of a share's files while Ivy downloads them."""
    seen = {item.coordinate.filename: 0 for item in share}
    last = False
    while not last:
        last = finished.wait(_POLL_SECONDS)
        for path in (work / "cache").glob("*/*/*/*"):
            name = path.name.removesuffix(".part")
            if name not in seen:
                continue
            try:
                grown = path.stat().st_size - seen[name]
            except OSError:
                continue
            if grown > 0:
                seen[name] += grown
                report((name, grown))


def _reason(work: Path) -> str:
    """Say in a few words why an Ivy run brought nothing, from its log."""
    try:
        log = (work / "ivy.log").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "the download did not start"
    for pattern, reason in (
        (r"PKIX path|certificate", "the repository's certificate is not trusted"),
        (r"UnknownHost|unknown host", "the repository's name cannot be resolved"),
        (r"Connection refused|ConnectException", "the repository does not accept connections"),
        (r"timed out|SocketTimeout", "the repository does not answer"),
        (r"status (?:code )?40[13]|401 |403 |Forbidden|Unauthorized", "the repository asks for credentials"),
        (r"No space left", "the disk is full"),
    ):
        if re.search(pattern, log, re.IGNORECASE):
            return reason
    return "the repository does not have it"


def _unavailable(failures: Sequence[tuple[Artefact, str]], mirror: Mirror | None) -> HeadraceError:
    first, reason = failures[0]
    others = f" and {len(failures) - 1} more" if len(failures) > 1 else ""
    where = f" (repository set in {mirror.origin})" if mirror else ""
    return EnvironmentError_(
        f"Could not download {first.coordinate}{others}: {reason}{where}.",
        code="ARTEFACT_UNAVAILABLE",
        hint=(
            "The first start needs a Maven repository: connect to a network, set HEADRACE_MAVEN_MIRROR to "
            "the URL of your mirror, or copy a filled cache here and set HEADRACE_CACHE to it. "
            "Later starts work offline."
        ),
    )


def _check_space(root: Path, needed: int) -> None:
    # Twice: Ivy keeps its own copy until the file is verified; and room to unpack.
    free = shutil.disk_usage(root).free
    if free < 3 * needed:
        raise EnvironmentError_(
            f"{root} has {free >> 20} MiB free; downloading and unpacking needs {3 * needed >> 20} MiB.",
            code="STACK_DISK_FULL",
            hint="Free some space, or set HEADRACE_CACHE to a directory on another disk.",
        )
