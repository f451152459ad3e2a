"""What verifiers enforce of a schema, beside what the schema says."""

from __future__ import annotations

import re
from typing import Any

from llguidance import LLMatcher
from outrider.gateway.schemas.document import MalformedSchema
from outrider.gateway.schemas.enforced import enforced

from tests.gateway.schemas.compiling import allows, compiled

_NO_VALUE = re.compile(r"Unsatisfiable|.*no value fits")


class Tried:
    """A schema, as far as it is enforced.

    Attributes:
        refusal: why it is refused; empty if it is not.
        ignored: the keywords that are not enforced.
    """

    def __init__(self, schema: Any) -> None:
        self._matcher: LLMatcher | None = None
        self.refusal, self.ignored = "", tuple[str, ...]()
        try:
            kept = enforced(schema)
            self.ignored, self._matcher = kept.ignored, compiled(kept.schema)
        except (MalformedSchema, ValueError) as error:
            self.refusal = str(error)

    def kind(self, instance: Any, is_valid: bool, is_meant: bool = False) -> str:
        """What it says to an instance: right, refused, partly (not enforced), meant, narrow or wrong."""
        if self._matcher is None and not _NO_VALUE.match(self.refusal):
            return "refused"
        if (self._matcher is not None and allows(self._matcher, _written(instance))) == is_valid:
            return "right"
        return "meant" if is_meant else "narrow" if is_valid else "partly" if self.ignored else "wrong"


def _written(value: Any) -> Any:
    """A value with whole numbers as models write them: ``1.0`` as ``1``."""
    if isinstance(value, dict):
        return {name: _written(each) for name, each in value.items()}
    if isinstance(value, list):
        return list(map(_written, value))
    return int(value) if isinstance(value, float) and value.is_integer() else value
