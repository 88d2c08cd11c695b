"""What was read is let go of: a thread that still holds it as Python ends takes the process down."""

import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd

from cokl.support import files


def test_no_thread_holds_what_a_table_was_read_from(tmp_path, monkeypatch):
    path = tmp_path / "table.parquet"
    pd.DataFrame(np.arange(40000.0).reshape(2000, 20), columns=[*map(str, range(20))]).to_parquet(path)
    content = path.read_bytes()
    read = Mock(return_value=content)
    monkeypatch.setattr(Path, "read_bytes", read)
    held = sys.getrefcount(content)
    late = [sys.getrefcount(content) - held for _ in range(400) if len(files.read_parquet(path))]
    assert set(late) == {0}
    assert read.call_count == 400  # else the reader reads otherwise, and this shows nothing
