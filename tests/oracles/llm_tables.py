"""The LLM tables' numbers by loops over plain lists and dictionaries, straight from E.5 and F.2."""

from __future__ import annotations


def normalized(rows: list[dict], math_columns: list[str]) -> list[dict]:
    """rows: model, method and scores; the same with normalized scores and averages, in the order given."""
    result = []
    for row in rows:
        (base,) = [other for other in rows if other["model"] == row["model"] and other["method"] == "base"]
        (grpo,) = [other for other in rows if other["model"] == row["model"] and other["method"] in ("grpo", "none")]
        new = {"model": row["model"], "method": row["method"]}
        total = 0.0
        for name in math_columns:
            new[name] = 100 * (row[name] - grpo[name]) / (base[name] - grpo[name])
            total += new[name]
        new["math_avg"] = total / len(math_columns)
        new["chat_val"] = 100 * (row["chat_val"] - base["chat_val"]) / (grpo["chat_val"] - base["chat_val"])
        new["overall"] = (new["math_avg"] + new["chat_val"]) / 2
        result.append(new)
    return result


def mark(value: float, competitors: list[float]) -> str:
    """Of a number with two decimals among those it competes with, itself included."""
    higher = 0
    for other in competitors:
        if round(other, 2) > round(value, 2):
            higher += 1
    return {0: "best", 1: "second"}.get(higher, "")
