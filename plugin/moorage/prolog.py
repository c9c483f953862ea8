"""The Prolog, by the name that hooks of every release start."""

from moorage.root.prolog import main

if __name__ == "__main__":
    main()
