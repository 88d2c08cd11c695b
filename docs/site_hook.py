"""What the site adds to docs/: pages that live beside the code, the pictures they show, and formulas as MathML.

Pages keep their place in the repository, where links between them work too; here links are rewritten to the site's
addresses, and a link to a file that is no page becomes its name.
"""

from __future__ import annotations

import html
import json
import posixpath
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "ASSUMPTIONS.md": "assumptions.md",
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    "REPRODUCTION.md": "reproduction.md",
    "bandit/FINDINGS.md": "findings.md",
    "llm_bridge/FINDINGS.md": "llm-findings.md",
    "llm_bridge/open_questions/FINDINGS.md": "open-questions.md",
    "llm_bridge/README.md": "llm-experiment.md",
    "theory/FINDINGS.md": "theory-findings.md",
    "theory/README.md": "theory.md",
}
_CODE_OR_LINK = re.compile(
    r"^```.*?^```|`[^`\n]*`|(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]+)(#[^)\s]*)?\)", re.DOTALL | re.MULTILINE
)
"""Code, in which nothing is a link, or a link, whose text may hold code."""
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
_NOTEBOOK_FORMULA = re.compile(r"(\$\$?)([^$<>]+?)\1")
_NOTEBOOK_CODE = re.compile(r'<div class="highlight-ipynb[^>]*><pre>.*?</pre>\s*</div>', re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of PAGES, the rendered figures, and the notebooks."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    for path in sorted((ROOT / "figures" / "rendered").glob("*.png")):
        files.append(File.generated(config, f"figures/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite links from places in the repository to places on the site."""
    here = page.file.src_uri
    source = next((path for path, name in PAGES.items() if name == here), f"docs/{here}")

    def rewritten(match: re.Match[str]) -> str:
        picture, text, target, anchor = match.groups()
        if target is None or ":" in target:  # code, or another site
            return match[0]
        address = _on_site(posixpath.normpath(posixpath.join(posixpath.dirname(source), target)))
        if address is None:
            return text
        return f"{picture}[{text}]({posixpath.relpath(address, posixpath.dirname(here) or '.')}{anchor or ''})"

    return _CODE_OR_LINK.sub(rewritten, markdown)


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Formulas as MathML, which browsers draw themselves; in notebooks links to pages and pictures, and folded code."""
    if page.file.src_uri.endswith(".ipynb"):
        content = _folded(content, Path(page.file.abs_src_path))
        content = content.replace('src="../figures/rendered/', 'src="../figures/')
        content = re.sub(r"<script[^>]*(?:mathjax|require)[^>]*>.*?</script>", "", content, flags=re.DOTALL | re.I)
        content = re.sub(r'(<div class="jp-\w*Prompt[^>]*>).*?(</div>)', r"\1\2", content, flags=re.DOTALL)  # In [1]:
        content = re.sub(r'href="(\.\./[^":#]+\.md)(#[^"]*)?"', _from_notebook, content)
        content = re.sub(r'href="(\d\d_\w+)\.ipynb"', r'href="\1.html"', content)
        cells = re.split(r"(<pre.*?</pre>|<script.*?</script>|<style.*?</style>)", content, flags=re.DOTALL)
        cells[::2] = [_NOTEBOOK_FORMULA.sub(lambda m: _mathml(m[2], m[1] == "$$"), cell) for cell in cells[::2]]
        return "".join(cells)
    return _FORMULA.sub(lambda match: _mathml(match[2], match[1] == "div"), content)


def _folded(content: str, notebook: Path) -> str:
    """The page with the code folded that Jupyter folds too: that of cells whose metadata say `source_hidden`."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    hidden = [c["metadata"].get("jupyter", {}).get("source_hidden", False) for c in cells if c["cell_type"] == "code"]
    for code, fold in zip(_NOTEBOOK_CODE.findall(content), hidden, strict=True):
        if fold:
            content = content.replace(code, f"<details><summary>Its code</summary>{code}</details>", 1)
    return content


def _mathml(latex: str, block: bool) -> str:
    formula = convert(html.unescape(latex).strip(), display="block" if block else "inline")
    return f'<div class="md-typeset__scrollwrap">{formula}</div>' if block else formula


def _on_site(path: str) -> str | None:
    """The site's address of a file of the repository, None if it is not on the site."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("figures/rendered/") and (ROOT / path).is_file():
        return path.replace("figures/rendered/", "figures/")
    if path.startswith("docs/") and (ROOT / path).is_file():
        return path.removeprefix("docs/")
    return None


def _from_notebook(match: re.Match[str]) -> str:
    address = _on_site(posixpath.normpath(f"notebooks/{match[1]}"))
    return match[0] if address is None else f'href="../{address.removesuffix(".md")}.html{match[2] or ""}"'
