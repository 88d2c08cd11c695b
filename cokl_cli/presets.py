"""Where a command's defaults come from: the preset and the file among its arguments, found before they are parsed.

Annotations are evaluated here, for the parser.
"""

import itertools
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from cokl.support.errors import InputError, did_you_mean
from cokl.support.files import read_text
from cokl.support.options import from_json


@dataclass(frozen=True, kw_only=True)
class FromFile:
    """A command whose settings can be read from a file."""

    config_file: Annotated[Path | None, tyro.conf.arg(name="config", metavar="FILE")] = None
    """Settings in JSON, such as a result's config.json. What it lacks is the preset's; options override it."""

    def named(self, preset: str) -> str:
        """What results are called where no folder is given: as the file, else as the preset."""
        return self.config_file.stem if self.config_file else preset


def preset_among(arguments: list[str], known: Collection[str], default: str) -> Any:
    """The name after --preset if it is one of `known`, else `default`; the parser refuses other names."""
    name = value_after("--preset", arguments)
    return name if name in known else default


def settings_among(
    arguments: list[str], preset: Any, read: Callable[[dict[str, Any]], Mapping[str, Any]] = lambda stored: stored
) -> Any:
    """A configuration, changed by what the file after --config says, if there is one.

    read: makes settings of what a results folder has stored. Raises InputError for a file that cannot be read, a
    setting that is not the configuration's, and a value that it does not take.
    """
    path = value_after("--config", arguments)
    if path is None:
        return preset
    return from_json(type(preset), changed(preset.as_dict(), read(stored_settings(path)), path))


def stored_settings(path: str) -> dict[str, Any]:
    """The content of a JSON file. Raises InputError for one that cannot be read or holds no names."""
    try:
        values = json.loads(read_text(Path(path).expanduser()))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: no JSON ({error})") from error
    if not isinstance(values, dict):
        raise InputError(f'{path}: expected settings by name, such as {{"seeds": 4}}; a result\'s config.json has them')
    return values


def changed(base: Mapping[str, Any], changes: Mapping[str, Any], path: str) -> dict[str, Any]:
    """`base` with the values of `changes`, nested alike, without the device and the code that a results folder keeps.

    Raises InputError for another name that `base` lacks.
    """
    changes = {name: value for name, value in changes.items() if name in base or name not in ("code", "device")}
    for name in changes:
        if name not in base:
            near = did_you_mean(name, base)
            raise InputError(f"{path}: there is no setting {name!r}{near}; settings: {', '.join(base)}")
    nested = {
        name: changed(base[name], value, path)
        for name, value in changes.items()
        if isinstance(base[name], Mapping) and isinstance(value, Mapping)
    }
    return {**base, **changes, **nested}


def value_after(option: str, arguments: list[str]) -> str | None:
    """The value that the arguments give an option, if they give it one."""
    for argument, following in itertools.pairwise([*arguments, ""]):
        name, equals, value = argument.partition("=")
        if name == option:
            return value if equals else following
    return None
