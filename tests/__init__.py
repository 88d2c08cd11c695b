"""Tests, one folder per package; `oracles` holds naive references that use none of the tested code."""
