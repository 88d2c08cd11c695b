#!/usr/bin/env bash
# Write requirements.lock anew, and the hashes of requirements-llm.lock. Takes the path of uv.
set -euo pipefail
uv=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
options=(--universal --python-version 3.11 --no-header --no-annotate --quiet)

hashed() {  # LOCK: its comments, then the versions of stdin with their hashes
    cat > "$folder/versions.txt"
    grep '^#' "$1" > "$folder/lock"
    "$uv" pip compile "$folder/versions.txt" --no-deps --generate-hashes "${options[@]}" >> "$folder/lock"
    mv "$folder/lock" "$1"
}

# torch and what only its CUDA build needs are installed before, see the comment in the file.
"$uv" pip compile pyproject.toml --extra theory --extra report --extra math --extra cluster --extra questions --extra dev "${options[@]}" \
    | grep -vE '^(torch|triton|setuptools|cuda-[a-z]*|nvidia-[a-z0-9-]*)==' | hashed requirements.lock
grep -oE '^[A-Za-z0-9_.-]+==[^ ]+' requirements-llm.lock | hashed requirements-llm.lock
