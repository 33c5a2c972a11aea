"""Count the folders of a feature within a room, in trees by layer and by feature."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import PurePosixPath

FEATURES = {
    "fleet": "fleet|topology|pools?|engines?|region|preflight|drain|probe|discovery|sovereignty",
    "policies": "polic",
    "trials": "trial|whatif|canar|shadow|holdback",
    "automation": "automation|actuator|scaling|rebalanc|engine_action|engine_health",
    "request_log": "request_log|decision|recording|traffic",
    "access": "access|api_key|tenant|people|person|session|login|audit",
    "history": "history|fleet_past|affinity|rollup|past_",
    "kv_nodes": "kv_node|kv_move",
    "capacity": "capacity",
    "regions": "^regions/",
}
"""Words in the paths of a feature's files. The first match in a path counts."""
SHARED = re.compile(r"(platform|project|management|doctor|migrations|shell|live|frontend)(/|$)")
"""Paths shared by all features, or that name all of them."""


def _feature(name: PurePosixPath) -> str:
    matches = [
        (match.start(), -len(match[0]), feature)
        for feature, words in FEATURES.items()
        if (match := re.search(words, str(name)))
    ]
    return min(matches)[2] if matches else ""


def folders_per_feature(names: Sequence[PurePosixPath]) -> str:
    """Return the number of folders of each feature, given paths of files below their room.

    They are the outermost folders that contain only the feature, and the folders of its other files.
    """
    owners: dict[PurePosixPath, set[str]] = defaultdict(set)
    for name in names:
        for folder in name.parents:
            owners[folder].add(_feature(name) if name.name != "__init__.py" else _feature(folder) or "")
    folders: dict[str, set[PurePosixPath]] = defaultdict(set)
    for name in names:
        feature = _feature(name)
        if feature and name.name != "__init__.py" and not SHARED.match(str(name)):
            own = [folder for folder in name.parents if owners[folder] <= {feature}]
            folders[feature].add(own[-1] if own else name.parent)
    return ", ".join(f"{feature} {len(folders[feature])}" for feature in FEATURES if folders[feature])
