"""The emptying of the trash, by the name that units of every release start."""

from moorage.root.cleanup.trash import main

if __name__ == "__main__":
    main()
