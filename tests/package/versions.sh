#!/usr/bin/env bash
# The tests with the oldest or the newest versions that pyproject.toml allows. Takes "oldest" or "newest".
set -euo pipefail
case $1 in
    oldest) resolution=lowest-direct ;;
    newest) resolution=highest ;;
    *) echo "versions: expected oldest or newest, got $1"; exit 2 ;;
esac
folder=$PWD/.venv-$1
python=${PYTHON:-python3}
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')

# What the tests themselves need is not under test and stays as it is locked.
.venv/bin/uv pip compile pyproject.toml --extra theory --extra report --extra math --extra cluster --resolution "$resolution" \
    --python-version "$version" --no-header --no-annotate --quiet > "$folder.txt"
"$python" -m venv --clear "$folder"
"$folder/bin/pip" install --quiet --disable-pip-version-check -r "$folder.txt"
"$folder/bin/pip" install --quiet --disable-pip-version-check hypothesis playwright pytest pytest-xdist
"$folder/bin/pip" install --quiet --disable-pip-version-check --no-deps --editable .
"$folder/bin/python" -m pytest -n 2 --dist worksteal tests/cokl tests/bandit tests/theory tests/figures tests/cokl_cli
"$folder/bin/python" -c 'import sys, torch; print("tested with Python", sys.version.split()[0], "and torch", torch.__version__)'
