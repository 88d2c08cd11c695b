"""Every kind of mark is drawn where the table says: read from Matplotlib's artists."""

from typing import Any

import matplotlib as mpl
import matplotlib.style
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection

from cokl_cli.report import html
from figures.marks import Drawing, Panel, join, marks
from figures.matplotlib_renderer import render
from figures.style import Style, save

STYLES = {
    "red": Style("#ff0000", "o"),
    "blue": Style("#0000ff", "s", dashes=(2, 1), fill="white"),
    "grey": Style("#888888", dashes=(4, 2)),
}
X, Y = [1.0, 2.0, 4.0], [3.0, 5.0, 4.0]
LOW, HIGH = [2.5, 4.0, 3.9], [3.1, 7.0, 4.5]


def drawing() -> Drawing:
    """A panel of every kind of mark, and an empty one."""
    parts = [
        marks("lines", "line", label="bars", style="red", x=X, y=Y, low=LOW, high=HIGH, method="cokl", text="β = 1"),
        marks("lines", "band", label="band", style="blue", x=X, y=HIGH, low=Y, high=[8.0, 9.0, 9.0]),
        marks("lines", "seed", style="blue", x=[1, 2, 1, 2], y=[1, 2, 3, 4], run=[0, 0, 1, 1]),
        marks("lines", "point", style="red", x=X, y=LOW, x_low=[0.5, 1.0, 3.0], x_high=[1.5, 3.5, 4.5]),
        marks("lines", "hline", style="grey", y=2.0, x_low=1.0, x_high=4.0, text="level"),
    ]
    panels = {
        "lines": Panel("Title", r"$\beta$", "y of lines", "log2", X, y_limits=(0, None)),
        "empty": Panel(),
    }
    return Drawing(join(parts), panels, 2, 6, "Words.", STYLES, letters=True, note="Some diverged.")


@pytest.fixture(scope="module")
def panels() -> dict[str, Axes]:
    """Matplotlib's axes by the panels' names."""
    return dict(zip(drawing().panels, render(drawing()).axes, strict=False))


def segments(axes: Axes) -> list[np.ndarray]:
    return [one for bars in axes.collections if isinstance(bars, LineCollection) for one in bars.get_segments()]


def test_lines_bars_and_points(panels):
    axes = panels["lines"]
    bars, band, first, second, point, level = axes.lines
    np.testing.assert_array_equal(bars.get_xydata(), np.column_stack([X, Y]))
    np.testing.assert_array_equal(band.get_xydata(), np.column_stack([X, HIGH]))
    np.testing.assert_array_equal(first.get_xydata(), [[1, 1], [2, 2]])
    np.testing.assert_array_equal(second.get_xydata(), [[1, 3], [2, 4]])
    np.testing.assert_array_equal(point.get_xydata(), np.column_stack([X, LOW]))
    assert (bars.get_color(), bars.get_marker(), bars.get_linestyle()) == ("#ff0000", "o", "-")
    assert (band.get_color(), band.get_markerfacecolor(), band.is_dashed()) == ("#0000ff", "white", True)
    assert (point.get_linestyle(), level.get_ydata()) == ("None", [2, 2])
    vertical = [[[x, low], [x, high]] for x, low, high in zip(X, LOW, HIGH, strict=True)]
    horizontal = [[[0.5, 2.5], [1.5, 2.5]], [[1, 4], [3.5, 4]], [[3, 3.9], [4.5, 3.9]]]
    np.testing.assert_allclose(segments(axes), vertical + horizontal)
    (area,) = [one for one in axes.collections if isinstance(one, PolyCollection)]
    vertices = np.asarray(area.get_paths()[0].vertices)
    for x, low, high in zip(X, Y, [8, 9, 9], strict=True):
        assert {y for of_x, y in vertices.tolist() if of_x == x} == {low, high}
    assert [text.get_text() for text in axes.texts] == ["level"]
    assert axes.get_xscale() == "log"
    assert axes.get_xticks().tolist() == X
    assert (axes.get_xlabel(), axes.get_ylabel()) == (r"$\beta$", "y of lines")
    assert axes.get_ylim()[0] == 0


def test_the_legend_names_each_label_once_and_the_figure_keeps_its_words():
    picture = render(drawing())
    (legend,) = picture.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["bars", "band"]
    assert picture.caption == "Words."
    assert picture.get_suptitle() == "Some diverged."
    assert [axes.get_title(loc="left") for axes in picture.axes] == ["(a)", "(b)"]


def test_a_users_settings_change_no_picture(tmp_path):
    """A notebook's style while drawing, another while saving and while the page takes it as SVG."""
    own: Any = {"text.usetex": True, "lines.linewidth": 9, "savefig.bbox": "tight", "font.size": 30}
    made = {}
    for name, around in (("plain", {}), ("own", own)):
        with mpl.rc_context():
            if around:
                mpl.style.use("dark_background")
                mpl.rcParams.update(around)
            picture = render(drawing())
            paths = save(picture, tmp_path / name, "drawn")
            made[name] = [*(path.read_bytes() for path in paths), html.picture(picture, "drawn").encode()]
    assert made["plain"] == made["own"]
