"""Which modules count as changed since a results folder was begun."""

import pytest

from cokl.support.errors import InputError
from cokl.support.results_folder import open_folder

CONFIG = {"device": "cpu", "steps": 3}


@pytest.mark.parametrize(
    ("now", "named"),
    [
        ({"a": "1", "b": "2", "c": "3"}, "c"),
        ({"a": "1"}, "b"),
        ({"a": "1", "b": "9"}, "b"),
        ({"b": "9", "z": "0"}, "a, b, z"),
    ],
    ids=["one more", "one fewer", "another digest", "all of these"],
)
def test_a_module_more_or_fewer_is_a_change_like_another_digest(now, named, tmp_path, capsys):
    with open_folder(tmp_path, CONFIG, {"a": "1", "b": "2"}):
        (tmp_path / "sweep.parquet").touch()
    with pytest.raises(InputError, match=rf"\(changed since: {named}\)"), open_folder(tmp_path, CONFIG, now):
        pass
    with open_folder(tmp_path, CONFIG, now, keep_going=True):
        assert f"(changed since: {named})" in capsys.readouterr().err
    with open_folder(tmp_path, CONFIG, {"b": "2", "a": "1"}):
        assert not capsys.readouterr().err
