"""What is to be run: a plan, and where it comes from. A shape without behaviour."""

from dataclasses import dataclass, field

from audit.plan import Plan
from audit.record import Registration

__all__ = ["Order"]


@dataclass(frozen=True, kw_only=True)
class Order:
    """A plan with its registration; without one the digest of the resolved plan is the registered digest.

    `files` are the registered files by name, copied into the run.
    """

    plan: Plan
    registered: str
    registration: Registration | None = None
    files: dict[str, bytes] = field(default_factory=dict)
