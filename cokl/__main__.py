"""`python -m cokl` is the command line."""

from cokl.cli import main

main()
