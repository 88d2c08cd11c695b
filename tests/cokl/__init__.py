"""Tests of the `cokl` package."""
