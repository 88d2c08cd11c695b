"""How long commands take to start, each beside a bare interpreter in the same round."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from cokl.support.errors import InputError

COMMANDS = (("--help",), ("bandit", "sweep", "--help"), ("theory", "optimum", "--help"), ("llm", "run", "--help"))


@dataclass(frozen=True)
class Startup:
    """Seconds above a bare interpreter of `cokl --help` and the like, and ratios to another checkout's, interleaved."""

    rounds: int = 15
    """Each starts every command once, one after the other."""
    against: Path | None = None
    """The interpreter of another environment, say .venv/bin/python of an older checkout."""

    def run(self) -> int:
        if self.rounds < 2:
            raise InputError(f"rounds: expected at least 2, got {self.rounds}")
        if self.against is not None and not self.against.exists():
            raise InputError(f"against: no interpreter {self.against}")
        ours, theirs = sys.executable, self.against and str(self.against)
        starts: dict[tuple[str, tuple[str, ...]], list[str]] = {("bare", ()): [ours, "-c", "pass"]}
        for interpreter in [ours, *([theirs] if theirs else [])]:
            for command in COMMANDS:
                starts[interpreter, command] = [interpreter, str(Path(interpreter).parent / "cokl"), *command]
        seconds: dict[tuple[str, tuple[str, ...]], list[float]] = {key: [] for key in starts}
        for _ in tqdm(range(self.rounds), unit="round"):
            for key, start in starts.items():
                began = time.perf_counter()
                subprocess.run(start, check=True, stdout=subprocess.DEVNULL)
                seconds[key].append(time.perf_counter() - began)
        bare = seconds["bare", ()]
        print(f"bare interpreter: {statistics.median(bare):.3f} s (medians; {self.rounds} rounds)")
        for command in COMMANDS:
            above = [took - least for took, least in zip(seconds[ours, command], bare, strict=True)]
            line = f"cokl {' '.join(command)}: {statistics.median(above):.3f} s above it"
            if theirs:
                pairs = zip(seconds[ours, command], seconds[theirs, command], strict=True)
                low, middle, high = statistics.quantiles([mine / other for mine, other in pairs], n=4)
                line += f"; ratio to the other {middle:.2f} (quartiles {low:.2f} to {high:.2f})"
            print(line)
        return 0
