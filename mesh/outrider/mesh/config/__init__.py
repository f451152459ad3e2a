"""Settings: a TOML file, then the environment, then flags; every key known, every value checked."""

from outrider.mesh.config.fields import Field, fields
from outrider.mesh.config.flags import parse_flags
from outrider.mesh.config.settings import SECTIONS, Settings
from outrider.mesh.config.sources import EffectiveSetting, describe, load

__all__ = ["SECTIONS", "EffectiveSetting", "Field", "Settings", "describe", "fields", "load", "parse_flags"]
