"""Names of the ways in which tokens reach their experts, which plans and descriptions of software share."""

ALL_TO_ALL, HIERARCHICAL, DEEPEP = EXCHANGES = ("all-to-all", "hierarchical", "deepep")
