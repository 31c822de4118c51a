"""Prompts from a file: one text per line, or JSON lines with sampling parameters."""

from pathlib import Path

import msgspec

from baton.bench.compare.case import Ask, Case, Round
from baton.core.request import SamplingParams
from baton.errors import ConfigError
from baton.runtime.gateway.tokenizer import Tokenizer

DEFAULT_MAX_TOKENS = 32


class PromptLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of a .jsonl file. A text, or token ids."""

    prompt: str | tuple[int, ...]
    max_tokens: int = DEFAULT_MAX_TOKENS
    min_tokens: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    ignore_eos: bool = False
    num_logprobs: int = -1

    @property
    def sampling(self) -> SamplingParams:
        """How tokens are drawn for this line."""
        names = [name for name in self.__struct_fields__ if name != "prompt"]
        return SamplingParams(**{name: getattr(self, name) for name in names})


def read_prompts(file: Path) -> tuple[PromptLine, ...]:
    """The file's prompts. Raises ConfigError naming file, line and remedy."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot read the prompts: {error}") from error
    lines = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        if file.suffix != ".jsonl":
            lines.append(PromptLine(prompt=line))
            continue
        try:
            lines.append(msgspec.json.decode(line, type=PromptLine))
        except msgspec.MsgspecError as error:
            raise ConfigError(
                f"{file}:{number}: {error}; write "
                '{"prompt": "...", "max_tokens": 32, "temperature": 0.0, "seed": 0}'
            ) from error
    if not lines:
        raise ConfigError(f"{file}: there is no prompt in it; write one per line")
    return tuple(lines)


def prompt_cases(lines: tuple[PromptLine, ...], tokenizer: Tokenizer) -> tuple[Case, ...]:
    """Each prompt alone, and then all of them together."""
    asks = []
    for number, line in enumerate(lines, start=1):
        ids = line.prompt if isinstance(line.prompt, tuple) else tokenizer.encode(line.prompt)
        if not ids:
            raise ConfigError(f"prompt {number} has no token")
        asks.append(Ask(token_ids=tuple(ids), sampling=line.sampling))
    cases = [
        Case(name=f"prompt-{number}", about="from the file", rounds=(Round(asks=(ask,)),))
        for number, ask in enumerate(asks, start=1)
    ]
    together = Round(asks=tuple(asks), one_by_one=True)
    cases.append(Case(name="prompts-together", about="all of the file", rounds=(together,)))
    return tuple(cases)
