"""`python -m moorage` is the command `moorage`."""

from moorage.cli import main

main()
