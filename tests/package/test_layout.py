"""What a reader meets at the top of a package fits into one look."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("cokl", "bandit", "theory", "llm_bridge", "figures", "cokl_cli", "benchmarks")
MOST = 12


@pytest.mark.parametrize(
    "package",
    [str(file.parent.relative_to(ROOT)) for top in PACKAGES for file in sorted((ROOT / top).rglob("__init__.py"))],
)
def test_a_package_has_at_most_twelve_modules_and_packages(package):
    folder = ROOT / package
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    assert len(modules | packages) <= MOST, sorted(modules | packages)
