"""Write the JSON Schema of each stored file that has a model into schemas/, one file each.

In: the shapes of audit/record.py, audit/finding.py, audit/plan.py, audit/prereg, audit/identity, audit/accuracy and
audit/remedy. Out: schemas/*.schema.json. The test of this name fails where one is not up to date, and validates stored
runs with them. A schema says less than docs/reference/record.md: it knows types and fields, not what must agree with
what.

    python scripts/make_schemas.py [--check]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, get_args

import msgspec

from audit.accuracy.bounds import Bounds
from audit.accuracy.corpus import Corpus
from audit.accuracy.plan import AccuracyPlan
from audit.accuracy.record import AnyAccuracyLine
from audit.finding import Findings
from audit.identity.order import IdentityPredictions
from audit.identity.plan import IdentityPlan
from audit.identity.record import CaptureLine, IdentityManifest, ProcessLine
from audit.plan import Plan
from audit.prereg import Predictions
from audit.record import Manifest, PromptFact
from audit.remedy.plan import RemedyPlan
from audit.remedy.record import ArmLine, BuildLine, FailedLine, RemedyManifest, UntriedLine

FOLDER = Path(__file__).resolve().parents[1] / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schemas() -> dict[str, dict[str, Any]]:
    """Return each schema by the name of what it describes."""
    kinds = (*get_args(AnyAccuracyLine), ProcessLine, CaptureLine, BuildLine, UntriedLine, ArmLine, FailedLine)
    lines = {line.__struct_config__.tag: msgspec.json.schema(line) for line in kinds}
    return {
        "accuracy-bounds": msgspec.json.schema(Bounds),
        "accuracy-corpus": msgspec.json.schema(Corpus),
        "accuracy-plan": AccuracyPlan.model_json_schema(mode="serialization"),
        "findings": msgspec.json.schema(Findings),
        "manifest": msgspec.json.schema(Manifest),
        "plan": Plan.model_json_schema(mode="serialization"),
        "predictions": Predictions.model_json_schema(mode="serialization"),
        "prompt": msgspec.json.schema(PromptFact),
        "identity-manifest": msgspec.json.schema(IdentityManifest),
        "identity-plan": IdentityPlan.model_json_schema(mode="serialization"),
        "identity-predictions": IdentityPredictions.model_json_schema(mode="serialization"),
        "remedy-manifest": msgspec.json.schema(RemedyManifest),
        "remedy-plan": RemedyPlan.model_json_schema(mode="serialization"),
        **{f"history-{tag}": schema for tag, schema in lines.items()},
    }


def files() -> dict[str, str]:
    """Return the text of each file of schemas/ by its name."""
    return {
        f"{name}.schema.json": json.dumps({"$schema": DIALECT, **schema}, indent=1, sort_keys=True) + "\n"
        for name, schema in schemas().items()
    }


def main() -> int:
    """Write or check the schemas."""
    parser = argparse.ArgumentParser(description="Write the JSON Schema of each stored file into schemas/.")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 where one is not up to date")
    arguments = parser.parse_args()
    wanted = files()
    if arguments.check:
        found = {path.name: path.read_text() for path in sorted(FOLDER.glob("*.json"))}
        print("up to date" if found == wanted else "schemas/ is not up to date: run scripts/make_schemas.py")
        return int(found != wanted)
    FOLDER.mkdir(exist_ok=True)
    for name, text in wanted.items():
        (FOLDER / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
