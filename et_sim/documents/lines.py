"""The lines on which the keys of YAML and JSON texts stand. Not here: what they mean."""

from __future__ import annotations


def line_of(text: str, path: tuple[str | int, ...]) -> int:
    """The line of a YAML or JSON text on which something stands, from 1; 0: it is another sort of text."""
    import yaml

    try:
        node = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        return 0
    line = 1
    for step in path:
        if isinstance(node, yaml.MappingNode):
            found = [(key, value) for key, value in node.value if key.value == step]
            if not found:
                break
            line, node = found[0][0].start_mark.line + 1, found[0][1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
        else:
            break
    return line
