"""`python -m cokl_cli` is the command line."""

from cokl_cli.app import main

main()
