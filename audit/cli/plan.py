"""`determinism plan`: what a plan would do, before it does it."""

import json
from typing import Annotated

import typer

from audit.cli import options


def command(
    plan: options.PlanOption = None,
    quick: options.QuickOption = False,
    resolved: Annotated[bool, typer.Option("--resolved", help="Print the canonical plan.json instead.")] = False,
    as_json: options.JsonOption = False,
) -> int:
    """Show a plan."""
    from audit.prereg.choose import chosen_order
    from audit.report.plan import plan_cells, plan_text

    order = chosen_order(options.chosen_path(plan, quick=quick))
    if resolved:
        typer.echo(order.plan.to_bytes().decode(), nl=False)
    elif as_json:
        typer.echo(json.dumps(plan_cells(order.plan), indent=1))
    else:
        typer.echo(plan_text(order.plan), nl=False)
    return 0
