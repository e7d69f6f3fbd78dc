#!/bin/sh
# Make .venv from requirements.lock, every hash checked, and put the `headrace` command into it.
#
# pip, not a faster installer, because pip honours what the user has set up for it: index, mirror, proxy,
# certificates, wheels on disk. Run by make, from the root of the repository.
set -eu

fail() {
    printf 'error: %s\nhint: %s\n' "$1" "$2" >&2
    exit 1
}

here=$(pwd -P)
began=$(date +%s)

# Wheels of everything, Redis included, exist for Python 3.10 to 3.12. Where python3 is another one, a
# python3.12, 3.11 or 3.10 beside it is taken; a newer one will do when there is none.
suits() {
    "$1" -c 'import ensurepip, sys, venv; sys.exit(not (3, 10) <= sys.version_info < (3, 13))' 2>/dev/null
}
python=${PYTHON:-}
for candidate in python3 python3.12 python3.11 python3.10; do
    if [ -z "$python" ] && suits "$candidate"; then
        python=$candidate
    fi
done
python=${python:-python3}

command -v "$python" >/dev/null 2>&1 ||
    fail "There is no command “$python”." "Install Python 3.10 or newer, or name yours: make PYTHON=/path/to/python3 …"
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])') ||
    fail "“$python” does not start." "Name a working Python 3.10 or newer: make PYTHON=/path/to/python3 …"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    fail "“$python” is Python $version; 3.10 or newer is needed." "Name a newer one: make PYTHON=python3.12 …"

# An environment that was copied, moved or whose interpreter went away is replaced, not repaired.
if ! .venv/bin/python -c "import pip, sys; sys.exit(sys.prefix != '$here/.venv')" 2>/dev/null ||
    ! head -n 3 .venv/bin/pip 2>/dev/null | grep -qF "$here/.venv/bin/python"; then
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "Python $version ($(command -v "$python")) cannot make virtual environments: ensurepip is missing." \
            "Install it (Debian, Ubuntu: apt install python$version-venv) or name another Python: make PYTHON=… …"
    echo "Making .venv with Python $version"
    "$python" -m venv --clear .venv ||
        fail "The environment .venv could not be made." "See above; is the disk full, or the folder not yours?"
fi

pip() {
    .venv/bin/python -m pip "$@"
}

# PySpark comes as a 450 MB source archive whose jars do not compress: packing the wheel that pip makes of it
# without compression saves 20 s, and compiling modules on first import instead of all at once saves 10 s,
# except where nothing may be written on import: there every start would compile everything again.
# It is built with the setuptools of the lock, so that what builds is checked as well.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
printf '[bdist_wheel]\ncompression = stored\n' >"$scratch/fast.cfg"
awk 'inside && /^[^ ]/ {exit} /^setuptools==/ {inside = 1} inside' requirements.lock >"$scratch/setuptools.lock"
export PIP_DISABLE_PIP_VERSION_CHECK=1 DIST_EXTRA_CONFIG="$scratch/fast.cfg"

when=--no-compile
[ -z "${PYTHONDONTWRITEBYTECODE:-}" ] || when=--compile

echo "Installing $(grep -c '==' requirements.lock) pinned packages (once; a minute or two with a cold cache)"
pip install --quiet $when --require-hashes --requirement "$scratch/setuptools.lock" &&
    pip install --quiet $when --require-hashes --no-build-isolation --use-pep517 --requirement requirements.lock ||
    fail "The pinned packages could not be installed." \
        "See above. Without a network, name a mirror or a folder of wheels (pip config, PIP_INDEX_URL, PIP_FIND_LINKS)."
pip install --quiet --no-deps --no-build-isolation --editable . ||
    fail "The project could not be installed into its environment." "See above."

printf '%s' "$here" >.venv/.ready
echo "Ready in $(($(date +%s) - began)) s: .venv/bin/headrace"
