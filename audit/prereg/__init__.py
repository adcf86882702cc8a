"""Registrations: what was predicted, under which digest, and what became of it.

predictions.py reads predictions.json and evaluates it on cells, which arrive as counts; registration.py reads a
registration's folder and says, with git's help, how far its date can be trusted. The digest itself is formed in
plan.py. Nothing here computes a cell.
"""

from audit.prereg.predictions import CHECKS, Counts, Prediction, Predictions, Rule, evaluate, load_predictions
from audit.prereg.registration import Registered, load_registration

__all__ = [
    "CHECKS",
    "Counts",
    "Prediction",
    "Predictions",
    "Registered",
    "Rule",
    "evaluate",
    "load_predictions",
    "load_registration",
]
