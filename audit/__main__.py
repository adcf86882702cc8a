"""`python -m audit` is the same program as `determinism`."""

from audit.cli import main

if __name__ == "__main__":
    main()
