"""Which order a path stands for: a registration's folder, or a plan of its own.

In goes a path, out comes an `Order`. A plan that is no registration's runs under its own digest and is exploratory.
"""

from pathlib import Path

from audit.order import Order
from audit.plan import Plan
from audit.prereg.registration import load_registration
from audit.stream import digest

__all__ = ["chosen_order"]


def chosen_order(path: Path) -> Order:
    """Return what a path orders.

    Raises: PlanError, UsageError.
    """
    if path.is_dir():
        found = load_registration(path)
        return Order(plan=found.plan, registered=found.digest, registration=found.entry(), files=found.files)
    plan = Plan.load(path)
    return Order(plan=plan, registered=digest(plan.to_bytes()))
