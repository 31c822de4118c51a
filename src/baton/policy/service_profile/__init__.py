"""What the steps of one model cost on one machine: measured points, a fit, and its answers."""

from baton.policy.service_profile.budget import BudgetOutcome, TokenBudget
from baton.policy.service_profile.codec import FORMAT, decode_profile, encode_profile
from baton.policy.service_profile.costs import (
    Contention,
    ServiceDelays,
    StepOverhead,
    TransferCost,
)
from baton.policy.service_profile.fit import FitError, fit_steps, held_out_errors
from baton.policy.service_profile.point import StepPhase, StepPoint, phase_of, points_digest
from baton.policy.service_profile.profile import ServiceProfile
from baton.policy.service_profile.step_model import StepModel
from baton.policy.service_profile.subject import BatchCoordinates, Hardware, Kernels, Subject
from baton.policy.service_profile.terms import WORK_TERMS, StepGrid

__all__ = [
    "FORMAT",
    "WORK_TERMS",
    "BatchCoordinates",
    "BudgetOutcome",
    "Contention",
    "FitError",
    "Hardware",
    "Kernels",
    "ServiceDelays",
    "ServiceProfile",
    "StepGrid",
    "StepModel",
    "StepOverhead",
    "StepPhase",
    "StepPoint",
    "Subject",
    "TokenBudget",
    "TransferCost",
    "decode_profile",
    "encode_profile",
    "fit_steps",
    "held_out_errors",
    "phase_of",
    "points_digest",
]
