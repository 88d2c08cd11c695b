"""What the Dockerfile, the workflows and the README name exists: a job cannot find that out here."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)) | {".venv/.complete"}
WORKFLOWS = {path.name: path.read_text() for path in (ROOT / ".github/workflows").glob("*.yml")}


def made(text: str) -> set[str]:
    """The targets that a text calls make for."""
    calls = re.findall(r"(?<![\w-])make((?: [a-z.][\w./-]*)+)", text.replace('", "', " ").replace('"', ""))
    return {target for call in calls for target in call.split()}


def test_the_container_runs_the_readmes_two_commands():
    dockerfile = (ROOT / "Dockerfile").read_text()
    instructions = [line for line in dockerfile.splitlines() if line.startswith(("RUN make", "CMD"))]
    assert made("\n".join(instructions)) == {".venv/.complete", "reproduce"}
    assert made(dockerfile.replace("git make", "")) <= TARGETS
    assert {"make reproduce", "make test"} <= set(
        re.findall(r"make (?:reproduce|test)", (ROOT / "README.md").read_text())
    )
    base = re.search(r"^FROM python:(\d+)\.(\d+)", dockerfile, re.MULTILINE)
    assert base
    assert (3, 11) <= tuple(map(int, base.groups())) < (3, 14)
    assert ".git\n" not in (ROOT / ".dockerignore").read_text()  # the tests ask it for the project's files


def test_the_workflows_call_targets_that_exist():
    assert set(WORKFLOWS) == {"ci.yml", "nightly.yml", "release.yml"}
    for name, text in WORKFLOWS.items():
        jobs = yaml.safe_load(text)["jobs"]
        called = set()
        for job in jobs.values():
            matrix = job.get("strategy", {}).get("matrix", {})
            targets = [*matrix.get("target", []), *(one["target"] for one in matrix.get("include", []))]
            called |= set(targets) | made("\n".join(step.get("run", "") for step in job["steps"]))
        assert called, name
        assert called <= TARGETS, name


def test_a_release_is_the_version_of_its_tag():
    release = yaml.safe_load(WORKFLOWS["release.yml"])
    assert release[True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 reads `on` as a truth value
    check = next(step["run"] for step in release["jobs"]["build"]["steps"] if "GITHUB_REF_NAME" in step.get("run", ""))
    assert "pyproject.toml" in check
    assert release["jobs"]["publish"]["needs"] == "build"
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
