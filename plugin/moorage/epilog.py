"""The Epilog, by the name that hooks of every release start."""

from moorage.root.epilog import main

if __name__ == "__main__":
    main()
