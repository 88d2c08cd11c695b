"""`python -m cokl` is the command line."""

from cokl_cli.app import main

main()
