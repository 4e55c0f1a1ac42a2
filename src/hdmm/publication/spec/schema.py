"""The JSON schema of specifications for editors, generated from the records."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from hdmm.publication.spec.keys import MOST_FLOAT, SpecFile

_TOGETHER: dict[str, dict[str, Any]] = {
    "SpecFile": {"title": "hdmm specification"},
    "DataPart": {"dependentRequired": {"id": ["max_rows_per_id"], "max_rows_per_id": ["id"]}},
    "ValuesKeys": {
        "oneOf": [
            {"required": ["labels"]},
            {"required": ["bins"]},
            {"required": ["first", "last"]},
            {
                "required": ["levels"],
                "properties": {"levels": {"type": "string"}},
                "not": {"anyOf": [{"required": ["labels"]}, {"required": ["bins"]}, {"required": ["first"]}]},
            },
        ],
        "dependentRequired": {"step": ["first"]},
    },
    "TableKeys": {"oneOf": [{"required": ["sql"]}, {"anyOf": [{"required": ["marginals"]}, {"required": ["ranges"]}]}]},
    "PrivacyKeys": {
        "oneOf": [{"required": ["epsilon"]}, {"required": ["rho"]}],
        "dependentRequired": {"delta": ["epsilon"]},
    },
    "CapKeys": {"minProperties": 1, "maxProperties": 1},
}
"""What the schema says of several keys together, which types do not; hdmm.publication.spec.read checks the same."""


def schema_text() -> str:
    """The JSON schema of specifications, by which an editor completes keys and checks them."""
    found = msgspec.json.schema(SpecFile, schema_hook=lambda _: {"type": "string", "minLength": 1})
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", **_inlined(found, found["$defs"])}
    return f"{json.dumps(whole, indent=2, ensure_ascii=False)}\n"


def _inlined(node: Any, definitions: dict[str, Any]) -> Any:
    """A schema without references, and without null, which TOML does not have."""
    if isinstance(node, list):
        return [_inlined(each, definitions) for each in node if each != {"type": "null"}]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        node = {**definitions[name], "title": None, **node, **_TOGETHER.get(name, {})}
    kept = {
        key: _inlined(value, definitions)
        for key, value in node.items()
        if key not in ("$ref", "$defs") and value is not None and value != MOST_FLOAT
    }
    match kept.get("anyOf"):
        case [only]:
            del kept["anyOf"]
            return {**only, **kept}
        case _:
            return kept
