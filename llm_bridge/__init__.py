"""The paper's LLM experiment on VeRL, with the loss of `cokl`. Importing it loads neither VeRL nor PyTorch."""

import os as _os
import sys as _sys
from importlib.machinery import PathFinder as _PathFinder

# VeRL imports the modules that this variable names, and a misspelt one of ours would end in a traceback.
for _name in _os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(","):
    _package, _, _module = _name.strip().partition(".")
    if _package == __name__ and not _PathFinder.find_spec(f"{__name__}.{_module.split('.')[0]}", __path__):
        print(f"cokl: VERL_USE_EXTERNAL_MODULES: there is no {_name}; expected llm_bridge.plugin", file=_sys.stderr)
        _sys.exit(2)
