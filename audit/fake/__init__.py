"""Fake: a llama-server look-alike on a real socket, with seeded toy numbers and faults by switch.

In: `FakeSettings`. Out: an address that answers as llama-server does (shapes, key sets, status codes, headers, slots,
queue, prompt cache, counters, timings). It serves the demo and the tests of the instrument: a clean one must be found
clean, and each fault must be found. It says nothing about any real model or build.
"""

from audit.fake.server import FakeServer, FakeThread, serve_forever
from audit.fake.settings import FakeSettings
from audit.fake.switches import Faults, Switch, switches

__all__ = ["FakeServer", "FakeSettings", "FakeThread", "Faults", "Switch", "serve_forever", "switches"]
