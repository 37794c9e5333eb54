"""One document over another: what `extends` means."""

from __future__ import annotations

from kilocard.spec.problems import Path
from kilocard.spec.yaml_document import Document


def merged(base: Document, over: Document) -> Document:
    """Mappings are merged key by key; anything else in `over` replaces what `base` has; null takes it away.

    Weights and lists follow the same rule: a map of pools gains entries, a list is replaced whole.
    """
    result = Document(base.value, dict(base.lines), dict(base.texts), [*base.found, *over.found])
    if isinstance(base.value, dict) and isinstance(over.value, dict):
        result.value = _merge(base.value, over.value, (), over, result)
    elif over.value is not None:
        result.value = over.value
        result.lines, result.texts = dict(over.lines), dict(over.texts)
    result.lines |= over.lines
    result.texts |= over.texts
    return result


def _merge(
    base: dict[str, object], over: dict[str, object], path: Path, source: Document, result: Document
) -> dict[str, object]:
    merged_: dict[str, object] = dict(base)
    for key, value in over.items():
        below, here = merged_.get(key), (*path, key)
        if isinstance(below, dict) and isinstance(value, dict):
            merged_[key] = _merge(below, value, here, source, result)
        elif value is None and key in merged_:
            del merged_[key]
        else:
            merged_[key] = value
            # What the base said beneath this path is gone, and so is how it was written.
            result.texts.pop(here, None)
    return merged_
