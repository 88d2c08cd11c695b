"""Speed and memory, always measured beside a baseline in the same run: `python -m benchmarks --help`."""
