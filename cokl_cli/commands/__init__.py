"""A module for each group of commands; each command is a dataclass."""
