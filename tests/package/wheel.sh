#!/usr/bin/env bash
# The wheel works outside the checkout: built, installed into an empty environment, used from an empty folder.
set -euo pipefail
checkout=$PWD
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

.venv/bin/python -m build --outdir "$folder/dist" .
"${PYTHON:-python3}" -m venv "$folder/environment"
export PATH="$folder/environment/bin:$PATH" PIP_DISABLE_PIP_VERSION_CHECK=1
unset PYTHONPATH
pip install --quiet torch==2.13.0
pip install --quiet "$(echo "$folder"/dist/*.whl)[theory,report]"
pip check

mkdir "$folder/empty"
cd "$folder/empty"
cokl bandit sweep --preset quick
cokl theory check
cokl report

for made in runs/quick/sweep.parquet runs/quick/figures/figure2_tradeoff.png runs/quick/results.md runs/theory/claims.md; do
    test -s "$made" || { echo "wheel: $made was not made"; exit 1; }
done
python - "$checkout" <<'PYTHON'
import sys, bandit, cokl, cokl_cli, figures, llm_bridge, theory

for package in (bandit, cokl, cokl_cli, figures, llm_bridge, theory):
    assert not package.__file__.startswith(sys.argv[1]), package.__file__
PYTHON
echo "wheel: all commands work from $(basename "$(echo "$folder"/dist/*.whl)") in an empty folder"
