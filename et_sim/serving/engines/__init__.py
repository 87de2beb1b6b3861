"""Engines that serve: descriptions of them, as data.

A description is a JSON file in this folder, or one of the user's own: the order of prompts and tokens,
limits, sizes of graphs, the rule of the cache's memory, and times of the host. `like` names the description
that it differs from; `versions` holds the keys that older versions change.
"""

DEFAULT = "vllm"
