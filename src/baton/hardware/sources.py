"""Every source of step times, best first, and what each has for one model on one system."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from baton.errors import ConfigError
from baton.hardware import distserve, dynamo_profile, layer_table, splitwise
from baton.hardware.curves import StepCurves
from baton.hardware.distserve import DistServePredictor
from baton.hardware.dynamo_profile import DynamoProfilePredictor
from baton.hardware.layer_table import LayerTable
from baton.hardware.missing import MissingCell
from baton.hardware.model_shape import ModelShape
from baton.hardware.nearest import nearest
from baton.hardware.operator_table import OperatorTable
from baton.hardware.operators import folder
from baton.hardware.operators.profiled import FOLDERS
from baton.hardware.operators.profiled_model import ProfiledModel
from baton.hardware.parallel import Parallel
from baton.hardware.profile_predictor import ProfilePredictor
from baton.hardware.roofline import RooflinePredictor
from baton.hardware.splitwise import SplitwisePredictor
from baton.hardware.system import System


class Table(Protocol):
    """A predictor that can say without composing anything that it has nothing."""

    name: str

    def lacks(self, model: ModelShape, system: System) -> str | None:
        """Why it has nothing for a model and system, or None."""
        ...

    def curves(self, model: ModelShape, system: System, parallel: Parallel) -> StepCurves:
        """Raises MissingCell where nothing was measured."""
        ...


class Source(NamedTuple):
    """A kind of measurement in a folder of data."""

    name: str
    text: str
    open: Callable[[Path], Table]
    """Raises ConfigError where the folder lacks its files."""
    is_default: bool = True
    """Taken without being named."""


SOURCES: tuple[Source, ...] = (
    Source("layers", "layers timed one by one under vLLM, of today", LayerTable),
    Source("distserve", "DistServe's fits of OPT on A100", DistServePredictor),
    Source(
        "distserve-interpolated",
        "the same, with TP between fitted ones",
        lambda data: DistServePredictor(data, interpolates=True),
        is_default=False,
    ),
    Source(
        "distserve-vllm",
        "of vLLM in 2023",
        lambda data: DistServePredictor(data, "vllm"),
        is_default=False,
    ),
    Source("splitwise", "Splitwise's runs of BLOOM-176B and Llama-2-70B", SplitwisePredictor),
    Source(
        "splitwise-reference",
        "the same, read as the authors' simulator does",
        lambda data: SplitwisePredictor(data, "batch_tokens"),
        is_default=False,
    ),
    Source("dynamo", "a profile of Dynamo's planner on H200", DynamoProfilePredictor),
    Source(
        "profiled",
        "layers of dense models as Vidur and Frontier profiled them",
        ProfiledModel,
        is_default=False,
    ),
    Source("operators", "operators timed one by one by AIConfigurator, composed", OperatorTable),
)
"""Whole steps of the very model before operators, measurements before bounds."""
BY_FILE, BY_FORMULA = "profile", "roofline"
PLACES = (
    f"{layer_table.FOLDER}/",
    f"{distserve.FOLDER}/",
    splitwise.TABLE,
    dynamo_profile.FILE,
    *sorted({f"{one.split('/')[0]}/" for folders in FOLDERS.values() for one in folders}),
    f"{folder.FOLDER}/<system>/",
)
"""Where sources look for their measurements within a folder of data."""


class Candidate(NamedTuple):
    """One source's answer: a table, or why not."""

    name: str
    table: Table | RooflinePredictor | None
    reason: str


def candidates(
    model: ModelShape, system: System, data: Path | None, profile: Path | None
) -> list[Candidate]:
    """Of every source, best first; the roofline is always last and always there."""
    found = []
    if profile is not None:
        found.append(_judged(ProfilePredictor(profile), model, system, f"measured: {profile}"))
    for source in SOURCES:
        found.append(_of_folder(source, model, system, data))
    found.append(
        Candidate(BY_FORMULA, RooflinePredictor(), "a bound from data sheets; nothing measured")
    )
    return found


def names() -> list[str]:
    """Of every predictor."""
    return [BY_FILE, *(source.name for source in SOURCES), BY_FORMULA]


def check_folder(data: Path, said: str) -> None:
    """Raises ConfigError for a folder in which no source finds anything; `said` names it."""
    for source in SOURCES:
        try:
            source.open(data)
            return
        except ConfigError:
            continue
    raise ConfigError(
        f"{said}: holds no measurements of step times; name the folder that holds one or more of "
        f"{', '.join(PLACES)}"
    )


def named(
    name: str, model: ModelShape, system: System, data: Path | None, profile: Path | None
) -> Candidate:
    """One source, whatever the others have. Raises MissingCell or ConfigError."""
    if name not in names():
        close = ", ".join(nearest(name, names()))
        raise ConfigError(f"predictor {name!r} is not known; nearest: {close}")
    if name == BY_FILE and profile is None:
        raise ConfigError("predictor 'profile' needs --profile FILE, measured by `baton profile`")
    if name not in (BY_FILE, BY_FORMULA) and data is None:
        raise ConfigError(
            f"predictor {name!r} needs a folder of data: name it with --data or BATON_DATA"
        )
    one = next(c for c in candidates(model, system, data, profile) if c.name == name)
    if one.table is None:
        raise MissingCell(f"predictor {name!r}: {one.reason}")
    return one


def _of_folder(source: Source, model: ModelShape, system: System, data: Path | None) -> Candidate:
    if data is None:
        return Candidate(source.name, None, "no folder of data was named")
    try:
        table = source.open(data)
    except ConfigError as error:
        return Candidate(source.name, None, str(error))
    return _judged(table, model, system, source.text)


def _judged(table: Table, model: ModelShape, system: System, text: str) -> Candidate:
    if reason := table.lacks(model, system):
        return Candidate(table.name, None, reason)
    return Candidate(table.name, table, text)
