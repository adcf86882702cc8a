"""Write the tiny random-weight models and print their digests, one line each, as `sha256sum -c` reads them.

Usage: tiny_models.py [--out DIR] [ARCH-QUANT ...]; without names all of them, by default into the model cache. The
bytes depend on the names alone, so running it twice changes nothing.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from audit.errors import UsageError
from audit.local.models import cache_root
from audit.tiny import TINY_NAMES, parse_tiny_name, write_tiny


def main(words: Sequence[str]) -> int:
    """Write the models that the command line names; 0, or 2 when it names one that does not exist."""
    parser = argparse.ArgumentParser(description="Write the tiny random-weight models.")
    parser.add_argument("--out", type=Path, default=cache_root() / "models", help="folder, default: the model cache")
    parser.add_argument("names", nargs="*", metavar="ARCH-QUANT", help=f"one of {', '.join(TINY_NAMES)}; default: all")
    chosen = parser.parse_args(words)
    names = ["tiny-" + str(name).removeprefix("tiny-") for name in chosen.names] or list(TINY_NAMES)
    try:
        for name in names:
            parse_tiny_name(name)
        for name in names:
            print(f"{write_tiny(name, chosen.out / f'{name}.gguf')}  {name}.gguf")
    except UsageError as error:
        print(f"error: {error.message}\n  {error.hint}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
