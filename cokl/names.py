"""How people write a method: by its name, or as tables, figures and the paper call it. Imports nothing heavy.

Results are stored under the names alone, so that a folder resumes whichever way its methods were written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

CALLED = {
    "cokl": "cokl",
    "cokl_w_o_term_1": "cokl_without_term1",
    "cokl_w_o_term_2": "correct_forward_kl",
    "correct_only_forward_kl": "correct_forward_kl",
    "correct_only_reverse_kl": "correct_reverse_kl",
    "entropy": "entropy",
    "forward_kl": "forward_kl",
    "jensen_shannon": "jensen_shannon",
    "no_regularizer": "none",
    "replay": "correct_forward_kl",
    "reverse_kl": "reverse_kl",
}
"""What our methods are called, in small letters with underscores between words, and their names. The paper's ablation
calls replay CoKL w/o term 2, and its main table correct-only forward KL."""
_FLOOR = "_floor"


def listed(names: Iterable[str]) -> str:
    """Names for an error line, replay by the word that pages say.

    Examples:
        >>> listed(["cokl", "correct_forward_kl"])
        'cokl, replay (correct_forward_kl)'
    """
    return ", ".join("replay (correct_forward_kl)" if name == "correct_forward_kl" else name for name in names)


def canonical(name: str) -> str:
    """The name under which results are stored.

    Args:
        name: a name, or a label whatever its case and what stands between its words.

    Returns:
        The name that it stands for; any other text as it is.

    Examples:
        >>> [canonical(text) for text in ("replay", "Reverse KL", "CoKL + floor", "chi_square")]
        ['correct_forward_kl', 'reverse_kl', 'cokl_floor', 'chi_square']
    """
    words = re.sub(r"[\W_]+", "_", name.lower()).strip("_")
    base = words.removesuffix(_FLOOR)
    return CALLED[base] + words[len(base) :] if base in CALLED else name
