"""`python -m kilocard`."""

from kilocard.cli.main import main

main()
